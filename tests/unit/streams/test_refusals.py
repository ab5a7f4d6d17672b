"""What is wrong with arguments is told in plain words, each once, and never with the value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from memory.records import TREE_PATTERN
from streams.refusals import refusals


def _positive(text: str) -> str:
    if text == "odd":
        raise ValueError("contains what is odd")
    return text


Text = Annotated[str, AfterValidator(_positive)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: Text = ""
    count: int = Field(5, ge=1, le=10_000)
    tree: str = Field("t", pattern=TREE_PATTERN)
    kind: Literal["leaf", "summary"] | None = None
    text: str = Field("x", min_length=1, max_length=4_096)
    found: dict[str, Text | bool | int | float] = Field(default_factory=dict)
    ids: list[Text] = Field(default_factory=lambda: ["a"], min_length=1, max_length=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": "x"}, "count: expected a whole number"),
        ({"count": 0}, "count: is less than 1"),
        ({"count": 10**6}, "count: is more than 10,000"),
        ({"name": 1}, "name: expected a string"),
        ({"name": "odd"}, "name: contains what is odd"),
        ({"tree": "a/b"}, "tree: is not 1 to 128 of the characters A-Z a-z 0-9 . _ : -"),
        ({"kind": "root"}, "kind: expected 'leaf' or 'summary'"),
        ({"text": ""}, "text: is empty"),
        ({"text": "x" * 5_000}, "text: has more than 4,096 characters"),
        ({"ids": []}, "ids: is empty"),
        ({"ids": ["a"] * 3}, "ids: has more than 2 entries"),
        ({"ids": ["a", 1]}, "ids.1: expected a string"),
        ({"more": 1}, "more: is not taken here"),
        ({"found": {"speaker": ["Ana"]}}, "found.speaker: expected a string, true or false, a whole number or a number"),
        ({"found": {"str": None}}, "found.str: expected a string, true or false, a whole number or a number"),
        ({"found": {"int": "odd"}}, "found.int: contains what is odd"),
        ({"str": 1}, "str: is not taken here"),
        ({"found": [1]}, "found: expected an object"),
    ],
)
def test_each_is_said_once_in_plain_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Model.model_validate(given)
    assert [f"{'.'.join(place)}: {reason}" for place, reason in refusals(refused.value.errors())] == [said]
