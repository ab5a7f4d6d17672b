"""The commands that a running service answers: the same output as on its store, and a clear word where it cannot."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import httpx
import pytest

from tests.e2e.commands import Banyan, turn
from tests.e2e.service import serving

pytestmark = pytest.mark.slow


def steady(value: Any) -> Any:
    """Without what differs from call to call: the age of what waits, and bytes that a reader adds."""
    return {name: each for name, each in value.items() if name not in ("bytes", "oldest_pending_at")}


def settle(client: httpx.Client, *trees: str) -> None:
    """Wait until the service has made all summaries: it commits them meanwhile."""
    limit = time.monotonic() + 120
    while any(client.get(f"/v1/trees/{tree}").json()["pending"] for tree in trees):
        assert time.monotonic() < limit, "the summaries stay pending"
        time.sleep(0.05)


def test_what_goes_in_by_a_service_reads_the_same_by_it_and_from_its_store(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    speakers, colours = ("Ana", "Ben"), ("red", "blue", "red")
    turns = [
        turn(number, speaker=speakers[number % 2], at=f"2026-05-{number + 1:02}T10:00:00Z", colour=colours[number % 3])
        for number in range(20)
    ]
    document = {
        "tree": "feed",
        "id": "d",
        "title": "A tunnel opens",
        "text": "The harbour tunnel opens in June.",
        "type": "document",
    }
    file = banyan.write("mixed.jsonl", [*turns, document, "no json", {"tree": "t", "id": "id-1", "text": "another text"}])
    with serving(banyan, BANYAN_AUTH="off") as (client, process):
        url = str(client.base_url).rstrip("/")
        by_url = ("--url", url)
        taken = banyan("ingest", file, *by_url, "--json")
        assert taken.code == 3
        assert {name: taken.value[name] for name in ("accepted", "duplicates", "rejected", "conflicts")} == {
            "accepted": 21,
            "duplicates": 0,
            "rejected": 1,
            "conflicts": 1,
        }
        assert taken.value["trees"].keys() == {"t", "feed"}
        assert "mixed.jsonl:22: " in taken.err
        assert "mixed.jsonl:23: id: " in taken.err
        assert banyan("ingest", file, *by_url, "--json").value["duplicates"] == 21
        settle(client, "t", "feed")

        filters = ("--filter", "speaker=Ana", "--filter", "colour=red", "--since", "2026-05-03", "--until", "2026-05-10")
        for command in (
            ("search", "t", "harbour 7", "-k", "3", *filters, "--explain"),
            ("search", "t", "tunnel", "--group", "conversation", "--strategy", "bm25"),
            ("search", "feed", "tunnel"),
            ("context", "t", "harbour tunnel", "--tokens", "80"),
            ("tree", "t", "--depth", "2", "--children", "3"),
            ("tree", "t", "--depth", "6", "--children", "100"),
            ("profile", "t"),
            ("profile", "t", "Ana", "--facts", "3"),
            ("profile", "t", "Nobody"),
            ("tree",),
        ):
            here, there = banyan(*command, "--json"), banyan(*command, *by_url, "--json")
            assert (there.code, there.out) == (here.code, here.out), command
            assert banyan(*command, *by_url).out == banyan(*command).out, command
        assert steady(banyan("stats", "t", *by_url, "--json").value) == steady(banyan("stats", "t", "--json").value)

        monkeypatch.setenv("BANYAN_URL", url)
        missing = banyan("search", "nobody", "x")
        assert (missing.code, missing.out) == (1, "")
        assert f"at {url}; there is feed, t" in missing.err
        assert banyan("search", "t", "x", "--strategy", "no-such").code == 2
        assert banyan("tree", "t", "--node", "nothing").code == 1
        for cannot in (("check", "t"), ("export", "t"), ("import", file)):
            refused = banyan(*cannot)
            assert (refused.code, refused.out) == (2, ""), refused
            assert f"`banyan {cannot[0]}` reads the store itself" in refused.err
            assert "BANYAN_URL" in refused.err
        assert banyan("check", "t", "--store", "sqlite:///memory").code == 0, "what a command is told beats the environment"
        assert banyan("search", "t", "x", "--store", "sqlite:///memory", "--url", url).code == 2
        decided = banyan("ingest", file, "--structure", "hat")
        assert (decided.code, "--structure" in decided.err) == (2, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    away = banyan("search", "t", "x")
    assert (away.code, away.out) == (4, "")
    assert url in away.err
    assert "cannot be reached" in away.err


def test_the_key_comes_from_the_environment_or_a_file_and_is_never_shown(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    key = banyan("keys", "create", "app", "--prefix", "user-", "--json").value["key"]
    writer = banyan("keys", "create", "writer", "--prefix", "user-", "--right", "write", "--json").value["key"]
    file = banyan.write("chat.jsonl", [{"id": "t1", "text": "we took the flat in Porto"}])
    with serving(banyan) as (client, _):
        monkeypatch.setenv("BANYAN_URL", str(client.base_url))
        outside = banyan("ingest", file, "--tree", "user-1")
        assert outside.code == 2
        assert "BANYAN_KEY" in outside.err
        monkeypatch.setenv("BANYAN_KEY", key)
        assert banyan("ingest", file, "--tree", "user-1", "--json").value["accepted"] == 1
        assert banyan("search", "feed", "x").code == 1, "a tree that the key does not reach is none"
        monkeypatch.setenv("BANYAN_KEY", writer)
        nowhere = banyan("feedback", "user-9", "approval", "--event", "t1")
        assert (nowhere.code, "no tree" in nowhere.err) == (1, True), "a key that may not list trees is told what is missing"
        monkeypatch.setenv("BANYAN_KEY", key)
        assert key not in banyan("config").out + banyan("config", "--json").out
        monkeypatch.delenv("BANYAN_KEY")
        banyan.write("key.txt", f"{key}\n".encode())
        monkeypatch.setenv("BANYAN_KEY_FILE", "key.txt")
        hits = banyan("search", "user-1", "Porto", "--json").value["hits"]
        assert [hit["event_id"] for hit in hits if hit["kind"] == "leaf"] == ["t1"]
        for content in (b"", b"\xff", b"x" * 5_000):
            banyan.write("key.txt", content)
            refused = banyan("stats", "user-1")
            assert (refused.code, "key.txt" in refused.err) == (2, True)


@pytest.mark.parametrize("url", ["memory.example.org", "ftp://x", "http://ana:secret@x", "http://x:port"])
def test_an_address_that_cannot_be_is_refused_without_what_it_may_carry(banyan: Banyan, url: str) -> None:
    refused = banyan("tree", "--url", url)
    assert (refused.code, refused.out) == (2, "")
    assert "BANYAN_URL" in refused.err
    assert "secret" not in refused.err
    assert "secret" not in json.dumps(banyan("config", "--json").value)
