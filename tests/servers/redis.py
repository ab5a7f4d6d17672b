"""
Real Redis servers for tests: single, with a replica, or a cluster of three; on free loopback ports, in temporary folders.

`BANYAN_TEST_REDIS` names one to use instead where a single server will do. Nothing is started by importing this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.servers import ServerMissingError, redis_program
from tests.servers.ports import free_ports

START_SECONDS = 120.0
running: set[int] = set()
"""Numbers of the processes that were started here."""


def free_port() -> int:
    """A port nobody listens on, nor will."""
    return free_ports(1)[0]


@dataclass
class RedisServer:
    """One server process; it can be killed and started again on the same data."""

    folder: Path
    options: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    config: Path | None = None
    """Of a sentinel, which writes to it."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        # A sentinel knows no data: `--save` would be refused.
        words = [str(self.config), *place, "--sentinel"] if self.config else [*place, "--save", ""]
        words = [redis_program(), *words, *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        running.add(self.process.pid)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                if self.say("PING") == b"+PONG":
                    return self
            time.sleep(0.02)
        self.stop()
        tail = (self.folder / "log").read_text("utf-8", "replace")[-600:]
        raise ServerMissingError(f"Redis did not start on port {self.port}: {tail}")

    def say(self, *words: str) -> bytes:
        """The first line of the answer to one command, without a client."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as line:
            line.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words))
            file = line.makefile("rb")
            first = file.readline().rstrip(b"\r\n")
            return file.read(int(first[1:])) if first.startswith(b"$") and first != b"$-1" else first

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash does: nothing is saved."""
        self.send_signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            running.discard(self.process.pid)


@contextlib.contextmanager
def single(folder: Path, *, appendfsync: str = "everysec") -> Iterator[RedisServer]:
    """A server with an append-only file."""
    server = RedisServer(folder, ("--appendonly", "yes", "--appendfsync", appendfsync))
    try:
        yield server.start()
    finally:
        server.stop()


@contextlib.contextmanager
def with_replica(folder: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and its replica."""
    master = RedisServer(folder / "master", ("--repl-diskless-sync-delay", "0"))
    replica: RedisServer | None = None
    try:
        master.start()
        replica = RedisServer(folder / "replica", ("--replicaof", f"127.0.0.1 {master.port}"))
        replica.start()
        _until(lambda: b"master_link_status:up" in replica.say("INFO", "replication"), "the replica follows its master")
        yield master, replica
    finally:
        master.stop()
        if replica is not None:
            replica.stop()


@contextlib.contextmanager
def with_sentinels(folder: Path, *, sentinels: int = 3) -> Iterator[tuple[RedisServer, RedisServer, list[RedisServer]]]:
    """A master called `mymaster`, its replica, and sentinels that fail over within seconds."""
    watching: list[RedisServer] = []
    with with_replica(folder) as (master, replica):
        try:
            for number in range(sentinels):
                place = folder / f"sentinel-{number}"
                place.mkdir(parents=True)
                config = place / "sentinel.conf"
                config.write_text(
                    f"sentinel monitor mymaster 127.0.0.1 {master.port} {sentinels // 2 + 1}\n"
                    "sentinel down-after-milliseconds mymaster 1000\n"
                    "sentinel failover-timeout mymaster 5000\n"
                )
                watching.append(RedisServer(place, config=config).start())
            _until(lambda: all(_knows(each, sentinels) for each in watching), "the sentinels know each other and the replica")
            yield master, replica, watching
        finally:
            for each in watching:
                each.stop()


def _knows(sentinel: RedisServer, sentinels: int) -> bool:
    said = sentinel.say("INFO", "sentinel")
    return b"status=ok" in said and f"slaves=1,sentinels={sentinels}".encode() in said


@contextlib.contextmanager
def cluster(folder: Path, *, nodes: int = 3) -> Iterator[list[RedisServer]]:
    """A cluster of masters that share the slots."""
    servers: list[RedisServer] = []
    try:
        for number in range(nodes):
            options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "60000"]
            servers.append(RedisServer(folder / str(number), options).start())
        share = 16384 // nodes
        for number, server in enumerate(servers):
            last = 16383 if number == nodes - 1 else (number + 1) * share - 1
            server.say("CLUSTER", "ADDSLOTSRANGE", str(number * share), str(last))
            bus = servers[0].options[3]
            if number:
                server.say("CLUSTER", "MEET", "127.0.0.1", str(servers[0].port), bus)
        _until(lambda: all(_joined(server, nodes) for server in servers), "the cluster's nodes know each other")
        yield servers
    finally:
        for server in servers:
            server.stop()


def _joined(server: RedisServer, nodes: int) -> bool:
    said = server.say("CLUSTER", "INFO")
    return b"cluster_state:ok" in said and f"cluster_known_nodes:{nodes}".encode() in said


def _until(true: object, what: str) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if callable(true) and true():
            return
        time.sleep(0.05)
    raise ServerMissingError(f"not in {START_SECONDS:g} s: {what}")


def given_url() -> str | None:
    """The address of a server that is there already, if one is given."""
    return os.environ.get("BANYAN_TEST_REDIS") or None
