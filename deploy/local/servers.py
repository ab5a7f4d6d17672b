"""
Kafka and Redis on a developer's machine, without containers: what `make up-local` and the tests share.

Kafka needs Java 17, and Maven once, to fetch the broker's jars (43 MB) into `~/.cache/banyan/kafka`. Redis comes from the system.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

KAFKA_VERSION = "4.1.0"
CACHE = Path.home() / ".cache" / "banyan" / "kafka"
REDIS_PROGRAMS = ("redis-server", "valkey-server")
_POM = Path(__file__).parent / "pom.xml"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:{controller}",
    "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:{port}",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "{folder}/data",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ServerMissingError(Exception):
    """A server cannot be started here; says how to get it."""


def java() -> str:
    """
    Path of Java.

    Raises:
        ServerMissingError: there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise ServerMissingError("Java 17 or newer is needed to run a Kafka broker: `make services`, or name a broker that runs")
    return found


def kafka_jars() -> Path:
    """
    The folder with the broker's jars, fetched once; several processes may want them at the same time.

    Raises:
        ServerMissingError: they cannot be fetched.
    """
    wanted = CACHE / KAFKA_VERSION
    if wanted.is_dir():
        return wanted
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.is_dir():
            return wanted
        maven = shutil.which("mvn")
        if maven is None:
            raise ServerMissingError(
                f"Maven is needed once to fetch Kafka {KAFKA_VERSION}: `make services`, or name a broker that runs"
            )
        partial = CACHE / f"{KAFKA_VERSION}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", str(_POM), _COPY, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerMissingError(f"Kafka {KAFKA_VERSION} cannot be fetched: {done.stdout[-500:]}{done.stderr[-500:]}")
        partial.rename(wanted)
    return wanted


class KafkaNode:
    """
    One broker's folder: configuration and data, ready to be started with `command`.

    Args:
        folder: of its own; what is there already is kept.
        port: that clients connect to, on the loopback.
        controller: the port of the controller's listener.
        properties: of the broker, added to or instead of ours; `{port}`, `{controller}` and `{folder}` are filled in.

    Raises:
        ServerMissingError: there is no Java, or no jars, or the folder cannot be made ready.
    """

    def __init__(self, folder: Path, *, port: int, controller: int, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = port
        self._java, self._jars = java(), kafka_jars()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "server.properties"
        filled = {"port": port, "controller": controller, "folder": folder}
        lines = (f"{name}={value.format(**filled)}\n" for name, value in {**_PROPERTIES, **(properties or {})}.items())
        self._file.touch(mode=0o600)
        self._file.write_text("".join(lines))
        if not (folder / "data" / "meta.properties").exists():
            # A name that begins with a dash would be read as an option: the first byte is kept below that.
            cluster = urlsafe_b64encode(bytes([0x0B]) + uuid.uuid4().bytes[1:]).decode().rstrip("=")
            self.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._file))

    @property
    def command(self) -> list[str]:
        """Starts the broker; to be run in `folder`."""
        return [*self._command("-Xmx512m", "-Xms128m"), "kafka.Kafka", str(self._file)]

    def run(self, *arguments: str) -> str:
        """
        Run one of Kafka's own tools; gives what it printed.

        Raises:
            ServerMissingError: it failed.
        """
        done = subprocess.run([*self._command(), *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerMissingError(f"Kafka's {arguments[0]} failed: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout

    def _command(self, *options: str) -> list[str]:
        return [self._java, *options, "-Dlog4j2.level=WARN", "-cp", f"{self._jars}/*"]


def redis_program() -> str:
    """
    Path of a Redis or Valkey server.

    Raises:
        ServerMissingError: there is none.
    """
    for name in REDIS_PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    raise ServerMissingError(
        "there is no redis-server on the PATH: `make services` (or: apt-get install redis-server), or name one that runs"
    )


def redis_command(folder: Path, port: int) -> list[str]:
    """Starts a Redis on the loopback that keeps what it acknowledged but for the last second."""
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    return [redis_program(), *options, "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def usual_or_free(ports: Sequence[int]) -> list[int]:
    """These ports, and others for those that somebody listens on."""
    free = free_ports(len(ports))
    return [other if listens(port) else port for port, other in zip(ports, free, strict=True)]


def listens(port: int) -> bool:
    """Whether somebody listens there, on the loopback."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
