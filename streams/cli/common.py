"""What all commands share: options, settings, and the way to open the memory."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from memory.errors import BanyanError, SettingError, TransientError, TreeNotFoundError
from streams.cli.console import Output
from streams.setting_values import show_value
from streams.settings import Loaded, Settings, load

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from streams.remote import RemoteMemory

_NAMES_SHOWN = 10

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable: JSON lines on standard output.")
_store_option = click.option("--store", metavar="URL", help="Where trees are kept, e.g. sqlite:///memory (BANYAN_STORE).")
_config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Settings file (BANYAN_CONFIG; otherwise banyan.toml, if there is one).",
)
_url_option = click.option(
    "--url", metavar="URL", help="Ask the `banyan serve` there instead of a store; its key is BANYAN_KEY (BANYAN_URL)."
)


def shared_options(function: Function) -> Function:
    """`--json`, `--store` and `--config`; the command gets them as one `Session` named `session`."""

    @json_option
    @_store_option
    @_config_option
    @functools.wraps(function)
    def wrapper(*args: Any, as_json: bool, store: str | None, config_file: Path | None, **kwargs: Any) -> Any:
        return function(*args, session=Session(as_json=as_json, store=store, config_file=config_file, **_url(kwargs)), **kwargs)

    return wrapper  # type: ignore[return-value]


def _url(kwargs: dict[str, Any]) -> dict[str, str | None]:
    """The option `--url`, of commands that have it."""
    return {"url": kwargs.pop("url")} if "url" in kwargs else {}


def asking_options(function: Function) -> Function:
    """`shared_options`, and `--url`: for commands that a service can answer, by `Session.asked`."""
    return _url_option(shared_options(function))


class Session:
    """One run of a command: its output, and its settings once they are asked for."""

    def __init__(self, *, as_json: bool, store: str | None = None, config_file: Path | None = None, url: str | None = None) -> None:
        self.output = Output(as_json=as_json)
        self.settings = Settings()
        """In force once `load` was called."""
        self._origins: Mapping[str, str] = {}
        self._store = store
        self._config_file = config_file
        self._url = url

    def load(self, **options: str | None) -> Loaded:
        """
        The settings in force; says on standard error what was given but means nothing, and sets up logging.

        Args:
            options: further settings by name that the command was given; None for those it was not.

        Raises:
            SettingError: a setting cannot be.
            UsageError: two memories are named.
        """
        from streams.telemetry import configure_logging  # noqa: PLC0415  # not needed for --help

        if self._store is not None and self._url is not None:
            raise click.UsageError("--store and --url name two memories; give one of them")
        named = {"store": self._store, "url": self._url, **options}
        given = {name: value for name, value in named.items() if value is not None}
        loaded = load(os.environ, file=self._config_file, options=given)
        for warning in loaded.warnings:
            self.output.warn(warning)
        configure_logging(loaded.settings.log)
        self.settings = loaded.settings
        self._origins = loaded.origins
        if self._store is not None:
            # What a command is told beats what stands in the environment.
            self.settings = replace(self.settings, url=None)
        return loaded

    def is_set(self, name: str) -> bool:
        """Whether a setting was given, once `load` was called; otherwise it has its default."""
        return self._origins.get(name, "default") != "default"

    @asynccontextmanager
    async def asked(
        self, *, mode: Literal["write", "search", "look", "index"], summaries: bool = False, **options: str | None
    ) -> AsyncIterator[LocalMemory | RemoteMemory]:
        """
        The memory that the settings name: as for `memory`, or behind a service.

        Raises:
            UsageError: something is to be set that the service decides.
        """
        self.load(**options)
        if self.settings.url is None:
            async with self._local(mode=mode, summaries=summaries) as local:
                yield local
            return
        given = [f"--{name}" for name, value in options.items() if value is not None]
        if given:
            raise click.UsageError(f"{given[0]} is for a store of one's own; the service at {self.settings.url} decides that")
        from streams.bootstrap import open_remote  # noqa: PLC0415

        memory = open_remote(self.settings, on_degraded=self.output.warn)
        try:
            yield memory
        except TreeNotFoundError as error:
            said = f"{error} at {self.settings.url}"
            # A key that may only write is not told which trees there are.
            with suppress(BanyanError):
                said = f"{said}; {_there_is([info.id for info in await memory.trees()])}"
            raise TreeNotFoundError(said) from error
        except TransientError as error:
            raise TransientError(f"{self.settings.url}: {error}", retry_after=error.retry_after) from error
        finally:
            await memory.close()

    @asynccontextmanager
    async def memory(
        self, *, mode: Literal["write", "search", "look", "index"], summaries: bool = False, **options: str | None
    ) -> AsyncIterator[LocalMemory]:
        """
        The memory that the settings name, closed at the end.

        Args:
            mode: `write` makes the store if it is not there; `search` keeps the index up to date where it may; `look` changes
                nothing and embeds nothing; `index` embeds nothing either, and may change the index.
            summaries: whether to make summaries meanwhile.
            options: as for `load`.

        Raises:
            TreeNotFoundError: there is no store yet, and the mode is not `write`.
            SettingError: the settings name a service instead.
        """
        self.load(**options)
        if self.settings.url is not None:
            name = click.get_current_context().info_name
            raise SettingError(
                f"`banyan {name}` reads the store itself, and no service does that for it; run it where the store is, with --store "
                f"or without a url ({self.settings.url} comes from BANYAN_URL or the settings file)"
            )
        async with self._local(mode=mode, summaries=summaries) as memory:
            yield memory

    @asynccontextmanager
    async def _local(self, *, mode: Literal["write", "search", "look", "index"], summaries: bool) -> AsyncIterator[LocalMemory]:
        from streams.bootstrap import open_memory, store_file  # noqa: PLC0415  # brings numpy and the model's runtime

        read_only = mode == "look"
        if self.settings.store_is_redis:
            place = str(show_value(self.settings.store))
        else:
            file = store_file(self.settings)
            place = str(file)
            if mode != "write" and not file.exists():
                raise TreeNotFoundError(
                    f"there is no store at {file} yet; `banyan ingest` makes one, --store or BANYAN_STORE names another"
                )
            read_only |= mode in ("search", "index") and not _writable(file)
        memory = await open_memory(
            self.settings,
            summaries=summaries,
            read_only=read_only,
            embeds=mode not in ("look", "index"),
            structure_binds=self.is_set("structure"),
        )
        try:
            yield memory
        except TreeNotFoundError as error:
            names = [info.id for info in await memory.trees()]
            raise TreeNotFoundError(f"{error} at {place}; {_there_is(names)}") from error
        finally:
            await memory.close()


def _there_is(names: Sequence[str]) -> str:
    if not names:
        return "it has no trees yet, `banyan ingest` makes them"
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"there is {', '.join(names[:_NAMES_SHOWN])}{more}"


def _writable(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def run_async(function: Callable[..., Coroutine[Any, Any, Result]]) -> Callable[..., Result]:
    """Run an asynchronous command in an event loop of its own."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Result:
        return asyncio.run(function(*args, **kwargs))

    return wrapper
