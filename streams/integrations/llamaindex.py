"""
A retriever for LlamaIndex (extra `llamaindex`).

    from streams.client import Client
    from streams.integrations.llamaindex import BanyanRetriever

    retriever = BanyanRetriever(Client("http://localhost:8000", key="banyan_…"), "user-42")
    nodes = retriever.retrieve("Where does Ana live?")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from streams.integrations.asking import Asking, about, ask, ask_async

if TYPE_CHECKING:
    from streams.integrations.asking import Source

_FOR_MODELS = frozenset({"speaker", "at", "title", "source"})
"""Metadata that a model reads with the text; of the rest it learns nothing."""


class BanyanRetriever(BaseRetriever):  # type: ignore[misc]  # its types are not followed
    """
    The texts of one tree that answer a question, best first, as nodes with scores.

    A node's text is the hit's, its `node_id` the tree's, and its `metadata` as in `streams.integrations.langchain`; models see
    `speaker`, `at`, `title` and `source` with it. Any question raises what the memory raises (`memory.errors`, and
    `streams.client.ServiceError` of a client).

    Args:
        memory: `streams.client.Client` or `AsyncClient`, or what `memory.open_local_sync` or `open_local` gives; closed by whoever
            made it. Those that can only be awaited answer `aretrieve` alone.
        tree: which memory.
        k: most nodes.
        strategy: how the question is answered.
        filter: as over HTTP: `kind`, `speaker`, `conversation`, `source`, names of metadata; all must hold.
        since, until: of what was said or published, ISO 8601; the end is not in it.
        group: one node a conversation or document, its best.
        options: of `BaseRetriever`.

    Raises:
        RecordError: the tree's name, or a time, cannot be.
        QueryError: a filter cannot be.
    """

    def __init__(
        self,
        memory: Source,
        tree: str,
        *,
        k: int = 10,
        strategy: str = "hybrid",
        filter: Mapping[str, str | float | bool] | None = None,  # noqa: A002  # as everywhere else
        since: str | None = None,
        until: str | None = None,
        group: Literal["none", "conversation", "document"] = "none",
        **options: Any,
    ) -> None:
        self._memory = memory
        self._asking = Asking(tree=tree, k=k, strategy=strategy, filter=filter or {}, since=since, until=until, group=group)
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in ask(self._memory, self._asking, query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in await ask_async(self._memory, self._asking, query_bundle.query_str)]


def _node(hit: Mapping[str, Any]) -> NodeWithScore:
    metadata = about(hit)
    hidden = [name for name in metadata if name not in _FOR_MODELS]
    node = TextNode(
        id_=hit["id"],
        text=hit["text"],
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=hit["score"])
