"""
A Kafka broker for tests: one node (KRaft), on free ports of the loopback, in a folder that goes away.

`BANYAN_TEST_KAFKA=host:port` takes a broker that runs already. Otherwise Java 17 is needed, and Maven once.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.local.servers import KafkaNode, ServerMissingError, listens
from tests.servers.ports import free_ports

VARIABLE = "BANYAN_TEST_KAFKA"
_START_LIMIT = 180.0  # seconds
_PROPERTIES = {"group.min.session.timeout.ms": "1000", "log.cleaner.backoff.ms": "500"}


class KafkaServer:
    """
    A broker that can be stopped, killed and started again on the same port with the same data.

    Args:
        folder: of its own; gets the configuration, the data and the log.
        properties: of the broker, beside the usual ones.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        port, controller = free_ports(2)
        self.node = KafkaNode(folder, port=port, controller=controller, properties={**_PROPERTIES, **(properties or {})})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.node.port}"

    @property
    def pid(self) -> int:
        """Number of its process, which must be running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.node.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.node.command, cwd=self.node.folder, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + _START_LIMIT
        while not listens(self.node.port):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise ServerMissingError(f"the broker did not start: {self._tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it in order."""
        self._end(kill=False)

    def kill(self) -> None:
        """End it at once."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill() if kill else process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tail(self) -> str:
        return (self.node.folder / "broker.log").read_text(errors="replace")[-500:]


@contextmanager
def single(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[KafkaServer]:
    """
    A broker that ends with the context.

    Raises:
        ServerMissingError: it cannot be started here; says how to get it.
    """
    server = KafkaServer(folder, properties)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def given() -> str | None:
    """The broker that the environment names."""
    return os.environ.get(VARIABLE) or None
