"""What users write never becomes a part of the query language, and no condition lets a question out of its tree."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.redis.search.documents import document, pair_code, term_code, value_code
from memory.adapters.redis.search.keys import OWN, SHARED
from memory.adapters.redis.search.querying import TERMS_MAX, Where, nearest, overfetched, weighed, wordiest
from memory.model import NodeId, NodeKind, mark
from memory.ports.index import IndexEntry, Scope
from memory.retrieval.text import terms
from tests.fakes.plain_index import unit

HERE = Where(name="banyan:search:shared:4", generation="17", place=SHARED)
ALONE = Where(name="banyan:search:own:17", generation="17", place=OWN)
SPECIAL = [*map(chr, range(128)), "\u2028", "\u202e", "é", "東", "👩‍👩‍👧", "\ud800"]
ATTACKS = [
    "*", "} | @tree:{99", "x})=>[KNN 10 @vector $v]", "@tree:{*}", "-@tree:{17}", "a|b", "(", "))))", '"', "\\", "\\}", "%%a%%",
    "=>{$weight: 9}", "$vector", "a\x00b", "[-inf +inf]", "@at:[0 1]", "foo*", "w'pre*'", "ismissing(@tree)", "LIMIT 0 1000", ",",
]  # fmt: skip
TAGS = r"@(?:tree|kind|speaker|conversation|source|metadata):\{[0-9a-z]+\}"
TIMES = r"@at:\[(?:\(?-?\d+|-inf) (?:\(?-?\d+|\+inf)\]"
WORDS = r"\(@words:\([0-9a-z]+\) => \{ \$weight: \d+\.\d{4}; \}\)"
VECTOR = unit(np.ones(4))


def remainder(query: str) -> str:
    """What of a query is neither a condition as they are made here, nor what joins them."""
    for known in (WORDS, TAGS, TIMES):
        query = re.sub(known, "", query)
    return re.sub(r"=>\[KNN \d+ @vector \$vector(?: EF_RUNTIME \$EF)? AS vector_distance\]|=> \{ \$weight: 0; \}|[()| ]", "", query)


def asked(where: Where, text: str, scope: Scope) -> list[str]:
    """The queries of a question."""
    condition = where.condition(scope)
    assert condition is not None
    near = nearest(where, condition, VECTOR, 10, ef_runtime=100, timeout_ms=1000)
    codes = [(term_code(term), 1) for term in dict.fromkeys(terms(text))]
    fit = wordiest(where, condition, weighed(codes, texts=10, indexed=100), 10, timeout_ms=1000) if codes else near
    return [str(near[2]), str(fit[2])]


@pytest.mark.parametrize("text", [*SPECIAL, *ATTACKS], ids=ascii)
def test_no_character_and_no_attack_gets_into_a_query_or_out_of_its_tree(text: str) -> None:
    for value in (text, f"a{text}b"):
        scope = Scope(speaker=value, conversation=value, source=value, metadata={value: value, "topic": value})
        for query in asked(HERE, f"{value} river", scope):
            assert remainder(query) == ""
            assert "@tree:{17}" in query
        for query in asked(ALONE, f"{value} river", scope):
            assert remainder(query) == ""
            assert "@tree" not in query, "all in the index is of the tree"


@given(st.text(), st.text(min_size=1), st.dictionaries(st.text(), st.text(), max_size=3))
def test_nothing_at_all_gets_into_a_query(text: str, value: str, metadata: dict[str, str]) -> None:
    for query in asked(HERE, text, Scope(speaker=value, metadata=metadata)):
        assert remainder(query) == ""


@given(st.text(), st.text())
def test_codes_are_letters_and_digits_and_tell_values_apart(one: str, other: str) -> None:
    for code in (term_code, value_code):
        assert re.fullmatch(r"[0-9a-z]+", code(one))
        assert (code(one) == code(other)) == (one == other)
    assert (pair_code(one, other) == pair_code(other, one)) == (one == other)


def test_a_key_and_a_value_are_not_confused() -> None:
    assert pair_code("ab", "c") != pair_code("a", "bc")
    assert term_code("h" * 12) != term_code("hhhhhhhhhhh")


@pytest.mark.parametrize("text", [*SPECIAL[:-1], *ATTACKS], ids=ascii)
def test_what_is_written_of_a_node_is_of_its_tree_and_searched_as_codes(text: str) -> None:
    entry = IndexEntry(
        node=NodeId("n1"), kind=NodeKind.LEAF, mark=mark(1, 0), vector=VECTOR, text=text, sequence=f"c:{text}", conversation=text,
        speaker=text, source=text, at=datetime(2026, 5, 8, tzinfo=UTC), metadata={text: text},
    )  # fmt: skip
    fields = document(entry, "17", terms(f"{text} river")).fields
    written = dict(zip(fields[::2], fields[1::2], strict=True))
    assert written["tree"] == "17"
    for name in ("kind", "conversation", "source", "metadata"):
        assert re.fullmatch(r"[0-9a-z]+", str(written[name]))
    assert all(re.fullmatch(r"17[wh][0-9a-z]+", word) for word in str(written["words"]).split())


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        (Scope(), {"@tree:{17}"}),
        (Scope(kinds=frozenset({NodeKind.SUMMARY})), {"@tree:{17}", "@kind:{summary}"}),
        (Scope(speaker="Ana"), {"@tree:{17}", "@kind:{leaf}", f"@speaker:{{{value_code('Ana')}}}"}),
        (
            Scope(since=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), until=datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
            {"@tree:{17}", "@kind:{leaf}", "@at:[1000000 +inf]", "@at:[-inf (2000000]"},
        ),
    ],
)
def test_conditions(scope: Scope, parts: set[str]) -> None:
    condition = HERE.condition(scope)
    assert condition is not None
    assert set(re.findall(rf"{TAGS}|{TIMES}", condition)) == parts


@pytest.mark.parametrize(
    "scope", [Scope(kinds=frozenset({NodeKind.ROOT})), Scope(kinds=frozenset({NodeKind.SUMMARY}), speaker="Ana")]
)
def test_conditions_that_nothing_fulfils(scope: Scope) -> None:
    assert HERE.condition(scope) is None


def test_the_rarest_terms_are_looked_for_and_weigh_as_in_their_tree() -> None:
    counts = [(f"w{number}", number + 1) for number in range(TERMS_MAX + 20)]
    chosen = weighed(counts[::-1], texts=200, indexed=200)
    assert [code for code, _ in chosen] == [f"w{number}" for number in range(TERMS_MAX)]
    assert {weight for _, weight in chosen} == {1.0}
    assert all(weight < 1 for _, weight in weighed(counts, texts=200, indexed=20_000)), "the server thinks them rarer than they are"


def test_more_texts_are_asked_for_than_are_wanted() -> None:
    assert (overfetched(1), overfetched(10), overfetched(200)) == (201, 210, 600)
