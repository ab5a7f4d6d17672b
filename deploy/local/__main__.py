"""
`make up-local`: Kafka, Redis, topics, workers and the HTTP service on this machine, without containers, until Ctrl-C.

What is in the environment counts: `BANYAN_BROKER` or a `BANYAN_STORE` in Redis name servers that run already, and every other
setting goes to the workers.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import shlex
import signal
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from deploy.local.processes import Part, plain, until
from deploy.local.servers import KafkaNode, ServerMissingError, listens, redis_command, usual_or_free

ROOT = Path(__file__).parents[2]
WORKERS = ("ingest-1", "ingest-2", "summaries-1", "summaries-2")
KAFKA_PORT, CONTROLLER_PORT, REDIS_PORT, SERVE_PORT, METRICS_PORT = 9092, 9093, 6379, 8000, 9464
SERVER_START_LIMIT = 90.0  # seconds
READY_LIMIT = 120.0  # seconds
_COLOURS = (36, 35, 32, 33, 34, 31, 92)
_FAILED, _INTERRUPTED = 1, 130


class LocalPipeline:
    """
    Everything that `make up-local` runs.

    Args:
        folder: for data, logs and the file `env`.
        environment: of this process.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**environment, "PYTHONUNBUFFERED": "1", "PYTHONPATH": _path(environment)}
        self._environment.setdefault("BANYAN_LOG_FORMAT", "console")
        self._environment.setdefault("BANYAN_LOG_LEVEL", "info")
        self._servers: list[Part] = []
        self._workers: list[Part] = []
        self._stopping = asyncio.Event()
        self._colours = dict(zip(("kafka", "redis", *WORKERS, "serve"), _COLOURS, strict=True))
        self._metrics: list[int] = []
        self._serve_port = SERVE_PORT

    async def run(self) -> int:
        """Run until a signal comes; gives the exit code."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(each, self._on_signal)
        try:
            if not await self._start():
                return _INTERRUPTED if self._stopping.is_set() else _FAILED
            await self._stopping.wait()
            return 0
        finally:
            await self._stop()

    async def _start(self) -> bool:
        kafka, controller, store, self._serve_port, *self._metrics = usual_or_free(
            [KAFKA_PORT, CONTROLLER_PORT, REDIS_PORT, SERVE_PORT, *range(METRICS_PORT, METRICS_PORT + len(WORKERS))]
        )
        if not self._environment.get("BANYAN_BROKER"):
            self._environment["BANYAN_BROKER"] = f"127.0.0.1:{kafka}"
            self._say("kafka", f"starting on port {kafka} (its jars are fetched the first time)")
            node = await asyncio.to_thread(KafkaNode, self._folder / "kafka", port=kafka, controller=controller)
            self._serve("kafka", node.command, node.folder)
        if not self._environment.get("BANYAN_STORE", "").startswith(("redis", "unix")):
            self._environment["BANYAN_STORE"] = f"redis://127.0.0.1:{store}/0"
            self._say("redis", f"starting on port {store}")
            (self._folder / "redis").mkdir(exist_ok=True)
            self._serve("redis", redis_command(self._folder / "redis", store), self._folder / "redis")
        for part in self._servers:
            port = kafka if part.name == "kafka" else store
            if not await until(partial(_listening, port), seconds=SERVER_START_LIMIT, stopping=self._stopping):
                return self._failed(part.name, f"does not answer on port {port}; see {part.log}")
        if await self._banyan("topics", "topics", "create").once():
            return self._failed("topics", "could not be made")
        if self._stopping.is_set():
            return False
        for name, port in zip(WORKERS, self._metrics, strict=True):
            # Under a name of its own a worker that is started again goes on with its partitions at once.
            more = {"BANYAN_KAFKA_INSTANCE": name}
            if find_spec("prometheus_client"):
                more["BANYAN_METRICS_PORT"] = str(port)
            part = self._banyan(name, "worker", name.partition("-")[0], **more)
            self._workers.append(part)
            part.start()
        # Without keys, since it listens on this machine's own address only.
        open_to_all = {"BANYAN_AUTH": self._environment.get("BANYAN_AUTH", "off")}
        serve = self._banyan("serve", "serve", BANYAN_SERVE_PORT=str(self._serve_port), **open_to_all)
        self._workers.append(serve)
        serve.start()
        ready = await until(self._ready, seconds=READY_LIMIT, stopping=self._stopping, every=0.5)
        if not self._stopping.is_set():
            self._welcome(ready=ready)
        return not self._stopping.is_set()

    def _failed(self, name: str, why: str) -> bool:
        if not self._stopping.is_set():
            self._say(name, why)
        return False

    async def _stop(self) -> None:
        if self._workers or self._servers:
            self._say("", "stopping: workers finish what they have in hand; Ctrl-C again ends everything at once")
        await asyncio.gather(*(part.stop() for part in self._workers))
        await asyncio.gather(*(part.stop() for part in self._servers))
        self._say("", f"stopped; data and logs are in {self._folder}")

    def _serve(self, name: str, command: list[str], folder: Path) -> None:
        part = Part(
            name=name,
            command=command,
            log=self._folder / "logs" / f"{name}.log",
            say=self._say,
            environment=self._environment,
            folder=folder,
            shown=False,
        )
        self._servers.append(part)
        part.start()

    def _banyan(self, name: str, *arguments: str, **variables: str) -> Part:
        return Part(
            name=name,
            command=[sys.executable, "-m", "streams.cli", *arguments],
            log=self._folder / "logs" / f"{name}.log",
            say=self._say,
            environment={**self._environment, **variables},
            folder=self._folder,
        )

    async def _ready(self) -> bool:
        """Every process says so on its port; workers without ports are taken at their word."""
        ports = [self._serve_port, *(self._metrics if find_spec("prometheus_client") else ())]
        return all([await asyncio.to_thread(_answers, port) for port in ports])

    def _welcome(self, *, ready: bool) -> None:
        environment = self._folder / "env"
        own = {name: self._environment[name] for name in ("BANYAN_BROKER", "BANYAN_STORE")}
        # A password may be in an address.
        environment.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in own.items()]
        path = shlex.quote(str(Path(sys.executable).parent))
        environment.write_text("".join([*lines, f"export PATH={path}:$PATH\n"]))
        examples = _shown(ROOT / "examples" / "data")
        commands = {
            f". {_shown(environment)}": "where everything is, and the command on the PATH",
            f"banyan produce {examples}/turns.jsonl {examples}/news.jsonl": "example chats and news",
            "banyan tree demo-chats": "the tree they become",
            "banyan stats demo-chats": "what it holds, and what is pending",
            'banyan search demo-chats "where does Ana move?"': "ask it",
            f"open http://localhost:{self._serve_port}/docs": "the same over HTTP",
            f"curl -s localhost:{self._metrics[0]}/metrics": f"figures of {WORKERS[0]}; the others have ports of their own",
            "banyan dead-letters list": "what could not be taken",
        }
        names = ", ".join(part.name for part in [*self._servers, *self._workers])
        width = max(map(len, commands))
        state = "Banyan runs" if ready else "Banyan starts (not every worker is ready yet)"
        for line in (
            "",
            f"{state}: {names}. Data and logs: {_shown(self._folder)}",
            "In another terminal:",
            *(f"  {command:<{width}}   # {what}" for command, what in commands.items()),
            "Ctrl-C here stops everything. Kill any process at will: it is started again, nothing is lost or doubled.",
            "",
        ):
            self._say("", line)

    def _say(self, name: str, line: str) -> None:
        if sys.stderr.isatty() and name:
            sys.stderr.write(f"\x1b[{self._colours.get(name, 0)}m{name:>11} |\x1b[0m {line}\n")
        else:
            sys.stderr.write(plain(f"{name:>11} | {line}\n" if name else f"{line}\n"))
        sys.stderr.flush()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            for part in [*self._workers, *self._servers]:
                part.kill()
        self._stopping.set()


async def _listening(port: int) -> bool:
    return await asyncio.to_thread(listens, port)


def _answers(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:  # loopback
        return bool(answer.status == 200)
    return False


def _path(environment: Mapping[str, str]) -> str:
    return os.pathsep.join(each for each in (str(ROOT), environment.get("PYTHONPATH", "")) if each)


def _shown(path: Path) -> str:
    """From the working folder, where it is below it."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _locked(folder: Path) -> IO[str] | None:
    """A lock on the folder that lasts as long as this process; None when another has it."""
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def main() -> int:
    """Run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="make up-local", description="Kafka, Redis and workers on this machine, until Ctrl-C.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".banyan-local", help="for data and logs (%(default)s)")
    folder = parser.parse_args().folder.absolute()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    lock = _locked(folder)
    if lock is None:
        sys.stderr.write(f"another `make up-local` uses {folder}\n")
        return _FAILED
    with lock:
        try:
            return asyncio.run(LocalPipeline(folder, os.environ).run())
        except ServerMissingError as error:
            sys.stderr.write(f"error: {error}\n")
            return _FAILED


if __name__ == "__main__":
    sys.exit(main())
