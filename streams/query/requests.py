"""
The HTTP contract as Pydantic models: what requests may say.

Questions are validated by them. Records are read by the decoder that Kafka and files share; their models describe them in the
OpenAPI document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

WAIT_SECONDS = 5.0
WAIT_SECONDS_MAX = 30.0
SEQ_MAX = 2**42
INTEGER_MAX = 2**31 - 1


def _whole(text: str) -> str:
    # JSON can write half of a surrogate pair; nothing that is UTF-8 can hold it.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("contains half of a surrogate pair")
    return text


Text = Annotated[str, AfterValidator(_whole)]
FilterValue = Text | bool | int | float
Strategy = Annotated[
    Text, Field(max_length=32, description="`hybrid`, `collapsed`, `traversal`, `bm25`, or one that the tree's structure has.")
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Asking(_Request):
    """What every question may say."""

    query: Text = Field(description="The question, in words; never a query language.", examples=["Where does Ana live now?"])
    strategy: Strategy = "hybrid"
    filter: dict[Text, FilterValue] = Field(
        default_factory=dict,
        max_length=32,
        description="All must hold: `kind` (leaf or summary), `speaker`, `conversation`, `source`; any other name is one of the "
        "record's metadata.",
        examples=[{"speaker": "Ana"}],
    )
    since: Text | None = Field(None, max_length=64, description="Not before this time, ISO 8601.", examples=["2026-01-01"])
    until: Text | None = Field(None, max_length=64, description="Before this time.", examples=["2026-06-01T00:00:00Z"])
    min_seq: int | None = Field(None, ge=0, le=SEQ_MAX, description="The answer must cover this commit; waits for it.")
    wait_for: Text | None = Field(None, min_length=1, max_length=256, description="The answer must cover this event; waits for it.")
    wait_seconds: float = Field(WAIT_SECONDS, ge=0, le=WAIT_SECONDS_MAX, description="How long to wait for those.")


class SearchRequest(Asking):
    """A question."""

    k: int = Field(10, ge=1, le=INTEGER_MAX, description="Hits wanted; BANYAN_RETRIEVAL_K_MAX bounds it, by default to 1,000.")
    group: Literal["none", "conversation", "document"] = Field("none", description="One hit a conversation or document, its best.")
    explain: bool = Field(False, description="Say what each score is made of, and what the strategy did.")


class ContextRequest(Asking):
    """A question whose answer is packed for a prompt."""

    tokens: int = Field(ge=1, le=1_000_000, description="Longest text, in tokens of about four characters.", examples=[500])
    context_filter: bool | None = Field(
        None,
        description="Whether the model that BANYAN_CONTEXT_FILTER names leaves out what does not matter to the question; "
        "null or nothing: where one is named.",
    )


class ForgetRequest(_Request):
    """What is to be forgotten; exactly one of the three."""

    events: list[Annotated[Text, Field(min_length=1, max_length=256)]] | None = Field(
        None, min_length=1, description="Ids of turns, documents or feedback.", examples=[["t-981"]]
    )
    conversation: Text | None = Field(None, min_length=1, max_length=1024, description="Whose turns go.")
    before: Text | None = Field(None, max_length=64, description="What was said or published before this time goes, ISO 8601.")


class _RecordIn(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str = Field(min_length=1, max_length=256, description="Yours; makes the record idempotent within its tree.")
    text: str = Field(min_length=1)
    metadata: dict[str, Any] = Field(default_factory=dict, max_length=64)


class TurnIn(_RecordIn):
    """One turn of a conversation. Further members are kept in `metadata`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "t-981",
                    "text": "We took the flat in Porto.",
                    "conversation": "c-7",
                    "speaker": "Ana",
                    "at": "2026-05-08T13:56:00Z",
                }
            ]
        }
    )
    conversation: str | None = Field(None, min_length=1, max_length=1024)
    speaker: str | None = Field(None, min_length=1, max_length=1024)
    at: str | None = Field(None, description="ISO 8601; without a zone UTC.")


class DocumentIn(_RecordIn):
    """One document. Further members are kept in `metadata`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "d-55",
                    "text": "The harbour tunnel opens in June.",
                    "title": "A tunnel opens",
                    "source": "The Harbour Post",
                    "published_at": "2026-05-08",
                }
            ]
        }
    )
    title: str | None = Field(None, min_length=1, max_length=1024)
    source: str | None = Field(None, min_length=1, max_length=1024)
    url: str | None = Field(None, min_length=1, max_length=4096)
    published_at: str | None = Field(None, description="ISO 8601; without a zone UTC.")


class FeedbackIn(BaseModel):
    """What a user says of a turn or a document that was remembered."""

    model_config = ConfigDict(extra="allow")
    id: str = Field(min_length=1, max_length=256, description="Yours; makes it count once within its tree.", examples=["f-7"])
    event: str = Field(min_length=1, max_length=256, description="Id of the turn or document.", examples=["t-981"])
    verdict: Literal["approval", "rebuttal"]
    at: str | None = Field(None, description="ISO 8601; without a zone UTC; left out, now.", examples=["2026-05-08T14:02:00Z"])
    chunk: int | None = Field(None, ge=0, lt=2**31, description="Which chunk of a document; without it all.")
