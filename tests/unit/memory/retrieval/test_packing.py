"""What goes into a prompt."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from memory.model import NodeId
from memory.ports.summarizer import estimate_tokens
from memory.retrieval.packing import Passage, pack


def day(number: int) -> datetime:
    return datetime(2026, 5, number, tzinfo=UTC)


def leaf(name: str, *above: str, at: datetime | None = None, text: str = "", position: int = 0) -> Passage:
    path = tuple(NodeId(node) for node in above)
    return Passage(node=NodeId(name), text=text or f"leaf {name}", path=path, at=at, sequence="c", position=position)


def summary(name: str, *above: str, covered: bool = True) -> Passage:
    return Passage(node=NodeId(name), text=f"summary {name}", path=tuple(NodeId(node) for node in above), covered=covered)


def names(passages: list[Passage]) -> list[str]:
    return [passage.node for passage in passages]


def test_what_a_chosen_summary_says_is_not_repeated() -> None:
    assert names(pack([summary("s"), leaf("a", "s"), summary("t", "s"), leaf("b")], tokens_max=100)) == ["s", "b"]


def test_a_summary_of_something_chosen_is_left_out() -> None:
    assert names(pack([leaf("a", "top", "s"), summary("s", "top"), summary("top"), summary("u")], tokens_max=100)) == ["u", "a"]


def test_a_summary_that_is_behind_does_not_silence_its_leaves() -> None:
    assert names(pack([summary("s", covered=False), leaf("a", "s")], tokens_max=100)) == ["s", "a"]


def test_leaves_stand_in_time_order_and_summaries_before_them() -> None:
    passages = [leaf("c", at=day(3)), leaf("a", at=day(1)), summary("s"), leaf("z"), leaf("b2", at=day(2), position=9)]
    passages.append(leaf("b1", at=day(2), position=8))
    assert names(pack(passages, tokens_max=1000)) == ["s", "a", "b1", "b2", "c", "z"]


def test_a_long_passage_is_passed_over_for_shorter_ones() -> None:
    passages = [leaf("a", text="x" * 40), leaf("long", text="y" * 400), leaf("b", text="z" * 40)]
    assert names(pack(passages, tokens_max=25)) == ["a", "b"]


def test_equal_texts_are_said_once() -> None:
    assert names(pack([leaf("a", text="same"), leaf("b", text="same")], tokens_max=100)) == ["a"]


@given(st.lists(st.integers(1, 200), max_size=30), st.integers(1, 200))
def test_the_budget_holds_for_the_joined_text(lengths: list[int], tokens_max: int) -> None:
    passages = [leaf(str(number), text=chr(0x4E00 + number) * length) for number, length in enumerate(lengths)]
    packed = pack(passages, tokens_max=tokens_max)
    if packed:
        assert sum(estimate_tokens(passage.text + "\n") for passage in packed) <= tokens_max
