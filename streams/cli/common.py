"""What all commands share: options, settings, and the way to open the memory."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from memory.errors import TreeNotFoundError
from streams.cli.console import Output
from streams.setting_values import show_value
from streams.settings import Loaded, Settings, load

if TYPE_CHECKING:
    from memory.local import LocalMemory

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


def shared_options(function: Function) -> Function:
    """`--json`, `--store` and `--config`; the command gets them as one `Session` named `session`."""

    @json_option
    @_store_option
    @_config_option
    @functools.wraps(function)
    def wrapper(*args: Any, as_json: bool, store: str | None, config_file: Path | None, **kwargs: Any) -> Any:
        return function(*args, session=Session(as_json=as_json, store=store, config_file=config_file), **kwargs)

    return wrapper  # type: ignore[return-value]


class Session:
    """One run of a command: its output, and its settings once they are asked for."""

    def __init__(self, *, as_json: bool, store: str | None = None, config_file: Path | None = None) -> None:
        self.output = Output(as_json=as_json)
        self.settings = Settings()
        """In force once `load` was called."""
        self._store = store
        self._config_file = config_file

    def load(self, **options: str | None) -> Loaded:
        """
        The settings in force; says on standard error what was given but means nothing, and sets up logging.

        Args:
            options: further settings by name that the command was given; None for those it was not.

        Raises:
            SettingError: a setting cannot be.
        """
        from streams.telemetry import configure_logging  # noqa: PLC0415  # not needed for --help

        given = {name: value for name, value in {"store": self._store, **options}.items() if value is not None}
        loaded = load(os.environ, file=self._config_file, options=given)
        for warning in loaded.warnings:
            self.output.warn(warning)
        configure_logging(loaded.settings.log)
        self.settings = loaded.settings
        return loaded

    @asynccontextmanager
    async def memory(
        self, *, mode: Literal["write", "search", "look"], summaries: bool = False, **options: str | None
    ) -> AsyncIterator[LocalMemory]:
        """
        The memory that the settings name, closed at the end.

        Args:
            mode: `write` makes the store if it is not there; `search` keeps the index up to date where it may; `look` changes
                nothing and embeds nothing.
            summaries: whether to make summaries meanwhile.
            options: as for `load`.

        Raises:
            TreeNotFoundError: there is no store yet, and the mode is not `write`.
        """
        from streams.bootstrap import open_memory, store_file  # noqa: PLC0415  # brings numpy and the model's runtime

        self.load(**options)
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
            read_only |= mode == "search" and not _writable(file)
        memory = await open_memory(self.settings, summaries=summaries, read_only=read_only, embeds=mode != "look")
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
