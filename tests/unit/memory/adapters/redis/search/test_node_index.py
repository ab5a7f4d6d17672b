"""What the index does beside searching, where other processes use the server too."""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.redis.search import RediSearchNodeIndex, SearchSettings
from memory.retrieval.text import terms
from tests.fakes.index_entries import TREE, leaf
from tests.fakes.search_server import FakeSearchServer


class Overtaken(FakeSearchServer):
    """Another process begins each tree's index, and writes, just before this one does."""

    def search_begin(self, keys: Sequence[str], place: str, dimension: str) -> None:
        super().search_begin(keys, place, dimension)
        self.hashes[keys[0]] |= {"seq": "5", "writes": "1"}


def opened(server: FakeSearchServer) -> RediSearchNodeIndex:
    return RediSearchNodeIndex(server, tokenize=terms, settings=SearchSettings(), owns_link=True)


async def test_an_update_of_an_index_that_another_has_begun_meanwhile_is_refused() -> None:
    server = Overtaken()
    index = opened(server)
    assert not await index.update(TREE, after=0, seq=3, upserts=[leaf(1)])
    assert "search_write" not in server.scripts_run, "commits 4 and 5 would be lost from it"
    assert await index.covered(TREE) == 5
