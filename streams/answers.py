"""Answers as JSON values: the same shape on the command line and over HTTP (design sections 9 and 10)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from memory.model import TreeInfo
from memory.results import CheckReport, Hit, Profile, SearchAnswer, Speaker, TreeNode, TreeReport
from memory.retrieval.catalogue import strategies_for
from memory.service.query import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a million tokens cost, in any currency."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost."""
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1_000_000


def answer_json(answer: SearchAnswer, *, explain: bool = False) -> dict[str, Any]:
    """`{"hits": […], "seq": …, "strategy": …}`; with `explain` also `trace`, and `parts` in each hit."""
    value: dict[str, Any] = {
        "hits": [hit_json(hit, explain=explain) for hit in answer.hits],
        "seq": answer.seq,
        "strategy": answer.strategy,
    }
    return {**value, "trace": list(answer.trace)} if explain else value


def context_json(packed: Context) -> dict[str, Any]:
    """`{"text": …, "tokens": …, "hits": […], "filtered": …, "note": …}`."""
    return {
        "text": packed.text,
        "tokens": packed.tokens,
        "hits": [hit_json(hit) for hit in packed.hits],
        "filtered": packed.filtered,
        "note": packed.note,
    }


def hit_json(hit: Hit, *, explain: bool = False) -> dict[str, Any]:
    """One hit. A leaf's fields are called as in the record it came from; a summary has null there."""
    origin = hit.source
    value = {
        "id": hit.id,
        "event_id": hit.event_id,
        "chunk": hit.chunk,
        "kind": hit.kind.value,
        "score": hit.score,
        "text": hit.text,
        "conversation": origin.conversation if origin else None,
        "speaker": origin.speaker if origin else None,
        "at": origin.at if origin else None,
        "title": origin.title if origin else None,
        "source": origin.source if origin else None,
        "url": origin.url if origin else None,
        "metadata": dict(hit.metadata),
        "sources": list(hit.sources),
        "depth": hit.depth,
        "path": [{"id": crumb.id, "text": crumb.text} for crumb in hit.path],
        "descendants": hit.descendants,
        "pending": hit.pending,
        "provisional": hit.provisional,
    }
    return {**value, "parts": dict(hit.parts)} if explain else value


def node_json(node: TreeNode) -> dict[str, Any]:
    """One node of a drawn tree, its children below `children`."""
    value = {each.name: getattr(node, each.name) for each in fields(node)}
    return {**value, "kind": node.kind.value, "children": [node_json(child) for child in node.children]}


def tree_json(info: TreeInfo) -> dict[str, Any]:
    """What a tree is."""
    return {
        "tree": info.id,
        "structure": info.structure,
        "strategies": list(strategies_for(info.structure)),
        "embedder": info.model.name,
        "dimension": info.model.dimension,
        "created_at": info.created_at,
        "seq": info.seq,
    }


def speaker_json(speaker: Speaker) -> dict[str, Any]:
    """Somebody who speaks in a tree."""
    return {"speaker": speaker.name, "turns": speaker.turns, "last_at": speaker.last_at}


def profile_json(profile: Profile) -> dict[str, Any]:
    """Who a speaker is."""
    facts = [{"event_id": each.event_id, "text": each.text, "at": each.at, "weight": each.weight} for each in profile.facts]
    return {
        "tree": profile.tree,
        "speaker": profile.speaker,
        "turns": profile.turns,
        "conversations": profile.conversations,
        "first_at": profile.first_at,
        "last_at": profile.last_at,
        "phrases": list(profile.phrases),
        "facts": facts,
        "seq": profile.seq,
    }


def stats_json(report: TreeReport, *, prices: Prices | None = None) -> dict[str, Any]:
    """What a tree holds and has cost, by name; `cost` is null without prices."""
    value = {each.name: getattr(report, each.name) for each in fields(report)}
    return {
        **value,
        "failing": [{each.name: getattr(one, each.name) for each in fields(one)} for one in report.failing],
        "cost": None if prices is None else prices.of(report.tokens_in, report.tokens_out),
        "parameters": dict(report.parameters),
        "depths": {str(depth): count for depth, count in sorted(report.depths.items())},
    }


def check_json(report: CheckReport) -> dict[str, Any]:
    """What a check found."""
    return {
        "tree": report.tree,
        "clean": report.clean,
        "seq": report.seq,
        "nodes": report.nodes,
        "replayed": report.replayed,
        "unverifiable": report.unverifiable,
        "violations": [{"invariant": each.invariant, "node": each.node, "detail": each.detail} for each in report.violations],
    }
