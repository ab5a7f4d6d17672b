"""
A retriever for LangChain (extra `langchain`).

    from streams.client import Client
    from streams.integrations.langchain import BanyanRetriever

    retriever = BanyanRetriever(memory=Client("http://localhost:8000", key="banyan_…"), tree="user-42")
    documents = retriever.invoke("Where does Ana live?")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from streams.integrations.asking import Asking, about, ask, ask_async


class BanyanRetriever(BaseRetriever):  # type: ignore[misc]  # its types are not followed
    """
    The texts of one tree that answer a question, best first.

    A document's `page_content` is the text, its `id` the node's, and its `metadata` the record's own, and `event_id`, `speaker`,
    `conversation`, `at`, `title`, `source`, `url`, `topics` above it, `sources`, `pending`, `kind`, `score`. Any question raises
    what the memory raises (`memory.errors`, and `streams.client.ServiceError` of a client).

    Raises:
        pydantic.ValidationError: the tree's name, a time or a filter cannot be.
    """

    memory: Any = Field(exclude=True, repr=False)
    """`streams.client.Client` or `AsyncClient`, or what `memory.open_local_sync` or `open_local` gives; closed by whoever made it.
    Those that can only be awaited answer `ainvoke` alone."""
    tree: str
    k: int = 10
    """Most documents."""
    strategy: str = "hybrid"
    filter: Mapping[str, str | float | bool] = Field(default_factory=dict)
    """As over HTTP: `kind`, `speaker`, `conversation`, `source`, names of metadata; all must hold."""
    since: str | None = None
    """Only what was said or published at this time or later, ISO 8601."""
    until: str | None = None
    """Only what was said or published before this time."""
    group: Literal["none", "conversation", "document"] = "none"
    """One document a conversation or document, its best."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse at once what cannot be asked."""
        super().model_post_init(context)
        self._asking()

    def _asking(self) -> Asking:
        return Asking(
            tree=self.tree,
            k=self.k,
            strategy=self.strategy,
            filter=self.filter,
            since=self.since,
            until=self.until,
            group=self.group,
        )

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:  # noqa: ARG002
        return [_document(hit) for hit in ask(self.memory, self._asking(), query)]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        return [_document(hit) for hit in await ask_async(self.memory, self._asking(), query)]


def _document(hit: Mapping[str, Any]) -> Document:
    return Document(id=hit["id"], page_content=hit["text"], metadata=about(hit))
