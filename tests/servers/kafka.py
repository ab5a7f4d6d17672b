"""
A Kafka broker for tests: one node (KRaft), on free ports of the loopback, in a folder that goes away.

`BANYAN_TEST_KAFKA=host:port` takes a broker that runs already. Otherwise Java 17 is needed, and Maven once, to fetch the broker's
jars (43 MB) into `~/.cache/banyan/kafka`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.redis import ServerMissingError

VARIABLE = "BANYAN_TEST_KAFKA"
VERSION = "4.1.0"
CACHE = Path.home() / ".cache" / "banyan" / "kafka"
_POM = Path(__file__).parent / "kafka_jars" / "pom.xml"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_START_LIMIT = 90.0  # seconds
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=500
"""


class KafkaServer:
    """
    A broker that can be stopped, killed and started again on the same port with the same data.

    Args:
        folder: of its own; gets the configuration, the data and the log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._java, self._jars = _java(), _jars()
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        self._properties.write_text(_PROPERTIES.format(port=self._port, controller=controller, folder=folder))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [*self._command("-Xmx512m", "-Xms128m"), "kafka.Kafka", str(self._properties)]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + _START_LIMIT
        while not _listens(self._port):
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

    def _command(self, *options: str) -> list[str]:
        return [self._java, *options, "-Dlog4j2.level=WARN", "-cp", f"{self._jars}/*"]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([*self._command(), *arguments], cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerMissingError(f"the broker's storage cannot be made: {(done.stderr or done.stdout)[-500:]}")

    def _tail(self) -> str:
        return (self._folder / "broker.log").read_text(errors="replace")[-500:]


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise ServerMissingError(f"Java 17 or newer is needed to run a Kafka broker (or set {VARIABLE}=host:port)")
    return java


def _jars() -> Path:
    """The folder with the broker's jars, fetched once; several test runs may want them at the same time."""
    wanted = CACHE / VERSION
    if wanted.is_dir():
        return wanted
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.is_dir():
            return wanted
        maven = shutil.which("mvn")
        if maven is None:
            raise ServerMissingError(f"Maven is needed once to fetch Kafka {VERSION} (or set {VARIABLE}=host:port)")
        partial = CACHE / f"{VERSION}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", str(_POM), _COPY, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerMissingError(f"Kafka {VERSION} cannot be fetched: {done.stdout[-500:]}{done.stderr[-500:]}")
        partial.rename(wanted)
    return wanted


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def single(folder: Path) -> Iterator[KafkaServer]:
    """
    A broker that ends with the context.

    Raises:
        ServerMissingError: it cannot be started here; says how to get it.
    """
    server = KafkaServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def given() -> str | None:
    """The broker that the environment names."""
    return os.environ.get(VARIABLE) or None
