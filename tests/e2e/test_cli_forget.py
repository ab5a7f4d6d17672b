"""`banyan forget`: what was said is in no answer, no drawing, no export and no file afterwards, and does not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.structures import registry
from tests.e2e.commands import Banyan, turn
from tests.e2e.service import serving

WORD = "zanzibar"
SAID = f"The {WORD} papers lie behind the clock in the harbour office"
SUBJECTS = ("harbour tunnel budget", "winter garden roses", "violin lesson recital")


def filled(banyan: Banyan, structure: str = "memtree") -> str:
    """A tree with the word in two turns and in summaries above them."""
    turns = [
        turn(number, f"{SUBJECTS[number % 3]}, part {number}", conversation=f"c{number % 4}", at=f"2026-05-{number + 1:02}")
        for number in range(24)
    ]
    secret = [
        turn(100, SAID, conversation="private", at="2026-06-01"),
        turn(101, f"{SAID}, and so does the key", conversation="private", at="2026-06-02"),
    ]
    file = banyan.write("chat.jsonl", [*turns[:12], *secret, *turns[12:]])
    assert banyan("ingest", file, "--structure", structure).code == 0
    assert found(banyan), "the test looks where the word would be"
    assert WORD in banyan("tree", "t", "--depth", "9", "--children", "99").out
    return file


def found(banyan: Banyan) -> list[str]:
    """The files of the store that have the word."""
    folder = banyan.folder / "memory"
    return [str(path) for path in folder.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes().lower()]


def assert_gone(banyan: Banyan, file: str, structure: str = "memtree") -> None:
    """No trace of the word, the tree whole, and no way back by the same file."""
    for strategy in ("hybrid", "bm25", "traversal"):
        hits = banyan("search", "t", f"{WORD} papers behind the clock", "-k", "50", "--strategy", strategy, "--json").value["hits"]
        assert not any(WORD in str(hit).lower() for hit in hits), strategy
    assert WORD not in banyan("context", "t", WORD, "--tokens", "500").out
    assert WORD not in banyan("tree", "t", "--depth", "9", "--children", "99", "--json").out
    exported = banyan("export", "t")
    assert exported.code == 0
    assert WORD not in exported.out.lower()
    assert found(banyan) == []
    checked = banyan("check", "t", "--json")
    assert (checked.code, checked.value["violations"]) == (0, [])
    assert (checked.value["replayed"], checked.value["unverifiable"]) == (0, 26)
    assert "26 placements cannot be compared any more, because something was forgotten after them" in " ".join(
        banyan("check", "t").out.split()
    )
    again = banyan("ingest", file, "--structure", structure, "--json")
    assert (again.code, again.value["accepted"], again.value["forgotten"]) == (0, 0, 2)
    assert found(banyan) == []


@pytest.mark.parametrize("structure", registry.NAMES)
def test_a_turn_is_gone_from_everything(banyan: Banyan, structure: str) -> None:
    file = filled(banyan, structure)
    gone = banyan("forget", "t", "--event", "id-100", "--event", "id-101", "--json")
    assert gone.code == 0, gone.err
    assert (
        gone.value.items()
        >= {
            "tree": "t",
            "status": "forgotten",
            "forgotten": 2,
            "unknown": 0,
            "already": 0,
            "leaves": 2,
            "fresh": True,
            "dead_letters": None,
        }.items()
    )
    assert banyan("stats", "t", "--json").value["pending"] == 0
    assert_gone(banyan, file, structure)
    assert banyan("forget", "t", "--event", "id-100", "--json").value.items() >= {"forgotten": 0, "already": 1}.items()


def test_a_conversation_goes_in_words_for_people_and_an_import_does_not_bring_it_back(banyan: Banyan) -> None:
    file = filled(banyan)
    gone = banyan("forget", "t", "--conversation", "private")
    assert gone.code == 0, gone.err
    assert gone.out.startswith("2 events forgotten; gone: 2 leaves")
    assert_gone(banyan, file)
    again = banyan("forget", "t", "--conversation", "private")
    assert (again.code, "there was nothing: conversation 'private' of t" in again.err) == (0, True)
    assert banyan("export", "t", "--output", "t.jsonl").code == 0
    other = "sqlite:///other"
    assert banyan("import", "t.jsonl", "--store", other).code == 0
    taken = banyan("ingest", file, "--store", other, "--json")
    assert (taken.code, taken.value["accepted"], taken.value["forgotten"]) == (0, 0, 2)


def test_what_was_said_before_a_time_goes_and_the_summaries_can_be_left_to_later(banyan: Banyan) -> None:
    file = filled(banyan)
    gone = banyan("forget", "t", "--before", "2026-05-21", "--no-wait", "--json")
    assert gone.code == 0, gone.err
    assert (gone.value["forgotten"], gone.value["fresh"]) == (20, False)
    left = banyan("search", "t", "part", "-k", "50", "--filter", "kind=leaf", "--json").value["hits"]
    assert {hit["event_id"] for hit in left} == {f"id-{number}" for number in (20, 21, 22, 23, 100, 101)}
    assert banyan("ingest", file, "--json").value["forgotten"] == 20
    assert banyan("stats", "t", "--json").value["pending"] == 0
    assert banyan("check", "t").code == 0


def test_an_event_that_has_not_come_is_not_taken_when_it_comes(banyan: Banyan) -> None:
    filled(banyan)
    gone = banyan("forget", "t", "--event", "later")
    assert (gone.code, "1 event had not come, and will not be taken" in gone.err) == (0, True)
    below_others = banyan("forget", "t", "--event", "id-3")
    assert below_others.out.startswith("1 event forgotten; gone: 1 leaf")
    assert "to be made again of what is left: " in below_others.out
    assert below_others.err == "its summaries are up to date\n", "no number of summaries that is another than before"
    later = banyan.write("later.jsonl", [{"tree": "t", "id": "later", "text": "a secret"}])
    taken = banyan("ingest", later)
    assert (taken.code, "1 forgotten, not taken" in taken.out) == (0, True)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ((), 2, "exactly one says what is to be forgotten; none is given"),
        (("--event", "a", "--before", "2026-01-01"), 2, "--event and --before are given"),
        (("--before", "soon"), 2, "before: 'soon' is not an ISO 8601 time"),
        (("--event", ""), 2, "event: is empty"),
        (("--event", "x" * 300), 2, "event: has 300 characters"),
        (("--event", "a", "--store", "sqlite:///nowhere"), 1, "there is no store"),
    ],
)
def test_what_cannot_be_forgotten_is_said(banyan: Banyan, given: tuple[str, ...], code: int, said: str) -> None:
    assert banyan("ingest", banyan.write("one.jsonl", [turn(1)])).code == 0
    refused = banyan("forget", "t", *given)
    assert (refused.code, said in refused.err) == (code, True), refused
    nobody = banyan("forget", "nobody", "--event", "id-1")
    assert (nobody.code, "there is t" in nobody.err) == (1, True)
    assert not Path("nowhere").exists()
    assert len(banyan("search", "t", "turn", "--json").value["hits"]) == 1


def test_on_a_terminal_it_asks(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert banyan("ingest", banyan.write("one.jsonl", [turn(1)])).code == 0
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    def confirm(text: str, **_: object) -> None:
        asked.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("click.confirm", confirm)
    assert banyan("forget", "t", "--event", "id-1").code == 130
    assert asked == ["Forget 'id-1' of t? It cannot be had back."]
    assert len(banyan("search", "t", "turn", "--json").value["hits"]) == 1
    assert banyan("forget", "t", "--event", "id-1", "--yes").code == 0
    assert banyan("search", "t", "turn", "--json").value["hits"] == []


def test_behind_a_service_it_waits_for_the_summaries_too(banyan: Banyan) -> None:
    file = filled(banyan)
    with serving(banyan, BANYAN_AUTH="off") as (client, process):
        url = ("--url", str(client.base_url).rstrip("/"))
        gone = banyan("forget", "t", "--conversation", "private", *url, "--json")
        assert gone.code == 0, gone.err
        assert gone.value.items() >= {"status": "forgotten", "forgotten": 2, "leaves": 2, "fresh": True}.items()
        assert client.get("/v1/trees/t").json()["pending"] == 0
        assert banyan("ingest", file, *url, "--json").value["forgotten"] == 2
        nobody = banyan("forget", "nobody", "--event", "a", *url)
        assert (nobody.code, "there is t" in nobody.err) == (1, True)
        process.terminate()
        assert process.wait(60) == 0
    assert_gone(banyan, file)
