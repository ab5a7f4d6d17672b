"""
A tree as lines of JSON, and back: a header, then one line a commit, so that the copy has the same ids, sequence and history.

What the change log does not keep (items, texts of summaries) is filled in from the nodes as they are; a summary's earlier texts
are gone, its last one stands in its last rewrite. Importing applies the commits in order through the store's own atomic step: an
import that was interrupted goes on where it stopped, and repeating one changes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import msgspec
import numpy as np

from memory.changes import (
    Annotate,
    ChangeSet,
    Cost,
    Create,
    EventEntry,
    Grow,
    Link,
    LogEntry,
    Move,
    Recall,
    Remove,
    Rewrite,
    Shrink,
    Step,
)
from memory.errors import RecordError, TreeMismatchError
from memory.model import EmbeddingModel, EventId, Item, Mark, Node, NodeId, NodeKind, TreeId, TreeInfo, Vector
from memory.ports.store import Applied, Stale, TreeStore
from memory.records import tree_id
from memory.structures import registry

T = TypeVar("T")

FORMAT = 1
FORGOTTEN = Item(event_id=EventId("forgotten"), text="forgotten")
"""Stands for the item of a leaf that was forgotten, until the import comes to the commit that removes the leaf."""
LOG_PER_READ = 200


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of an export."""

    banyan_export: int
    """Format of the lines, 1."""
    tree: str
    structure: str
    model: str
    dimension: int
    unrelated_cosine: float
    parameters: dict[str, float]
    created_at: datetime
    seq: int
    """Commits that follow, a line each."""


class StepLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step; which fields it has depends on `op` (the class in `memory.changes`)."""

    op: str
    node: str = ""
    parent: str = ""
    old_parent: str = ""
    kind: str = ""
    depth: int = 0
    vector: str = ""
    """Base64 of little-endian float16."""
    cohesion: float = 1.0
    provisional: bool = False
    text: str = ""
    item: Item | None = None
    nodes: tuple[str, ...] = ()
    through: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    attributes: dict[str, str | float] = {}
    above: str = ""
    weights: tuple[float, ...] = ()


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One applied event."""

    id: str
    digest: str
    leaves: tuple[str, ...]


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    """One commit."""

    seq: int
    at: datetime
    steps: tuple[StepLine, ...]
    events: tuple[EventLine, ...] = ()
    forgets: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(Header)
_commit = msgspec.json.Decoder(CommitLine)


