"""`banyan.feedback`: what users approve of or rebut into the weights of what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.agents.consuming import consume

if TYPE_CHECKING:
    from streams.pipelines import Ingesting
    from streams.runtime import Runtime


def register(app: Any, runtime: Runtime[Ingesting]) -> None:
    """Add the agent to a Faust app."""
    topic = app.topic(runtime.topics.feedback.name, key_serializer="raw", value_serializer="raw")

    async def feedback(stream: Any) -> None:
        await consume(stream, runtime, lambda pipeline: pipeline.opinions)

    app.agent(topic, name="feedback", concurrency=1)(feedback)
