"""
A client of the HTTP service (docs/http.md), plain and asynchronous; needs httpx alone.

    from streams.client import Client

    with Client("http://localhost:8000", key="banyan_…") as banyan:
        banyan.put("user-42", [{"id": "t-1", "speaker": "Ana", "text": "I moved to Porto in May."}])
        print(banyan.search("user-42", "Where does Ana live?", wait_for="t-1")["hits"][0]["text"])
"""

from __future__ import annotations

from streams.client.answers import Commit, ContextAnswer, EventResult, ForgetAnswer, Hit, SearchAnswer, TreeInfo
from streams.client.asynchronous import AsyncClient
from streams.client.exchange import ServiceAwayError, ServiceError
from streams.client.plain import Client

__all__ = [
    "AsyncClient",
    "Client",
    "Commit",
    "ContextAnswer",
    "EventResult",
    "ForgetAnswer",
    "Hit",
    "SearchAnswer",
    "ServiceAwayError",
    "ServiceError",
    "TreeInfo",
]
