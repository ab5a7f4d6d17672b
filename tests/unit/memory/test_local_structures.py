"""Who says how a tree grows: its first writer, and who asks for a structure by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import open_local
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import TreeMismatchError


async def test_a_tree_grows_on_as_it_was_made_unless_another_structure_is_asked_for(tmp_path: Path) -> None:
    turns = [{"tree": "t", "id": f"e{number}", "text": f"about the harbour {number}"} for number in range(3)]
    async with await open_local(tmp_path, embedder=HashingEmbedder(), structure="hat") as memory:
        await memory.ingest(turns[:1])
    async with await open_local(tmp_path, embedder=HashingEmbedder()) as memory:
        await memory.ingest(turns[1:2])
        await memory.ingest([{**turns[1], "tree": "new"}])
        assert [(await memory.stats(tree)).structure for tree in ("t", "new")] == ["hat", "memtree"]
    async with await open_local(tmp_path, embedder=HashingEmbedder(), structure="hmem", structure_binds=False) as memory:
        await memory.ingest(turns[2:])
        await memory.ingest([{**turns[2], "tree": "newer"}])
        assert [(await memory.stats(tree)).structure for tree in ("t", "newer")] == ["hat", "hmem"]
        report = await memory.check("t")
        assert (report.violations, report.replayed) == ((), 3)
    async with await open_local(tmp_path, embedder=HashingEmbedder(), structure="memtree") as memory:
        with pytest.raises(TreeMismatchError, match="is a hat tree"):
            await memory.ingest([{**turns[0], "id": "e3"}])
