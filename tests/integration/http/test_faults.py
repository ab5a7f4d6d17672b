"""What may go wrong around a service that runs: its index, its clock, clients that do not listen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory import local
from memory.adapters.embedded.clock import SystemClock
from memory.model import TreeId
from streams.query.keys import KeyFile, Right
from tests.integration.http.served import Served, exchange, listening, problem, request, serving

LONG = [{"id": f"t{number}", "text": f"tunnel {number} " + "x" * 30_000} for number in range(100)]


class JumpingClock(SystemClock):
    """The machine's, set to another time now and then."""

    set_by = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.set_by


async def test_an_index_that_is_dropped_under_the_service_is_made_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.put("me", "the tunnel opens", "a cello")
        assert await served.hits("me", "tunnel", k=1) == ["e0"]
        await served.memory.parts.index.drop(TreeId("me"))
        assert await served.hits("me", "tunnel", k=1) == ["e0"]
        for file in (tmp_path / "memory").glob("index.db*"):
            file.unlink()
        await served.post("me/turns", {"id": "late", "text": "the marathon begins"})
        assert await served.hits("me", "marathon", k=1) == ["late"]
    async with serving(tmp_path) as served:
        assert await served.hits("me", "marathon", k=1) == ["late"]


async def test_a_wall_clock_that_jumps_changes_no_order_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SystemClock", JumpingClock)
    now = datetime.now(UTC)
    file = KeyFile(tmp_path / "keys.json")
    _, token = file.create("test", rights=[Right.READ, Right.WRITE], prefixes=[""], now=now, expires_at=now + timedelta(hours=1))
    shown = {"authorization": f"Bearer {token}"}
    async with serving(tmp_path, auth="keys", rate=200) as served:
        served.app.state.guard.now = JumpingClock().now
        for number, days in enumerate((0, -400, 1, -1)):
            monkeypatch.setattr(JumpingClock, "set_by", timedelta(days=min(0, days)))
            asked = {"query": f"tunnel {number}", "wait_for": f"t{number}", "filter": {"kind": "leaf"}}
            waiting = asyncio.create_task(served.post("me/search", asked, **shown))
            answer = await served.post("me/turns", {"id": f"t{number}", "text": f"the tunnel {number} opens"}, **shown)
            assert answer.status_code == 202
            assert len((await waiting).json()["hits"]) == number + 1
            seq = answer.json()["seq"]
            assert (await served.get(f"/me/as-of/{seq}", **shown)).json()["leaves"] == number + 1
        commits = (await served.get("/me/commits", **shown)).json()["commits"]
        assert [commit["seq"] for commit in commits] == list(range(1, len(commits) + 1))
        assert len({commit["at"][:10] for commit in commits}) > 1
        monkeypatch.setattr(JumpingClock, "set_by", timedelta(hours=2))
        assert problem(await served.get("", **shown)) == "unauthorized", "the key has expired"
        monkeypatch.setattr(JumpingClock, "set_by", timedelta(0))
        assert (await served.get("", **shown)).status_code == 200
        assert await served.memory.fresh("me", timeout=timedelta(seconds=60))


@pytest.mark.real_time
async def test_a_client_that_reads_nothing_is_given_up(served: Served) -> None:
    await served.post("me/turns", LONG)
    large = request("POST", "/v1/trees/me/context", {"query": "tunnel", "tokens": 1_000_000}, close=False)
    async with listening(served, connections=1, stall=0.3) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_024)
        writer.write(large)
        answers = []
        for _ in range(300):
            answers.append(await exchange(port, request("GET", "/healthz")))
            if answers[-1]:
                break
            await asyncio.sleep(0.05)
        assert answers[0] == b"", "it has the only connection that there may be"
        assert answers[-1].startswith(b"HTTP/1.1 200"), "until it is given up"
        writer.close()


@pytest.mark.real_time
async def test_a_client_that_reads_slowly_gets_all(served: Served) -> None:
    await served.post("me/turns", LONG)
    large = request("POST", "/v1/trees/me/context", {"query": "tunnel", "tokens": 1_000_000})
    async with listening(served, stall=0.4) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
        writer.write(large)
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")]
        got = 0
        while got < length:
            read = await reader.read(1_000_000)
            assert read, "given up"
            got += len(read)
            await asyncio.sleep(0.01)
        writer.close()