class Transfer:
    """
    Exports and imports trees.

    Args:
        store: the port.
    """

    def __init__(self, *, store: TreeStore) -> None:
        self._store = store

    async def export(self, tree: TreeId) -> AsyncIterator[bytes]:
        """The tree's lines, each with its line end, as of the commit it stands at now."""
        info = await self._store.tree(tree)
        yield _line(
            Header(
                banyan_export=FORMAT,
                tree=tree,
                structure=info.structure,
                model=info.model.name,
                dimension=info.model.dimension,
                unrelated_cosine=info.model.unrelated_cosine,
                parameters=dict(info.parameters),
                created_at=info.created_at,
                seq=info.seq,
            )
        )
        last = await self._last_texts(tree, info.seq)
        seq = 0
        while seq < info.seq:
            entries = await self._store.changes(tree, seq, limit=LOG_PER_READ)
            for entry in entries:
                if entry.seq <= info.seq:
                    yield await self._commit_line(tree, entry, last)
            seq = entries[-1].seq if entries else info.seq

    async def _last_texts(self, tree: TreeId, seq: int) -> dict[NodeId, int]:
        """Of each summary, the commit that wrote its present text."""
        last: dict[NodeId, int] = {}
        at = 0
        while at < seq and (entries := await self._store.changes(tree, at, limit=LOG_PER_READ)):
            for entry in entries:
                for step in entry.steps:
                    if isinstance(step, Rewrite):
                        last[step.node] = entry.seq
                    elif isinstance(step, Create) and step.kind is NodeKind.SUMMARY:
                        last[step.id] = entry.seq
            at = entries[-1].seq
        return last

    async def _commit_line(self, tree: TreeId, entry: LogEntry, last: dict[NodeId, int]) -> bytes:
        wanted = [step.id if isinstance(step, Create) else step.node for step in entry.steps if isinstance(step, Create | Rewrite)]
        nodes = await self._store.nodes(tree, wanted)
        receipts = await self._store.receipts(tree, entry.events)
        steps = tuple(_step_line(step, nodes, entry.seq, last) for step in entry.steps)
        events = tuple(
            EventLine(id=event, digest=receipts[event].digest.hex(), leaves=receipts[event].leaves)
            for event in entry.events
            if event in receipts
        )
        return _line(CommitLine(seq=entry.seq, at=entry.at, steps=steps, events=events, forgets=entry.forgets))

    async def import_(
        self, lines: AsyncIterator[bytes] | Iterable[bytes], *, tree: str | None = None, model: EmbeddingModel
    ) -> TreeInfo:
        """
        Make a tree from exported lines.

        Args:
            lines: as `export` gives them.
            tree: its name here; None takes the exported one.
            model: the configured embedding model; a tree of another one could not be asked.

        Raises:
            RecordError: a line is not what an export has; commits before it stay.
            TreeMismatchError: of another embedding model, or the tree exists and is another one.
            SettingError: of a structure that is not known here, or with parameters it cannot have.
        """
        numbered = _numbered(lines)
        header = await self._read_header(numbered)
        if (header.model, header.dimension) != (model.name, model.dimension):
            raise TreeMismatchError(
                f"the export was made with the embedding model {header.model} ({header.dimension} dimensions), "
                f"{model.name} ({model.dimension}) is configured; set BANYAN_EMBEDDER to the former"
            )
        name = tree_id(tree if tree is not None else header.tree)
        wanted = TreeInfo(
            id=name,
            structure=header.structure,
            model=EmbeddingModel(name=header.model, dimension=header.dimension, unrelated_cosine=header.unrelated_cosine),
            parameters=header.parameters,
            created_at=header.created_at,
        )
        registry.of(wanted)  # a tree that no structure can read is not made
        info = await self._store.create_tree(wanted)
        if replace(info, seq=0, floor=0, redacted=0) != wanted:
            raise TreeMismatchError(
                f"tree {name!r} exists and was made another time, or in another way, than the file's; import under another name"
            )
        seq = 0
        async for number, line in numbered:
            commit = _decoded(number, line, _commit)
            seq += 1
            if commit.seq != seq:
                raise RecordError("seq", f"line {number} is commit {commit.seq}, commit {seq} was expected")
            if seq <= info.seq:
                await self._compare(name, commit)
            else:
                await self._apply(name, commit, number)
        if seq != header.seq:
            raise RecordError("record", f"the file ends after commit {seq} of {header.seq}; it was cut off")
        return await self._store.tree(name)

    async def _read_header(self, numbered: AsyncIterator[tuple[int, bytes]]) -> Header:
        async for number, line in numbered:
            header = _decoded(number, line, _header)
            if header.banyan_export != FORMAT:
                raise RecordError("banyan_export", f"format {header.banyan_export} is not known, {FORMAT} is")
            return header
        raise RecordError("record", "the file is empty")

    async def _compare(self, tree: TreeId, commit: CommitLine) -> None:
        present = await self._store.changes(tree, commit.seq - 1, limit=1)
        ours = tuple(present[0].events), [_name(step) for step in present[0].steps]
        theirs = tuple(event.id for event in commit.events), [step.node or step.op for step in commit.steps]
        if ours != theirs:
            raise TreeMismatchError(
                f"tree {tree!r} exists and its commit {commit.seq} is another one than the file's; import under another name"
            )

    async def _apply(self, tree: TreeId, commit: CommitLine, number: int) -> None:
        try:
            steps = tuple(_step(line) for line in commit.steps)
            events = tuple(
                EventEntry(
                    id=EventId(event.id), digest=bytes.fromhex(event.digest), leaves=tuple(NodeId(leaf) for leaf in event.leaves)
                )
                for event in commit.events
            )
            forgets = tuple(map(EventId, commit.forgets))
            outcome = await self._store.apply(ChangeSet(tree=tree, steps=steps, events=events, forgets=forgets, at=commit.at))
        except (ValueError, KeyError, OverflowError) as error:
            raise RecordError("steps", f"line {number}: {error}") from error
        if isinstance(outcome, Stale) and outcome.seq == commit.seq - 1:
            raise RecordError("steps", f"line {number} does not follow from those before it: {', '.join(outcome.nodes)}")
        if not isinstance(outcome, Applied) or outcome.seq != commit.seq:
            raise TreeMismatchError(
                f"tree {tree!r} was changed by others during the import, at line {number}; import under another name"
            )


