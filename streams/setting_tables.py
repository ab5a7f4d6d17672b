"""The tables of settings: what belongs together under one name in `banyan.toml` (see `streams.settings`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from memory.structures.parameters import HatParameters, HMemParameters, MemGasParameters
from memory.tree.thresholds import MemTreeParameters
from streams.setting_values import Secret

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
    weight_approval: float = _HMEM.approval
    """What an approval multiplies the weight of an episode of an `hmem` by."""
    weight_rebuttal: float = _HMEM.rebuttal
    """What a rebuttal multiplies it by."""
    weight_strength_days: float = _HMEM.strength_days
    """Days of silence after which it is down to 1/e; each approval adds as many."""
    neighbourhood: int = _MEMGAS.neighbourhood
    """Sessions whose units a turn of a `memgas` is compared with, the nearest ones, 1 to 4096."""
    links_max: int = _MEMGAS.links_max
    """Edges that a turn of a `memgas` gets at most, 1 to 1024."""

    def parameters(self) -> dict[str, float]:
        """Of the chosen structure, as a tree remembers them; what is not here has the structure's own default."""
        given: dict[str, dict[str, float]] = {
            "memtree": {"base": self.theta_base, "rate": self.theta_rate, "depth_max": float(self.depth_max)},
            "hat": {"memory_length": float(self.memory_length)},
            "hmem": {
                "domain": self.theta_domain,
                "category": self.theta_category,
                "trace": self.theta_trace,
                "approval": self.weight_approval,
                "rebuttal": self.weight_rebuttal,
                "strength_days": self.weight_strength_days,
            },
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
    announce: bool = True
    """Whether ingest workers say on `banyan.commits` what they have put in; a message a commit, for whoever follows."""
    jobs_max: int = 1_000
    """Summary jobs taken from Kafka and not yet done, 1 to 100,000."""
    grace: timedelta = timedelta(seconds=20)
    """How long the work in hand may take after SIGTERM before it is left to another worker."""
    patience: timedelta = timedelta(minutes=1)
    """How long a worker that is started waits for the broker."""
    feedback_wait: timedelta = timedelta(minutes=1)
    """How long feedback that comes before the turn or document it is about waits for that, before it becomes a dead letter; 0 to an
    hour."""
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
    follow: timedelta = timedelta(milliseconds=20)
    """Pause between two looks for what workers have written to trees that were asked in the last minute, 0 to 60 s; 0 looks only
    when a question comes."""
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
