"""`banyan.forgets`: what is to be forgotten out of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.agents.consuming import consume

if TYPE_CHECKING:
    from streams.pipelines import Ingesting
    from streams.runtime import Runtime


def register(app: Any, runtime: Runtime[Ingesting]) -> None:
    """Add the agent to a Faust app."""
    topic = app.topic(runtime.topics.forgets.name, key_serializer="raw", value_serializer="raw")

    async def forgets(stream: Any) -> None:
        await consume(stream, runtime, lambda pipeline: pipeline.erasures)

    app.agent(topic, name="forgets", concurrency=1)(forgets)
