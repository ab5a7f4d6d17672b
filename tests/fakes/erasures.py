"""What takes forgets from Kafka, over a world's store."""

from __future__ import annotations

import structlog

from memory.service.forgetting import Forgetting
from streams.agents.erasures import Erasures
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters
from streams.job_topic import JobTopic
from streams.retrying import Retry
from tests.fakes.world import World


def erasing(
    world: World,
    *,
    jobs: JobTopic,
    dead: DeadLetters,
    retry: Retry,
    log: structlog.stdlib.BoundLogger,
    commits: CommitTopic | None = None,
    forgetting: type[Forgetting] = Forgetting,
) -> Erasures:
    """As a worker puts it together."""
    case = forgetting(store=world.store, jobs=jobs, clock=world.clock, views=world.views)
    case.on_forgotten(world.ingest.forget)

    async def opened() -> Forgetting:
        return case

    return Erasures(
        opened=opened, make=world.ingest.ensure_tree, store=world.store, jobs=jobs, commits=commits, dead=dead, retry=retry, log=log
    )
