"""An index without a file of its own: in one that has no name, or in memory."""

from __future__ import annotations

import tempfile
from typing import NoReturn

import numpy as np
import pytest

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.model import Mark, NodeId, NodeKind, TreeId
from memory.ports.index import IndexEntry, IndexQuery

TREE = TreeId("t")
VECTOR = np.array([1.0, 0.0], np.float32)


def _none() -> NoReturn:
    raise FileNotFoundError("No usable temporary directory")


@pytest.mark.parametrize("writable", [True, False])
async def test_it_finds_what_it_was_given_wherever_it_may_write(monkeypatch: pytest.MonkeyPatch, *, writable: bool) -> None:
    if not writable:
        monkeypatch.setattr(tempfile, "gettempdir", _none)
    index = await EmbeddedNodeIndex.open(None)
    entry = IndexEntry(node=NodeId("n"), kind=NodeKind.LEAF, mark=Mark(1), vector=VECTOR, text="a tunnel")
    assert await index.update(TREE, after=0, seq=1, upserts=[entry])
    answer = await index.search(TREE, IndexQuery(vector=VECTOR, terms="tunnel"))
    assert [found.node for found in answer.found] == ["n"]
    await index.close()
