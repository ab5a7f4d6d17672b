"""The HTTP contract as Pydantic models: answers about trees, their nodes and their commits; the others are in `models`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from streams.query.models import CrumbOut
from streams.query.shown import (
    LEAF,
    OTHER,
    OTHER_LEAF,
    SUMMARY,
    SUMMARY_TEXT,
    TURNS,
    Answer,
    CommittedAt,
    EventName,
    FirstSeq,
    LastSeq,
    LeafName,
    MadeAt,
    No,
    NoMetadata,
    One,
    Said,
    SaidAt,
    SaidBy,
    SummaryName,
    Summed,
    TreeName,
    Two,
    Zero,
    drawn,
)


class TreeOut(Answer):
    """What a tree is."""

    model_config = ConfigDict(extra="allow")
    tree: TreeName
    structure: str = Field(examples=["memtree"])
    strategies: list[str] = Field(
        description="Ways to search it, the default first.", examples=[["hybrid", "collapsed", "traversal", "bm25"]]
    )
    embedder: str = Field(examples=["local:all-MiniLM-L6-v2"])
    dimension: int = Field(examples=[384])
    created_at: MadeAt
    seq: LastSeq


class TreesOut(Answer):
    """A page of trees, by name."""

    trees: list[TreeOut]
    next: str | None = Field(description="Give as `after` for the next page; null at the end.")


class StatsOut(TreeOut):
    """What a tree is and holds."""

    shown: ClassVar[Mapping[str, Any]] = {
        "parameters": {"base": 0.4, "rate": 0.5, "depth_max": 8.0},
        "oldest_pending_at": None,
        "failing": [],
        "tokens_in": 0,
        "tokens_out": 0,
        "rewrites": 1,
        "rewrites_per_item": 0.5,
        "cost": None,
    }
    events: Two
    nodes: int = Field(examples=[3])
    leaves: Two
    summaries: One
    depth_max: Two
    depth_median: float = Field(examples=[2.0])
    branching: float = Field(examples=[1.5])
    pending: Zero = Field(description="Summaries that are not up to date.")
    contributions: Zero
    depths: dict[str, int] = Field(examples=[{"1": 1, "2": 2}])
    llm_calls: Zero
    llm_calls_per_item: float = Field(examples=[0.0])
    bytes: int = Field(examples=[61_440])


class NodeBelow(Answer):
    """What is said of every node that is shown below another."""

    id: LeafName
    kind: str = Field(examples=["leaf"])
    depth: Two
    text: Said
    descendants: Zero
    pending: Zero
    provisional: No
    event_id: EventName | None
    speaker: SaidBy | None
    at: SaidAt | None


class ChildOut(NodeBelow):
    """A node below another."""

    kind: Literal["leaf", "summary"]


class NodeOut(Answer):
    """One node, and a page of its children."""

    shown: ClassVar[Mapping[str, Any]] = {
        "kind": "summary",
        "path": [],
        "children": [ChildOut.example(), ChildOut.example(**OTHER)],
    }
    id: SummaryName
    parent: str | None = Field(examples=["root"])
    kind: Literal["root", "leaf", "summary"]
    depth: One
    version: Two
    text: Summed
    descendants: Two
    pending: Zero
    provisional: No
    event_id: str | None
    chunk: int | None
    chunks: int | None
    conversation: str | None
    speaker: str | None
    at: datetime | None
    title: str | None
    source: str | None
    url: str | None
    metadata: NoMetadata
    attributes: dict[str, str | float] = Field(examples=[{}])
    sources: list[str] = Field(examples=[list(TURNS)])
    created_seq: Two = Field(description="The commit that made it.")
    path: list[CrumbOut] = Field(description="The summaries above it, the uppermost first.")
    children: list[ChildOut] = Field(description="In the order asked for.")
    next: int | None = Field(description="Give as `after` for the next page of children; null at the end.")


class DrawnNode(NodeBelow):
    """One node of a drawn tree."""

    shown: ClassVar[Mapping[str, Any]] = drawn(NodeBelow.example(), above={"descendants": 2}, texts=(SUMMARY_TEXT, ""), hidden=0)
    kind: Literal["root", "leaf", "summary"]
    children: list[DrawnNode]
    hidden: int


class PastNode(Answer):
    """One node as it lay then. A summary's text of that time is not kept."""

    shown: ClassVar[Mapping[str, Any]] = drawn(
        {"id": LEAF, "kind": "leaf", "depth": 2, "leaves": 0, "event_id": TURNS[0], "text": "We took the flat in Porto."},
        above={"leaves": 2},
        texts=(None, None),
        hidden=0,
    )
    id: str
    kind: Literal["root", "leaf", "summary"]
    depth: int
    leaves: int
    event_id: str | None
    text: str | None
    children: list[PastNode]
    hidden: int


class PastOut(Answer):
    """The tree's shape after a commit."""

    tree: TreeName
    seq: Two
    nodes: int = Field(examples=[3])
    leaves: Two
    root: PastNode


class EventRead(Answer):
    """An event that the tree has."""

    event_id: EventName
    seq: FirstSeq
    leaves: list[ChildOut]


class MadeOut(Answer):
    """A node that a commit made or moved."""

    id: str = Field(examples=[SUMMARY])
    parent: str = Field(examples=["root"])
    kind: str | None = Field(examples=["summary"])
    depth: One


class CommitOut(Answer):
    """One commit."""

    shown: ClassVar[Mapping[str, Any]] = {
        "created": [MadeOut.example(), MadeOut.example(id=OTHER_LEAF, parent=SUMMARY, kind="leaf", depth=2)],
        "moved": [MadeOut.example(id=LEAF, parent=SUMMARY, kind=None, depth=2)],
    }
    seq: Two
    at: CommittedAt
    events: list[str] = Field(examples=[[TURNS[1]]])
    created: list[MadeOut]
    moved: list[MadeOut]
    rewritten: list[str] = Field(description="Summaries that got a new text.", examples=[[]])
    removed: list[str] = Field(description="Nodes that went.", examples=[[]])
    forgotten: list[str] = Field(description="Events that were forgotten, by their ids.", examples=[[]])


class CommitsOut(Answer):
    """A page of commits."""

    commits: list[CommitOut]
    seq: LastSeq = Field(description="The tree's last commit.")
    next: int | None = Field(description="Give as `after` for the next page; null at the end.")
