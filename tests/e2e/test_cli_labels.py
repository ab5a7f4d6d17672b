"""`BANYAN_LABELS`: a model says where episodes of an H-MEM belong, and is done without where it says nothing usable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.commands import Banyan
from tests.fakes.openai_server import FakeOpenAIServer

TURNS = [{"id": "t1", "text": "I had my knee operated on."}, {"id": "t2", "text": "My knee is fine again."}]
PLACED = {"domain": "Health", "category": "Injuries", "trace": "Knee surgery"}


def put(banyan: Banyan, *turns: dict[str, str]) -> None:
    Path("turns.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
    ran = banyan("ingest", "turns.jsonl", "--tree", "me", "--structure", "hmem")
    assert ran.code == 0, ran.err


def labels(banyan: Banyan) -> list[dict[str, str]]:
    assert banyan("export", "me", "-o", "me.jsonl").code == 0
    lines = [json.loads(line) for line in Path("me.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    steps = [step for line in lines for step in line["steps"]]
    return [step.get("attributes", {}) for step in steps if step["op"] == "create" and step["kind"] == "leaf"]


def test_a_model_places_and_what_it_said_is_kept(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAIServer() as server:
        for name, value in {"BANYAN_LABELS": "openai:m", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}.items():
            monkeypatch.setenv(name, value)
        server.fail_next("content", message=json.dumps({"placements": [PLACED]}))
        put(banyan, TURNS[0])
        put(banyan, TURNS[1])  # the server's own answers are no labels
        assert len(server.requests) == 1 + 3
    assert labels(banyan) == [PLACED, {}]
    assert banyan("check", "me").code == 0


def test_a_name_that_means_nothing_is_refused(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANYAN_LABELS", "openai")
    Path("turns.jsonl").write_text(json.dumps(TURNS[0]), encoding="utf-8")
    refused = banyan("ingest", "turns.jsonl", "--tree", "me")
    assert (refused.code, "write openai:MODEL (BANYAN_LABELS)" in refused.err) == (2, True)
