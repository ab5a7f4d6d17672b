"""`banyan feedback`: counts once, and says what it could not do."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.commands import Banyan

TURNS = [
    {"id": "t1", "text": "I moved to Porto.", "at": "2026-05-08"},
    {"id": "t2", "text": "I play the violin.", "at": "2026-05-09"},
]


def put(banyan: Banyan, structure: str) -> None:
    Path("turns.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in TURNS), encoding="utf-8")
    assert banyan("ingest", "turns.jsonl", "--tree", "me", "--structure", structure).code == 0


def test_it_counts_once_and_the_rest_is_said(banyan: Banyan) -> None:
    put(banyan, "hmem")
    given = ("feedback", "me", "approval", "--event", "t1", "--id", "f1", "--at", "2026-05-10")
    first = banyan(*given, "--json").value
    assert first == {"id": "f1", "status": "accepted", "seq": first["seq"], "reason": None}
    again = banyan(*given)
    assert (again.code, again.err) == (0, f"f1: duplicate (commit {first['seq']}): was applied before\n")
    other = banyan("feedback", "me", "rebuttal", "--event", "t1", "--id", "f1")
    assert (other.code, "another content" in other.err) == (3, True)
    gone = banyan("feedback", "me", "rebuttal", "--event", "t9", "--id", "f2")
    assert (gone.code, gone.err) == (1, "f2: rejected: event: 't9' is not in the tree\n")
    fresh = [banyan("feedback", "me", "approval", "--event", "t2", "--json").value for _ in range(2)]
    assert [each["status"] for each in fresh] == ["accepted", "accepted"], "without an id each is another"
    assert banyan("check", "me").code == 0


def test_what_it_does_to_a_score_is_shown(banyan: Banyan) -> None:
    put(banyan, "hmem")
    asked = ("search", "me", "where did I move", "--strategy", "descent", "--explain")
    before = {hit["event_id"]: hit for hit in banyan(*asked, "--json").value["hits"]}
    assert banyan("feedback", "me", "rebuttal", "--event", "t1").code == 0
    after = {hit["event_id"]: hit for hit in banyan(*asked, "--json").value["hits"]}
    assert after["t1"]["score"] < before["t1"]["score"]
    assert after["t1"]["parts"]["weight"] < before["t1"]["parts"]["weight"] <= 0
    assert after["t2"] == before["t2"]
    shown = banyan(*asked)
    assert "weight" in shown.out
    assert "weights as of 2026-05-09 00:00" in shown.out


def test_what_takes_none_says_so(banyan: Banyan) -> None:
    nowhere = banyan("feedback", "me", "approval", "--event", "t1")
    assert (nowhere.code, "there is no store" in nowhere.err) == (1, True)
    put(banyan, "memtree")
    refused = banyan("feedback", "me", "approval", "--event", "t1")
    assert (refused.code, "is a memtree tree, which keeps no weights" in refused.err) == (2, True)
    assert banyan("feedback", "nobody", "approval", "--event", "t1").code == 1
    wrong = banyan("feedback", "me", "approval", "--event", "t1", "--at", "soon")
    assert (wrong.code, "at: 'soon' is not an ISO 8601 time" in wrong.err) == (1, True)
    assert banyan("feedback", "me", "perhaps", "--event", "t1").code == 2


def test_who_somebody_is(banyan: Banyan) -> None:
    said = [
        {"id": f"t{place}", "speaker": "Ana", "text": text} for place, text in enumerate(("I live in Porto with my dog.", "Yes!"))
    ]
    Path("turns.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in said), encoding="utf-8")
    assert banyan("ingest", "turns.jsonl", "--tree", "me").code == 0
    assert banyan("profile", "me", "--json").value == {"speakers": [{"speaker": "Ana", "turns": 2, "last_at": None}]}
    assert banyan("profile", "me").out == "Ana  2 turns\n"
    found = banyan("profile", "me", "Ana", "--json").value
    assert [(fact["event_id"], fact["text"], fact["weight"]) for fact in found["facts"]] == [
        ("t0", "I live in Porto with my dog.", 1.0)
    ]
    shown = banyan("profile", "me", "Ana").out
    assert "I live in Porto with my dog.  [t0]" in shown
    nobody = banyan("profile", "me", "Carl")
    assert (nobody.code, "nobody of the name 'Carl'" in nobody.err) == (1, True)
