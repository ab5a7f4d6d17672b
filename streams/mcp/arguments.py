"""What tools take and give back, as Pydantic models: their JSON schemas are what an agent's model reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memory.records import FIELD_CHARACTERS_MAX, ID_CHARACTERS_MAX, METADATA_FIELDS_MAX, TREE_PATTERN

TEXT_CHARACTERS_MAX = 32_768
"""Longest text that is remembered at once; longer ones are for `banyan ingest`, which cuts documents into chunks."""
QUERY_CHARACTERS_MAX = 4_096
K_MAX = 50
TOKENS_MAX = 20_000
DEPTH_MAX = 3
CHILDREN_MAX = 20
TREES_MAX = 100
IDS_MAX = 50
"""What is forgotten at once."""
HIT_CHARACTERS_MAX = 2_000
"""Longest text of a hit; `context` gives whole texts."""

Tree = Annotated[
    str,
    Field(
        pattern=TREE_PATTERN,
        description="Name of the memory: one for each user, project or subject, e.g. user-42. Letters, digits and . _ : - only.",
        examples=["user-42"],
    ),
]
Label = Annotated[str, Field(min_length=1, max_length=FIELD_CHARACTERS_MAX)]
Query = Annotated[
    str,
    Field(min_length=1, max_length=QUERY_CHARACTERS_MAX, description="The question in plain words; there is no query language."),
]
Time = Annotated[str, Field(max_length=64)]


class Arguments(BaseModel):
    """Of any tool; a name that is not there is refused."""

    model_config = ConfigDict(extra="forbid")


class OfTree(Arguments):
    """Of a tool that works on one tree."""

    tree: Tree


class Remember(OfTree):
    """Arguments of `remember`."""

    text: str = Field(
        min_length=1,
        max_length=TEXT_CHARACTERS_MAX,
        description="What to remember, in full sentences that can be understood on their own: name people and things, no "
        "'he', 'it' or 'yesterday'.",
    )
    speaker: Label | None = Field(None, description="Who said it, if somebody did.", examples=["Ana"])
    conversation: Label | None = Field(
        None, description="Groups what was said in one conversation: what lies beside a hit there is found with it."
    )
    title: Label | None = Field(None, description="Of a document.")
    source: Label | None = Field(None, description="Of a document: who published it.")
    url: str | None = Field(None, min_length=1, max_length=4_096, description="Of a document: where it is.")
    at: Time | None = Field(
        None, description="When it was said or published, ISO 8601; now, if it is left out.", examples=["2026-05-08T13:56:00Z"]
    )
    id: str | None = Field(
        None,
        min_length=1,
        max_length=ID_CHARACTERS_MAX,
        description="Your own name for it. Made from what it says if it is left out, so that remembering the same again changes "
        "nothing.",
    )
    metadata: dict[str, str | int | float | bool] = Field(
        default_factory=dict, max_length=METADATA_FIELDS_MAX - 8, description="Further facts about it, by name."
    )


class Forget(OfTree):
    """Arguments of `forget`."""

    ids: list[Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS_MAX)]] = Field(
        min_length=1,
        max_length=IDS_MAX,
        description="Of what is to be forgotten, as `recall` gives them in `id`; those of a summary are in its `sources`.",
        examples=[["m-2f9c"]],
    )


class Filtered(OfTree):
    """Of a question; all that is given must hold."""

    query: Query
    speaker: Label | None = Field(None, description="Only what this person said.")
    conversation: Label | None = Field(None, description="Only what was said in this conversation.")
    source: Label | None = Field(None, description="Only documents of this publisher.")
    since: Time | None = Field(None, description="Only what was said or published at this time or later, ISO 8601.")
    until: Time | None = Field(None, description="Only what was said or published before this time, ISO 8601.")


class Recall(Filtered):
    """Arguments of `recall`."""

    k: int = Field(8, ge=1, le=K_MAX, description="How many texts at most.")
    kind: Literal["leaf", "summary"] | None = Field(
        None, description="`leaf`: only what was remembered, word for word. `summary`: only summaries of many of these."
    )


class Pack(Filtered):
    """Arguments of `context`."""

    tokens: int = Field(1_000, ge=50, le=TOKENS_MAX, description="Longest text, in tokens of about four characters.")


class Overview(OfTree):
    """Arguments of `overview`."""

    node: str = Field("root", min_length=1, max_length=256, description="Where to begin: `root`, or an id from an outline.")
    depth: int = Field(2, ge=1, le=DEPTH_MAX, description="Levels to show.")
    children: int = Field(8, ge=1, le=CHILDREN_MAX, description="Most entries below one topic, the largest first.")


class Trees(Arguments):
    """Arguments of `trees`."""

    after: str = Field("", max_length=128, description="Name of the last memory of the page before; empty for the first page.")


# ------------------------------------------------------------------------------------------------------------------ answers


class Remembered(BaseModel):
    """What became of it."""

    tree: str
    id: str
    status: Literal["accepted", "duplicate"] = Field(description="`duplicate`: it was there already, and nothing has changed.")


class Forgot(BaseModel):
    """What is not remembered any more."""

    tree: str
    forgotten: int | None = Field(description="How many of them were there; null where that is not known yet.")
    unknown: int = Field(description="How many were never there; they will not be taken.")
    already: int = Field(description="How many had been forgotten before.")


class Recollection(BaseModel):
    """One text that answers the question."""

    id: str | None = Field(description="Of what was remembered; null for a summary.")
    kind: Literal["leaf", "summary"]
    score: float = Field(description="Comparable within one answer only; higher is better.")
    text: str
    cut: bool = Field(description="Whether the text goes on; `context` has it whole.")
    speaker: str | None
    conversation: str | None
    at: str | None
    title: str | None
    source: str | None
    url: str | None
    metadata: dict[str, Any]
    topics: list[str] = Field(description="Titles of the summaries above it, the widest first.")
    sources: list[str] = Field(description="Ids of what it was made from, 20 at most.")
    pending: int = Field(description="Texts below a summary that it does not cover yet.")


class Recalled(BaseModel):
    """The texts, best first."""

    tree: str
    hits: list[Recollection]
    seq: int = Field(description="The commit of the memory that the answer covers.")


class Packed(BaseModel):
    """Text for a prompt."""

    tree: str
    text: str
    tokens: int
    ids: list[str] = Field(description="Of what is in the text.")
    seq: int


class Outlined(BaseModel):
    """What a memory is about."""

    tree: str
    texts: int = Field(description="Leaves: what was remembered.")
    topics: int = Field(description="Summaries of these.")
    pending: int = Field(description="Summaries that are not up to date yet.")
    seq: int
    outline: str = Field(description="A line each, indented by depth: id of the node, how many texts lie below it, what it says.")


class TreeNames(BaseModel):
    """A page of memories."""

    trees: list[str]
    next: str | None = Field(description="Give as `after` for the next page; null at the end.")
