"""
Summaries of conversations against those that people wrote (HAT, slides "Dataset and Evaluation": Multi-Session Chat).

A row of Multi-Session Chat has the sessions of two speakers and, as `personas`, what was known of each at the end of the session
before the last: the gold summary. Each conversation becomes a tree of its own from the turns up to there; what its uppermost
summaries say is compared with the gold summary of both speakers, and so are the statements of both speakers' profiles, which is how
the gold is written: as what each would say of themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from memory.facade import LocalMemory
from memory.model import NodeKind
from memory.records import Turn
from memory.results import TreeNode
from memory.tree.provisional import without_phrases
from streams.evaluation import overlap
from streams.evaluation.dataset import DatasetError

FILE: Final = "session3_test.jsonl"
SPEAKERS: Final = ("Speaker 1", "Speaker 2")
METRICS: Final = ("f1", "bleu_1", "bleu_2", "distinct_1", "distinct_2")
_SPEAKER = re.compile(r"\bSpeaker [12](?: \(\d{4}-\d\d-\d\d\))?:\s*")
_NOT_IN_A_TREE_NAME = re.compile(r"[^A-Za-z0-9._:-]+")


class _Session(msgspec.Struct):
    turns: list[str]


class _Row(msgspec.Struct):
    personas: list[list[str]]
    sessions: list[_Session]
    id: str | int = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation up to the session that is summarized."""

    tree: str
    records: tuple[Turn, ...]
    session: int
    """Number of the last session in it, from 1."""
    gold: str


def load(folder: Path) -> list[Conversation]:
    """
    Read `session3_test.jsonl` of a folder.

    Raises:
        DatasetError: no such file, a line that cannot be used, or nothing in it.
    """
    path = folder / FILE
    if not path.is_file():
        raise DatasetError(f"{folder} has no {FILE}; msc is a folder with it")
    found: list[Conversation] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Row)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path}:{number}: {error}") from error
        if len(row.sessions) < 2 or not any(map(len, row.personas)):
            raise DatasetError(f"{path}:{number}: needs two sessions or more, and personas")
        tree = f"msc-{number}-" + _NOT_IN_A_TREE_NAME.sub("-", str(row.id))[:60]
        turns = [
            (f"s{session}-t{turn}", f"s{session}", SPEAKERS[1 - turn % 2], text)
            for session, each in enumerate(row.sessions[:-1], 1)
            for turn, text in enumerate(each.turns, 1)
            if text.strip()
        ]
        found.append(
            Conversation(
                tree=tree,
                records=tuple(
                    Turn(tree=tree, id=id_, text=text, conversation=within, speaker=who) for id_, within, who, text in turns
                ),
                session=len(row.sessions) - 1,
                gold=" ".join(said for persona in row.personas for said in persona),
            )
        )
    if not found:
        raise DatasetError(f"{path} has no conversation")
    return found


async def summary_of(memory: LocalMemory, tree: str) -> str:
    """What the uppermost summaries of a tree say, those with most leaves first, without who said it."""
    drawn: TreeNode = await memory.tree(tree, depth=1, children=1_000)
    texts = [without_phrases(node.text) for node in drawn.children if node.kind is NodeKind.SUMMARY]
    return _SPEAKER.sub("", "\n".join(texts)).strip()


async def statements_of(memory: LocalMemory, tree: str) -> str:
    """What both speakers say of themselves, by their profiles."""
    profiles = [await memory.profile(tree, speaker) for speaker in SPEAKERS]
    return "\n".join(fact.text for profile in profiles if profile is not None for fact in profile.facts)


def score(summary: str, gold: str) -> dict[str, float]:
    """All metrics of one summary, and the words of both."""
    said, wanted = overlap.words(summary), overlap.words(gold)
    return {
        "f1": overlap.f1(said, wanted),
        "bleu_1": overlap.bleu(said, wanted, 1) if said else 0.0,
        "bleu_2": overlap.bleu(said, wanted, 2) if said else 0.0,
        "distinct_1": overlap.distinct(said, 1),
        "distinct_2": overlap.distinct(said, 2),
        "words": float(len(said)),
        "gold_words": float(len(wanted)),
    }


def outcome(
    scores: Sequence[Mapping[str, float]],
    profiles: Sequence[Mapping[str, float]],
    *,
    session: int,
    structure: str,
    summarizer: str,
    calls: int,
) -> dict[str, Any]:
    """The means over conversations, as `--json` prints them, of summaries and (`profiles`) of statements; overlaps in percent."""
    return {
        "format": "msc",
        "conversations": len(scores),
        "session": session,
        "structure": structure,
        "summarizer": summarizer,
        "llm_calls": calls,
        **_means(scores),
        "profiles": _means(profiles),
    }


def _means(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    means = {name: math.fsum(each[name] for each in scores) / len(scores) for name in scores[0]}
    return {
        **{name: round(100 * means[name], 2) for name in ("f1", "bleu_1", "bleu_2")},
        **{name: round(means[name], 3) for name in ("distinct_1", "distinct_2")},
        **{name: round(means[name], 1) for name in ("words", "gold_words")},
    }
