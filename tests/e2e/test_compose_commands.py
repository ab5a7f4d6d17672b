"""The commands, environments and health checks of docker-compose.yml, run as processes: there need not be a Docker engine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.servers import KafkaNode, ServerMissingError, listens, redis_program
from tests.conftest import in_ci
from tests.servers.ports import free_ports

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
WORKERS = [name for name, service in SERVICES.items() if service.get("command", [""])[0] == "worker"]
LIMIT = 150.0  # seconds, on a machine that does much else
GIVEN = {"BANYAN_EMBEDDER": "hashing", "BANYAN_KAFKA_PARTITIONS": "4"}
"""What `.env` says."""
RUNNING = [*WORKERS, "serve"]


class Machine:
    """Stands in for the containers' network: names and ports of services become ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        numbers = ["kafka:19092", "kafka:9092", "kafka:9093", "redis:6379", *(f"{name}:9464" for name in RUNNING), "serve:8000"]
        self.ports = dict(zip(numbers, free_ports(len(numbers)), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> dict[str, str]:
        """A service's, what `.env` says below it, and its addresses moved to this machine."""
        own = {key: self.moved(value, name) for key, value in SERVICES[name].get("environment", {}).items()}
        return {**GIVEN, **own} if "env_file" in SERVICES[name] else own

    def moved(self, text: str, name: str) -> str:
        for address, port in self.ports.items():
            host, _, number = address.partition(":")
            text = text.replace(address, f"127.0.0.1:{port}").replace("/keys/", f"{self.folder}/")
            if host == name:
                text = re.sub(rf"(?<![0-9.])(localhost|0\.0\.0\.0|127\.0\.0\.1):{number}\b", f"127.0.0.1:{port}", text)
                text = re.sub(rf"^{number}$", str(port), text)
        return text

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder, env=_clean(environment), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def banyan(self, name: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run the image's entry point with a service's environment, to its end."""
        command = [sys.executable, "-m", "streams.cli", *(arguments or SERVICES[name]["command"])]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=_clean(self.environment(name)),
            input=given,
            capture_output=True,
            check=False,
            timeout=LIMIT,
        )

    def healthy(self, name: str) -> bool:
        """What a service's own health check says."""
        words = [self.moved(word, name) for word in SERVICES[name]["healthcheck"]["test"][1:]]
        if words[0] == "python":
            words[0] = sys.executable
        if name == "redis":
            words[1:1] = ["-p", str(self.ports["redis:6379"])]
        return subprocess.run(words, capture_output=True, check=False, timeout=LIMIT).returncode == 0

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > end:
                tails = {name: (self.folder / f"{name}.log").read_text(errors="replace")[-1500:] for name in ended}
                raise AssertionError(f"{what}; ended: {tails}")
            time.sleep(0.3)


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BANYAN_", "OPENAI_", "KAFKA_"))}
    return {**kept, "PYTHONPATH": str(ROOT), **environment}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        for process in made.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


def test_every_service_s_command_does_its_part(machine: Machine) -> None:
    settings = machine.environment("kafka")
    # As the image does it: KAFKA_NODE_ID is node.id.
    properties = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in settings.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    } | {"log.dirs": "{folder}/data"}
    try:
        port = machine.ports["kafka:9092"]
        kafka = KafkaNode(machine.folder / "kafka", port=port, controller=machine.ports["kafka:9093"], properties=properties)
        redis_words = [redis_program(), *SERVICES["redis"]["command"][1:]]
    except ServerMissingError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(str(error))
    machine.start("kafka", kafka.command, {})
    machine.start("redis", [*redis_words, "--port", str(machine.ports["redis:6379"]), "--dir", str(machine.folder)], {})
    machine.until(lambda: listens(machine.ports["kafka:19092"]) and listens(machine.ports["redis:6379"]), "the servers answer")
    if shutil.which("redis-cli"):
        assert machine.healthy("redis")

    made = machine.banyan("topics")
    assert made.returncode == 0, made.stderr.decode()
    for name in RUNNING:
        machine.start(name, [sys.executable, "-m", "streams.cli", *SERVICES[name]["command"]], machine.environment(name))
    for name in RUNNING:
        machine.until(lambda name=name: machine.healthy(name), f"{name} is healthy")  # type: ignore[misc]  # bound now

    lines = (ROOT / "examples" / "data" / "news.jsonl").read_bytes()
    assert machine.banyan("tools", "produce", "-", given=lines).returncode == 0

    def whole() -> bool:
        found = machine.banyan("tools", "stats", "demo-news", "--json")
        if found.returncode:
            return False
        report = json.loads(found.stdout)
        return bool(report["events"] == len(lines.splitlines()) and not report["pending"])

    machine.until(whole, "the news are a tree")
    assert machine.banyan("tools", "check", "demo-news").returncode == 0
    for name in RUNNING:
        machine.processes[name].send_signal(signal.SIGTERM)
    for name in RUNNING:
        # Uvicorn passes the signal on once everything is in order.
        in_order = (0, -signal.SIGTERM) if name == "serve" else (0,)
        assert machine.processes[name].wait(LIMIT) in in_order, (machine.folder / f"{name}.log").read_text()[-1500:]
