"""Keywords by a model, and contexts filtered by one, on a memory that is asked from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.commands import Banyan
from tests.fakes.openai_server import FakeOpenAIServer

TURNS = [
    {"tree": "t", "id": f"e{number}", "conversation": "c", "speaker": "Ana", "text": text}
    for number, text in enumerate(("I moved to Porto in May.", "The harbour is near the house.", "Nothing else is new."))
]


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as running:
        yield running


@pytest.fixture
def told(banyan: Banyan, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Banyan:
    """The turns are in a file, and the server is known."""
    (banyan.folder / "turns.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in TURNS))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    return banyan


def test_keywords_are_asked_of_the_model_that_is_set(
    told: Banyan, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANYAN_KEYWORDS", "openai:m")
    server.fail_next("content", message="zanzibar; harbour", times=5)
    assert told("ingest", "turns.jsonl", "--structure", "memgas").code == 0
    asked = [request.body["messages"][-1]["content"] for request in server.requests]
    assert asked
    assert all("extract the most relevant keywords" in prompt for prompt in asked), "and the summaries of nobody"
    found = told("search", "t", "zanzibar", "--strategy", "bm25", "--filter", "kind=summary", "--json").value["hits"]
    assert [hit["text"] for hit in found] == ["zanzibar, harbour"]


def test_keywords_are_found_by_the_library_that_is_set(
    told: Banyan, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANYAN_KEYWORDS", "yake:en")
    assert told("ingest", "turns.jsonl", "--structure", "memgas").code == 0
    found = told("search", "t", "Porto", "--strategy", "bm25", "--filter", "kind=summary", "--json").value["hits"]
    assert any(", " in hit["text"] and "Porto" in hit["text"].split(", ") for hit in found), [hit["text"] for hit in found]
    assert server.requests == []
    monkeypatch.setenv("BANYAN_KEYWORDS", "yake:klingon")
    refused = told("ingest", "turns.jsonl", "--structure", "memgas")
    assert (refused.code, "yake:de" in refused.err) == (2, True)


def test_a_context_is_filtered_by_the_model_that_is_set_and_stays_whole_without_it(
    told: Banyan, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("ingest", "turns.jsonl", "--structure", "memgas").code == 0
    whole = told("context", "t", "Where does Ana live?", "--tokens", "500").out
    monkeypatch.setenv("BANYAN_CONTEXT_FILTER", "openai:m")
    server.fail_next("content", message="Ana: I moved to Porto in May.")
    ran = told("context", "t", "Where does Ana live?", "--tokens", "500")
    assert ran.out.strip() == "Ana: I moved to Porto in May."
    assert "Question: Where does Ana live?" in server.requests[-1].body["messages"][-1]["content"]
    asked = len(server.requests)
    assert told("context", "t", "Where does Ana live?", "--tokens", "500", "--no-context-filter").out == whole
    assert len(server.requests) == asked, "the question does without"
    server.fail_next("status", status=400, message="never")
    ran = told("context", "t", "Where does Ana live?", "--tokens", "500")
    assert ran.out == whole
    assert "nothing was left out of the context" in ran.err
    monkeypatch.delenv("BANYAN_CONTEXT_FILTER")
    ran = told("context", "t", "Where does Ana live?", "--tokens", "500", "--context-filter")
    assert ran.code == 2
    assert "BANYAN_CONTEXT_FILTER" in ran.err
