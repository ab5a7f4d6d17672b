"""Questions over HTTP: search, context, explain, and a look at trees, nodes, events and the past."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from memory.errors import RecordError
from memory.model import EventId, Mark, NodeId, NodeKind, TreeId
from memory.ports.index import Scope
from memory.records import TREE_PATTERN, parse_time, tree_id
from streams import answers
from streams.query import models, requests, shapes, tree_models
from streams.query.drawing import MappedNode
from streams.query.guard import GuardedRoute
from streams.query.keys import Key
from streams.query.problems import Problem, invalid
from streams.query.service import Service, Wanted

router = APIRouter(prefix="/v1", route_class=GuardedRoute)
_FIELDS = ("speaker", "conversation", "source")

Tree = Annotated[str, Path(description="Name of the tree.", pattern=TREE_PATTERN, openapi_examples={"chat": {"value": "user-42"}})]
EventPath = Annotated[str, Path(description="The record's id.", min_length=1, max_length=256)]


def service_of(request: Request) -> Service:
    """The service behind the application."""
    found: Service = request.app.state.service
    return found


def json_answer(value: object, status: int = 200) -> Response:
    """JSON, as orjson writes it: times as ISO 8601, NaN as null."""
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), status, media_type="application/json")


@router.get("/trees", response_model=tree_models.TreesOut, tags=["trees"], summary="Trees that the key reaches")
async def list_trees(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    after: Annotated[str, Query(max_length=128, description="Name of the last tree of the page before.")] = "",
) -> Response:
    """Trees by name."""
    key: Key = request.state.key
    found = [info for info in await service_of(request).trees() if info.id > after and key.reaches(info.id)]
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    return json_answer({"trees": [answers.tree_json(info) for info in page], "next": following})


@router.get("/trees/{tree}", response_model=tree_models.StatsOut, tags=["trees"], summary="What a tree is and holds")
async def show_tree(request: Request, tree: Tree) -> Response:
    """Identity, counts, shape and cost."""
    info, report = await service_of(request).stats(tree_id(tree))
    return json_answer({**answers.tree_json(info), **answers.stats_json(report)})


@router.post(
    "/trees/{tree}/search", response_model=models.SearchOut, response_model_exclude_none=True, tags=["ask"], summary="Search"
)
async def search(request: Request, tree: Tree, asked: requests.SearchRequest) -> Response:
    """The turns, chunks and summaries that answer a question. Everything committed before the request is looked at."""
    answer, degraded = await service_of(request).search(
        tree_id(tree),
        asked.query,
        k=asked.k,
        strategy=asked.strategy,
        scope=_scope(asked),
        group=asked.group,
        explain=asked.explain,
        wanted=_wanted(asked),
    )
    return json_answer({**answers.answer_json(answer, explain=asked.explain), "degraded": degraded})


@router.post("/trees/{tree}/context", response_model=models.ContextOut, tags=["ask"], summary="Text for a prompt")
async def context(request: Request, tree: Tree, asked: requests.ContextRequest) -> Response:
    """Hits packed into a token budget, in time order."""
    packed, degraded = await service_of(request).context(
        tree_id(tree),
        asked.query,
        tokens=asked.tokens,
        strategy=asked.strategy,
        scope=_scope(asked),
        context_filter=asked.context_filter,
        wanted=_wanted(asked),
    )
    return json_answer({**answers.context_json(packed), "seq": packed.seq, "degraded": degraded})


@router.get("/trees/{tree}/speakers", response_model=models.SpeakersOut, tags=["trees"], summary="Who speaks in a tree")
async def list_speakers(request: Request, tree: Tree) -> Response:
    """Speakers, those with most turns first; 1,000 at most."""
    found = await service_of(request).memory.speakers(tree_id(tree))
    return json_answer({"speakers": [answers.speaker_json(each) for each in found]})


@router.get("/trees/{tree}/profile", response_model=models.ProfileOut, tags=["trees"], summary="Who a speaker is")
async def show_profile(
    request: Request,
    tree: Tree,
    speaker: Annotated[str, Query(description="As in the turns.", min_length=1, max_length=1024)],
    facts: Annotated[int, Query(ge=0, le=100, description="Most statements.")] = 20,
) -> Response:
    """What they speak about, what they say of themselves, and when they spoke; to be put into a prompt beside what is found."""
    found = await service_of(request).memory.profile(tree_id(tree), speaker, facts=facts)
    if found is None:
        raise Problem("speaker-not-found", f"nobody of the name {speaker[:100]!r} speaks in tree {tree!r}")
    return json_answer(answers.profile_json(found))


@router.get("/trees/{tree}/explain", response_model=models.ExplainOut, tags=["ask"], summary="A search with its reasons")
async def explain(
    request: Request,
    tree: Tree,
    query: Annotated[str, Query(examples=["Where does Ana live now?"])],
    k: Annotated[int, Query(ge=1, le=100)] = 10,
    strategy: Annotated[str, Query(max_length=32)] = "hybrid",
) -> Response:
    """What each score is made of, what the strategy did, and how a text like the question would go down the tree."""
    service = service_of(request)
    name = tree_id(tree)
    answer, degraded = await service.search(name, query, k=k, strategy=strategy, scope=Scope(), explain=True, wanted=Wanted())
    route = shapes.decisions_json(await service.would_go(name, query))
    return json_answer({**answers.answer_json(answer, explain=True), "degraded": degraded, "route": route})


@router.get("/trees/{tree}/tree", response_model=tree_models.DrawnNode, tags=["trees"], summary="The tree, to be drawn")
async def draw(
    request: Request,
    tree: Tree,
    depth: Annotated[int, Query(ge=0, le=64, description="Levels below the node.")] = 2,
    children: Annotated[int, Query(ge=1, le=100, description="Most children of one node, those with most leaves first.")] = 20,
    node: Annotated[str, Query(max_length=256, description="Where to start.")] = "root",
) -> Response:
    """A node and what is below it."""
    if children**depth > DRAWN_MAX:
        raise invalid([{"field": "depth", "reason": f"with {children} children asks for more than {DRAWN_MAX:,} nodes"}])
    return json_answer(answers.node_json(await service_of(request).memory.tree(tree, depth=depth, children=children, node=node)))


DRAWN_MAX = 20_000


@router.get("/trees/{tree}/nodes/{node}", response_model=tree_models.NodeOut, tags=["trees"], summary="One node")
async def show_node(
    request: Request,
    tree: Tree,
    node: Annotated[str, Path(description="`root`, or an id from an answer.", max_length=256)],
    limit: Annotated[int, Query(ge=0, le=1_000, description="Most children.")] = 100,
    after: Annotated[int, Query(ge=0, le=2**62, description="`next` of the page before.")] = 0,
    order: Annotated[Literal["created", "size"], Query(description="Of children: by creation, or most leaves first.")] = "created",
) -> Response:
    """Text, sources, version, what is pending, the summaries above it, and its children."""
    service, name = service_of(request), tree_id(tree)
    found, path, sources = await service.node(name, NodeId(node))
    following: int | None
    if order == "size":
        children, following = await service.drawing.page_by_size(name, found.id, limit=limit, after=after)
    else:
        children = await service.store.children(name, found.id, limit=limit, after=Mark(after)) if limit else []
        following = children[-1].mark if limit and len(children) == limit else None
    return json_answer({**shapes.node_json(found, path, children, sources), "next": following})


@router.get("/trees/{tree}/map", response_model=MappedNode, tags=["trees"], summary="The largest parts of a tree")
async def draw_map(
    request: Request,
    tree: Tree,
    node: Annotated[str, Query(max_length=256, description="Where to start.")] = "root",
    nodes: Annotated[int, Query(ge=0, le=2_000, description="Most nodes, besides the first.")] = 400,
    children: Annotated[int, Query(ge=1, le=500, description="Most children of one node, those with most leaves first.")] = 100,
    characters: Annotated[int, Query(ge=1, le=10_000, description="Of each text; longer ones are cut.")] = 160,
) -> Response:
    """For a picture of a tree of any size: whatever has most leaves is opened next, until there are enough nodes."""
    drawing = service_of(request).drawing
    value = await drawing.largest(tree_id(tree), NodeId(node), nodes=nodes, children=children, characters=characters)
    return json_answer(value)


# Ids of events are the callers', and may hold slashes.


@router.get(
    "/trees/{tree}/events/{event:path}/route",
    response_model=models.EventRouteOut,
    tags=["events"],
    summary="Why an event lies where it lies",
)
async def show_route(
    request: Request, tree: Tree, event: Annotated[str, Path(description="The record's id.", max_length=256)]
) -> Response:
    """At each depth the best child, its similarity, the threshold and the decision, on the tree as it stood then."""
    if not (request.scope.get("raw_path") or b"/route").endswith(b"/route"):
        # The slash was escaped, so that the word is the end of the event's own id.
        return await show_event(request, tree, f"{event}/route")
    return json_answer(shapes.route_json(await service_of(request).route(tree_id(tree), EventId(event))))


@router.get("/trees/{tree}/events/{event:path}", response_model=tree_models.EventRead, tags=["events"], summary="One event")
async def show_event(request: Request, tree: Tree, event: EventPath) -> Response:
    """The commit that an event came with, and its leaves."""
    receipt, nodes = await service_of(request).event(tree_id(tree), EventId(event))
    leaves = [shapes.child_json(nodes[leaf]) for leaf in receipt.leaves if leaf in nodes]
    return json_answer({"event_id": receipt.event_id, "seq": receipt.seq, "leaves": leaves})


@router.get("/trees/{tree}/as-of/{seq}", response_model=tree_models.PastOut, tags=["trees"], summary="The tree after a past commit")
async def as_of(
    request: Request,
    tree: Tree,
    seq: Annotated[int, Path(ge=0, le=requests.SEQ_MAX)],
    depth: Annotated[int, Query(ge=0, le=64)] = 2,
    children: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Its shape. Texts of leaves are as they were; those of summaries are not kept."""
    if children**depth > DRAWN_MAX:
        raise invalid([{"field": "depth", "reason": f"with {children} children asks for more than {DRAWN_MAX:,} nodes"}])
    service = service_of(request)
    name = TreeId(tree_id(tree))
    outline = await service.as_of(name, seq)
    # Aside: a tree of the past may be as large as that of today, and other answers must not wait for it.
    past = await asyncio.to_thread(shapes.Past, outline, depth=depth, children=children)
    leaves = await service.store.nodes(name, await asyncio.to_thread(past.shown_leaves))
    root = await asyncio.to_thread(past.json, leaves)
    return json_answer({"tree": name, "seq": seq, "nodes": len(outline) - 1, "leaves": past.leaves, "root": root})


def _wanted(asked: requests.Asking) -> Wanted:
    return Wanted(min_seq=asked.min_seq, event=asked.wait_for, seconds=asked.wait_seconds)


def _scope(asked: requests.Asking) -> Scope:
    """
    What the filters ask for.

    Raises:
        Problem: one cannot be.
    """
    given = {name: _text(value) for name, value in asked.filter.items()}
    kind = given.pop("kind", None)
    if kind not in (None, NodeKind.LEAF.value, NodeKind.SUMMARY.value):
        raise invalid([{"field": "filter.kind", "reason": "is neither leaf nor summary"}])
    named = {name: given.pop(name, None) for name in _FIELDS}
    try:
        since = parse_time("since", asked.since) if asked.since is not None else None
        until = parse_time("until", asked.until) if asked.until is not None else None
    except RecordError as error:
        raise invalid([{"field": error.field, "reason": error.reason}]) from error
    return Scope(kinds=frozenset({NodeKind(kind)}) if kind else None, since=since, until=until, metadata=given, **named)


def _text(value: requests.FilterValue) -> str:
    """As the index keeps metadata."""
    return str(value).lower() if isinstance(value, bool) else str(value)
