"""Forgetting over HTTP: one event by its address, or several, a conversation, or a past by what names them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from memory.model import TreeId
from memory.records import parse_forget, tree_id
from memory.results import ForgetReport
from streams.query import models, requests
from streams.query.guard import GuardedRoute, rule
from streams.query.keys import Right
from streams.query.problems import invalid
from streams.query.reading import EventPath, Tree, json_answer, service_of

router = APIRouter(prefix="/v1", route_class=GuardedRoute, tags=["forget"])
_SENT: dict[int | str, dict[str, Any]] = {202: {"model": models.ForgetSent, "description": "Kafka has it; a worker forgets then."}}


@router.delete(
    "/trees/{tree}/events/{event:path}", response_model=models.ForgetOut, responses=_SENT, summary="Forget one event for good"
)
@rule(Right.WRITE)
async def forget_event(request: Request, tree: Tree, event: EventPath) -> Response:
    """
    A turn, a document or feedback. Answered when nothing of it is left in the tree; one that has not come is not taken later.

    Repeating it changes nothing.
    """
    return await _forget(request, tree, events=[event])


@router.post("/trees/{tree}/forget", response_model=models.ForgetOut, responses=_SENT, summary="Forget for good")
@rule(Right.WRITE)
async def forget(request: Request, tree: Tree, asked: requests.ForgetRequest) -> Response:
    """
    Events, the turns of a conversation, or all that was said or published before a time. Answered when nothing of it is left.

    Repeating it changes nothing; after a time-out, repeat it until it is answered.
    """
    named = [name for name in ("events", "conversation", "before") if getattr(asked, name) is not None]
    if len(named) != 1:
        said = f"{' and '.join(named)} are given" if named else "none is given"
        raise invalid([{"field": "events", "reason": f"of events, conversation and before exactly one is wanted; {said}"}])
    most = request.app.state.guard.settings.batch_records_max
    if asked.events is not None and len(asked.events) > most:
        raise invalid([{"field": "events", "reason": f"has {len(asked.events):,}, at most {most:,} are forgotten at once"}])
    return await _forget(request, tree, events=asked.events or (), conversation=asked.conversation, before=asked.before)


async def _forget(
    request: Request, tree: str, *, events: list[str] | tuple[()], conversation: str | None = None, before: str | None = None
) -> Response:
    name = TreeId(tree_id(tree))
    # By what checks them on the topic.
    for event in events:
        parse_forget({"id": "forget", "event": event}, tree=tree)
    when: datetime | None = None
    if not events:
        when = parse_forget({"id": "forget", "conversation": conversation, "before": before}, tree=tree).before
    done = await service_of(request).forget(name, events=tuple(dict.fromkeys(events)), conversation=conversation, before=when)
    if isinstance(done, ForgetReport):
        return json_answer(asdict(done))
    return json_answer({"tree": name, "forgets": list(done)}, 202)
