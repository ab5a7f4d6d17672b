"""
A tree as lines of JSON, and back: a header, then one line a commit, so that the copy has the same ids, sequence and history.

What the change log does not keep (items, texts of summaries) is filled in from the nodes as they are; a summary's earlier texts
are gone, its last one stands in its last rewrite. Importing applies the commits in order through the store's own atomic step: an
import that was interrupted goes on where it stopped, and repeating one changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from memory.changes import (
    ChangeSet,
    Create,
    EventEntry,
    LogEntry,
    Rewrite,
)
from memory.errors import RecordError, TreeMismatchError
from memory.model import EmbeddingModel, EventId, NodeId, NodeKind, TreeId, TreeInfo
from memory.ports.store import Applied, Stale, TreeStore
from memory.records import tree_id
from memory.service.export_lines import (
    COMMIT,
    FORMAT,
    HEADER,
    CommitLine,
    EventLine,
    Header,
    decoded,
    line_of,
    node_of,
    numbered_lines,
    step_line,
    step_of,
)
from memory.structures import registry

LOG_PER_READ = 200


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
        yield line_of(
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
        steps = tuple(step_line(step, nodes, entry.seq, last) for step in entry.steps)
        events = tuple(
            EventLine(id=event, digest=receipts[event].digest.hex(), leaves=receipts[event].leaves)
            for event in entry.events
            if event in receipts
        )
        return line_of(CommitLine(seq=entry.seq, at=entry.at, steps=steps, events=events, forgets=entry.forgets))

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
            TreeMismatchError: of another embedding model, of a structure that is not known here or with parameters it cannot
                have, or the tree exists and is another one.
        """
        numbered = numbered_lines(lines)
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
            commit = decoded(number, line, COMMIT)
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
            header = decoded(number, line, HEADER)
            if header.banyan_export != FORMAT:
                raise RecordError("banyan_export", f"format {header.banyan_export} is not known, {FORMAT} is")
            return header
        raise RecordError("record", "the file is empty")

    async def _compare(self, tree: TreeId, commit: CommitLine) -> None:
        present = await self._store.changes(tree, commit.seq - 1, limit=1)
        ours = tuple(present[0].events), [node_of(step) for step in present[0].steps]
        theirs = tuple(event.id for event in commit.events), [step.node or step.op for step in commit.steps]
        if ours != theirs:
            raise TreeMismatchError(
                f"tree {tree!r} exists and its commit {commit.seq} is another one than the file's; import under another name"
            )

    async def _apply(self, tree: TreeId, commit: CommitLine, number: int) -> None:
        try:
            steps = tuple(step_of(line) for line in commit.steps)
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
