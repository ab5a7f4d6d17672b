"""The retrievers inside the real libraries, over every kind of memory that they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode

from memory import open_local_sync
from memory.errors import SettingError, TreeNotFoundError
from streams.client import AsyncClient, Client, ServiceError
from streams.integrations import langchain, llamaindex
from tests.fakes.embedder import FakeEmbedder
from tests.integration.http.served import listening, serving

RECORDS = [
    {
        "id": "t1",
        "speaker": "Ana",
        "conversation": "c",
        "text": "I took the flat in Porto.",
        "at": "2026-05-08T13:56:00Z",
        "mood": "glad",
    },
    {"id": "t2", "speaker": "Ben", "conversation": "c", "text": "The flat in Lisbon was too small.", "at": "2026-05-09"},
    {
        "id": "d1",
        "title": "A tunnel opens",
        "source": "The Post",
        "url": "https://example.org/1",
        "text": "The tunnel opens in June.",
    },
]


@dataclass(frozen=True)
class Sources:
    """Memories that hold the records."""

    waited: list[Any]
    awaited: list[Any]


@asynccontextmanager
async def sources(folder: Path) -> AsyncIterator[Sources]:
    async with serving(folder / "served") as served, listening(served) as port:
        url = f"http://127.0.0.1:{port}"
        await served.memory.ingest(RECORDS, tree="me")
        own = await asyncio.to_thread(open_local_sync, folder / "own", embedder=FakeEmbedder())
        with Client(url) as client:
            async with AsyncClient(url) as asking:
                await asyncio.to_thread(own.ingest, RECORDS, tree="me")
                yield Sources([client, own], [asking, served.memory, client, own])
        await asyncio.to_thread(own.close)


async def test_a_langchain_retriever_gives_the_hits_of_each(tmp_path: Path) -> None:
    async with sources(tmp_path) as given:
        for source in given.waited:
            retriever = langchain.BanyanRetriever(memory=source, tree="me", k=1, filter={"speaker": "Ana", "mood": "glad"})
            [document] = await asyncio.to_thread(retriever.invoke, "Where is the flat?")
            assert isinstance(document, Document)
            assert document.page_content == "I took the flat in Porto."
            known = document.metadata
            assert (known["event_id"], known["speaker"], known["mood"], known["kind"]) == ("t1", "Ana", "glad", "leaf")
            assert known["at"] in ("2026-05-08T13:56:00Z", "2026-05-08T13:56:00+00:00")
            assert known["sources"] == ["t1"]
            assert "title" not in known
        for source in given.awaited:
            [document] = await langchain.BanyanRetriever(memory=source, tree="me", k=1, filter={"kind": "leaf"}).ainvoke("tunnel")
            assert (document.metadata["title"], document.metadata["url"]) == ("A tunnel opens", "https://example.org/1")
            none = langchain.BanyanRetriever(
                memory=source, tree="me", since="2026-05-09", until="2026-05-10", filter={"speaker": "Ana"}
            )
            assert await none.ainvoke("flat") == []
            with pytest.raises((ServiceError, TreeNotFoundError)):
                await langchain.BanyanRetriever(memory=source, tree="nobody").ainvoke("x")


async def test_a_langchain_chain_answers_from_it(tmp_path: Path) -> None:
    async with sources(tmp_path) as given:
        retriever = langchain.BanyanRetriever(memory=given.waited[0], tree="me", filter={"kind": "leaf"})
        prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
        seen: list[str] = []

        def keep(value: Any) -> Any:
            seen.append(value.to_string())
            return value

        packed = retriever | (lambda documents: "\n".join(each.page_content for each in documents))
        chain = {"context": packed, "question": RunnablePassthrough()} | prompt | keep | FakeListChatModel(responses=["In Porto."])
        assert await (chain | StrOutputParser()).ainvoke("Where is Ana's flat?") == "In Porto."
        assert "I took the flat in Porto." in seen[0]


async def test_a_llamaindex_retriever_gives_the_hits_of_each(tmp_path: Path) -> None:
    async with sources(tmp_path) as given:
        for source in given.waited:
            retriever = llamaindex.BanyanRetriever(source, "me", k=1, filter={"speaker": "Ana"})
            [found] = await asyncio.to_thread(retriever.retrieve, "Where is the flat?")
            assert found.score > 0
            assert found.node.metadata["event_id"] == "t1"
            shown = found.node.get_content(MetadataMode.LLM)
            assert "speaker: Ana" in shown
            assert "t1" not in shown
            assert "I took the flat in Porto." in shown
        for source in given.awaited:
            [found] = await llamaindex.BanyanRetriever(source, "me", k=1, filter={"kind": "leaf"}).aretrieve("tunnel")
            assert found.node.metadata["title"] == "A tunnel opens"


async def test_a_llamaindex_engine_answers_from_it(tmp_path: Path) -> None:
    async with sources(tmp_path) as given:
        retriever = llamaindex.BanyanRetriever(given.waited[0], "me", filter={"kind": "leaf"})
        engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
        answer = await asyncio.to_thread(engine.query, "Where is Ana's flat?")
        assert "I took the flat in Porto." in str(answer)
        assert {node.node.metadata["event_id"] for node in answer.source_nodes} == {"t1", "t2", "d1"}


async def test_a_memory_that_can_only_be_awaited_says_what_to_do(tmp_path: Path) -> None:
    async with sources(tmp_path) as given:
        for source in given.awaited[:2]:
            with pytest.raises(SettingError, match="open_local_sync"):
                langchain.BanyanRetriever(memory=source, tree="me").invoke("x")
            with pytest.raises(SettingError, match="asynchronous"):
                llamaindex.BanyanRetriever(source, "me").retrieve("x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tree": "a/b"}, "tree: "),
        ({"tree": "me", "since": "soon"}, "since: "),
        ({"tree": "me", "filter": {"kind": "x"}}, "kind 'x'"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        langchain.BanyanRetriever(memory=None, **options)
    with pytest.raises(ValueError, match=said):
        llamaindex.BanyanRetriever(None, **options)  # type: ignore[arg-type]
