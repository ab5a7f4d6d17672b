"""`BANYAN_NAVIGATOR`: a model walks through a HAT, is told what cannot be, and is done without where it is away."""

from __future__ import annotations

import json

import pytest

from tests.e2e.commands import Banyan, turn
from tests.fakes.openai_server import FakeOpenAIServer

ASKED = ("search", "t", "where is the violin?", "--strategy", "agent", "-k", "3", "--explain", "--json")


@pytest.fixture
def grown(banyan: Banyan) -> Banyan:
    """More leaves than are in sight from the root."""
    turns = [turn(number, f"part {number} of the {('harbour', 'violin', 'garden')[number % 3]} story") for number in range(90)]
    assert banyan("ingest", banyan.write("t.jsonl", turns), "--structure", "hat").code == 0
    return banyan


def move(action: str, reason: str) -> str:
    return json.dumps({"action": action, "reason": reason})


def test_a_model_walks_and_is_told_what_cannot_be(grown: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAIServer() as server:
        monkeypatch.setenv("BANYAN_NAVIGATOR", "openai:m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for reply in (move("U", "up I go"), move("D", "details"), move("L", "the past"), move("O", "that suffices")):
            server.fail_next("content", message=reply)
        found = grown(*ASKED).value
        prompts = [request.body["messages"][-1]["content"] for request in server.requests]
    assert len(prompts) == 4
    assert all("User Message: where is the violin?" in prompt for prompt in prompts)
    assert "Traversal History: none" in prompts[0]
    assert "Errors: U is not possible: this is the root" in prompts[1]
    assert "(layer 0, node 0) U refused" in prompts[2]
    assert "Errors: none" in prompts[2]
    steps = [line for line in found["trace"] if "→" in line]
    assert [line.partition("→ ")[2].split()[0] for line in steps] == ["up", "down", "left", "sufficient"]
    assert "✘ U is not possible" in steps[0]
    assert "that suffices" in steps[3]
    assert found["hits"][0]["parts"]["sufficient"] == 1.0


def test_without_the_model_similarity_goes_on(grown: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAIServer() as server:
        monkeypatch.setenv("BANYAN_NAVIGATOR", "openai:m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        server.fail_next("status", times=50, status=400, message="never")
        found = grown(*ASKED)
    assert found.code == 0
    assert len(found.value["hits"]) == 3
    assert any("by similarity" in line for line in found.value["trace"])
