"""Examples in the OpenAPI document: all of one small tree, as `banyan serve` answered of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

SUMMARY = "s6a90e8adff227dee11"
SUMMARY_TEXT = "Porto · flat · river\nAna (2026-05-08): We took the flat in Porto."
LEAF = "l49c84b8c09ba3ed87e"
OTHER_LEAF = "l896581a99120f4056e"
TURNS = ("t-981", "t-982")

TreeName = Annotated[str, Field(examples=["user-42"])]
EventName = Annotated[str, Field(examples=[TURNS[0]])]
LeafName = Annotated[str, Field(examples=[LEAF])]
SummaryName = Annotated[str, Field(examples=[SUMMARY])]
Said = Annotated[str, Field(examples=["We took the flat in Porto."])]
Summed = Annotated[str, Field(examples=[SUMMARY_TEXT])]
SaidBy = Annotated[str, Field(examples=["Ana"])]
SaidAt = Annotated[datetime, Field(examples=["2026-05-08T13:56:00+00:00"])]
SaidIn = Annotated[str, Field(examples=["c-7"])]
MadeAt = Annotated[datetime, Field(examples=["2026-05-08T13:56:01.318760+00:00"])]
CommittedAt = Annotated[datetime, Field(examples=["2026-05-08T13:57:02.374017+00:00"])]
FirstSeq = Annotated[int, Field(examples=[1])]
LastSeq = Annotated[int, Field(examples=[3])]
Zero = Annotated[int, Field(examples=[0])]
One = Annotated[int, Field(examples=[1])]
Two = Annotated[int, Field(examples=[2])]
NoMetadata = Annotated[dict[str, Any], Field(examples=[{}])]
No = Annotated[bool, Field(examples=[False])]

OTHER: Mapping[str, Any] = {
    "id": OTHER_LEAF,
    "text": "Is the flat in Porto near the river?",
    "event_id": TURNS[1],
    "speaker": "Ben",
    "at": "2026-05-08T13:57:00+00:00",
}
"""In what the second turn's leaf differs from the first one's."""


class Answer(BaseModel):
    """An answer, or a part of one, whose example is put together of those of its members."""

    shown: ClassVar[Mapping[str, Any]] = {}
    """Members whose example is another in this model, and those that the model does not name."""

    @classmethod
    def example(cls, **other: Any) -> dict[str, Any]:
        """
        The example: of each member the first of its own.

        A member without one is null where that is allowed, and left out where it may be.

        Args:
            other: members that are to be others.
        """
        told = {**cls.shown, **other}
        named = {
            name: told[name] if name in told else field.examples[0] if field.examples else _first(field.annotation)
            for name, field in cls.model_fields.items()
            if name in told or field.examples or field.is_required()
        }
        return {**named, **told}

    @classmethod
    def all(cls) -> Iterator[type[Answer]]:
        """Every model of an answer."""
        for model in cls.__subclasses__():
            yield model
            yield from model.all()


def _first(annotation: Any) -> Any:
    """An example of a type; null where it has none, which the document's test refuses unless null is allowed there."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        told = [each.examples[0] for each in parts[1:] if isinstance(each, FieldInfo) and each.examples]
        return told[0] if told else _first(parts[0])
    if origin is list:
        return [_first(parts[0])]
    if origin is Literal:
        return parts[0]
    if NoneType in parts:
        return _first(parts[0])
    return annotation.example() if isinstance(annotation, type) and issubclass(annotation, Answer) else None


def drawn(
    leaf: Mapping[str, Any], *, above: Mapping[str, Any], texts: tuple[str | None, str | None], **more: Any
) -> dict[str, Any]:
    """
    The whole tree, as an example.

    Args:
        leaf: the first turn's leaf, without what is below it.
        above: in what both nodes above the leaves differ from it.
        texts: of the summary and of the root.
        more: what further is said of every node.
    """
    second = {**leaf, **{name: value for name, value in OTHER.items() if name in leaf}}
    inner = {**leaf, **{name: None for name in ("event_id", "speaker", "at") if name in leaf}, **above}
    leaves = [{**each, "children": [], **more} for each in (leaf, second)]
    summary = {**inner, "id": SUMMARY, "kind": "summary", "depth": 1, "text": texts[0], "children": leaves, **more}
    return {**inner, "id": "root", "kind": "root", "depth": 0, "text": texts[1], "children": [summary], **more}
