"""`banyan.documents`: each document into its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.agents.consuming import consume

if TYPE_CHECKING:
    from streams.pipelines import Ingesting
    from streams.runtime import Runtime


def register(app: Any, runtime: Runtime[Ingesting]) -> None:
    """Add the agent to a Faust app."""
    topic = app.topic(runtime.topics.documents.name, key_serializer="raw", value_serializer="raw")

    async def documents(stream: Any) -> None:
        await consume(stream, runtime)

    app.agent(topic, name="documents", concurrency=1)(documents)
