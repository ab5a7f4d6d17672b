"""`banyan serve` as a stranger meets it: started, asked, ended; with keys and without."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.commands import Banyan
from tests.e2e.service import serving

pytestmark = pytest.mark.slow


def test_records_go_in_are_found_and_are_there_for_every_command(banyan: Banyan) -> None:
    with serving(banyan, BANYAN_AUTH="off", BANYAN_METRICS_PORT="0") as (client, process):
        turns = [{"id": f"t{number}", "speaker": "Ana", "text": f"the tunnel {number} opens"} for number in range(30)]
        assert client.post("/v1/trees/me/turns", json=turns).json()["events"][29]["status"] == "accepted"
        found = client.post("/v1/trees/me/search", json={"query": "tunnel 7", "k": 3, "filter": {"kind": "leaf"}}).json()
        assert found["hits"][0]["event_id"] == "t7"
        by_command = banyan("search", "me", "tunnel 7", "-k", "3", "--filter", "kind=leaf", "--json")
        assert [hit["id"] for hit in by_command.value["hits"]] == [hit["id"] for hit in found["hits"]]
        assert client.get("/docs").status_code == 200
        assert client.get("/readyz").json() == {"status": "ready", "missing": {}}
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (0, b"")
    events = [json.loads(line)["event"] for line in err.decode().splitlines()]
    assert [event for event in events if event in ("metrics", "draining", "stopped")] == ["metrics", "draining", "stopped"]
    assert banyan("check", "me").code == 0


def test_what_is_in_hand_when_it_is_ended_is_answered(banyan: Banyan) -> None:
    with serving(banyan, BANYAN_AUTH="off") as (client, process):
        client.post("/v1/trees/me/turns", json={"id": "t", "text": "hello"})

        def ends() -> Iterator[bytes]:
            for number in range(200):
                yield json.dumps({"id": f"e{number}", "text": f"line {number}"}).encode() + b"\n"
                if number == 100:
                    process.send_signal(signal.SIGTERM)

        answer = client.post("/v1/trees/me/records", content=ends(), headers={"content-type": "application/x-ndjson"})
        assert json.loads(answer.content.splitlines()[-1])["accepted"] == 200
        assert process.wait(180) == 0


def test_it_ends_in_order_however_early_the_signal_comes(banyan: Banyan) -> None:
    process = banyan.start("serve", "--port", "0", "--json", BANYAN_AUTH="off")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert (bool(line), process.wait(180)) == (True, 0)
    finally:
        process.kill()
        process.communicate()


def test_a_stream_of_commits_does_not_keep_it_from_ending(banyan: Banyan) -> None:
    with serving(banyan, BANYAN_AUTH="off") as (client, process):
        client.post("/v1/trees/me/turns", json={"id": "t", "text": "hello"})
        with client.stream("GET", "/v1/trees/me/commits/stream?after=0") as answer:
            lines = answer.iter_lines()
            assert any(line == "id: 1" for line in lines)
            process.send_signal(signal.SIGTERM)
            assert any(line == "event: end" for line in lines)
        assert process.wait(180) == 0


def test_keys_from_the_first_to_the_last(banyan: Banyan) -> None:
    made = banyan("keys", "create", "app", "--prefix", "user-", "--expires", "1h", "--json").value
    shown = {"Authorization": f"Bearer {made['key']}"}
    with serving(banyan) as (client, _):
        assert client.get("/v1/trees").status_code == 401
        assert client.post("/v1/trees/user-1/turns", json={"id": "t", "text": "hi"}, headers=shown).status_code == 202
        assert client.post("/v1/trees/feed/turns", json={"id": "t", "text": "hi"}, headers=shown).status_code == 404
    listed = banyan("keys", "list", "--json")
    assert listed.value["valid"] is True
    assert made["key"] not in listed.out + (banyan.folder / "banyan-keys.json").read_text()
    assert "user-*" in banyan("keys", "list").out
    assert banyan("keys", "revoke", made["id"]).code == 0
    assert banyan("keys", "list", "--json").value["valid"] is False
    assert banyan("keys", "revoke", "no-such-key").code == 1


def test_what_cannot_be_is_refused_at_start_with_what_to_do(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = banyan("serve", "--port", str(other.getsockname()[1]))
    assert taken.code == 2
    assert "--port" in taken.err
    monkeypatch.setenv("BANYAN_AUTH", "off")
    open_to_all = banyan("serve", "--host", "0.0.0.0")
    assert (open_to_all.code, open_to_all.out) == (2, "")
    assert "banyan keys create" in open_to_all.err