def _line(value: msgspec.Struct) -> bytes:
    return _encode(value) + b"\n"


async def _numbered(lines: AsyncIterator[bytes] | Iterable[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    number = 0
    if isinstance(lines, Iterable):
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
    else:
        async for line in lines:
            number += 1
            if line.strip():
                yield number, line


def _decoded(number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError("record", f"line {number} is no line of an export: {error}") from error


def _encode_vector(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


def _decode_vector(text: str) -> Vector:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2").astype(np.float32)


def _name(step: Step) -> str:
    match step:
        case Create():
            return step.id
        case Grow() | Shrink() | Recall():
            return step.leaf
        case Move() | Rewrite() | Annotate() | Link() | Remove():
            return step.node


def _step_line(step: Step, nodes: dict[NodeId, Node], seq: int, last: dict[NodeId, int]) -> StepLine:
    match step:
        case Create():
            node = nodes.get(step.id)
            leaf = step.kind is NodeKind.LEAF
            text = node.text if node is not None and (leaf or last.get(step.id) == seq) else ""
            line = StepLine(
                op="create",
                node=step.id,
                parent=step.parent,
                kind=step.kind,
                depth=step.depth,
                vector=_encode_vector(step.vector),
                cohesion=step.cohesion,
                provisional=step.provisional,
                text=text,
                item=(node.item if node is not None else FORGOTTEN) if leaf else None,
                attributes=dict(step.attributes),
                above=step.above or "",
            )
        case Move():
            line = StepLine(op="move", node=step.node, old_parent=step.old_parent, parent=step.parent, depth=step.depth)
        case Grow() | Shrink() | Recall():
            line = StepLine(op=type(step).__name__.lower(), node=step.leaf, nodes=step.nodes)
        case Rewrite():
            node = nodes.get(step.node)
            line = StepLine(
                op="rewrite",
                node=step.node,
                parent=step.parent,
                vector=_encode_vector(step.vector),
                cohesion=step.cohesion,
                provisional=step.provisional,
                through=step.through,
                text=node.text if node is not None and last.get(step.node) == seq else "",
                calls=step.cost.calls,
                tokens_in=step.cost.tokens_in,
                tokens_out=step.cost.tokens_out,
            )
        case Annotate():
            line = StepLine(op="annotate", node=step.node, attributes=dict(step.attributes))
        case Link():
            line = StepLine(op="link", node=step.node, nodes=step.others, weights=step.weights)
        case Remove():
            line = StepLine(op="remove", node=step.node, parent=step.parent)
    return line


def _step(line: StepLine) -> Step:
    made: Step
    node, parent = NodeId(line.node), NodeId(line.parent)
    match line.op:
        case "create":
            made = Create(
                id=node,
                parent=parent,
                kind=NodeKind(line.kind),
                depth=line.depth,
                vector=_decode_vector(line.vector),
                cohesion=line.cohesion,
                provisional=line.provisional,
                text=line.text,
                item=line.item,
                attributes=line.attributes,
                above=NodeId(line.above) if line.above else None,
            )
        case "move":
            made = Move(node=node, old_parent=NodeId(line.old_parent), parent=parent, depth=line.depth)
        case "grow":
            made = Grow(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case "rewrite":
            made = Rewrite(
                node=node,
                parent=parent,
                vector=_decode_vector(line.vector),
                cohesion=line.cohesion,
                through=Mark(line.through),
                provisional=line.provisional,
                text=line.text,
                cost=Cost(calls=line.calls, tokens_in=line.tokens_in, tokens_out=line.tokens_out),
            )
        case "annotate":
            made = Annotate(node=node, attributes=line.attributes)
        case "link":
            made = Link(node=node, others=tuple(NodeId(name) for name in line.nodes), weights=line.weights)
        case "shrink":
            made = Shrink(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case "remove":
            made = Remove(node=node, parent=parent)
        case "recall":
            made = Recall(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case other:
            raise ValueError(f"no step is called {other!r}")
    return made
