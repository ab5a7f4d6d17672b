"""
Answers by a chat model from what was retrieved, judged by the same model: binary accuracy as in MemTree, section A.2.2.

Every reply is kept on disk by what was asked, so that a run that was stopped goes on, and a repeated one costs nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memory.errors import BanyanError
from memory.ports.summarizer import estimate_tokens
from streams.evaluation.chat import Chat, RefusedPromptError, Reply

ANSWER_PROMPT: Final = """\
Write a high-quality short answer for the given question using only the provided search results (some of which might be irrelevant).

[ Question ]
{query}

[ Search Results ]
{retrieved_content}

[ Output ]
"""
JUDGE_PROMPT: Final = """\
Your task is to check if the predicted answer appropriately responds to the query in a similar way as the ground-truth answer.

Instructions:
- Output ’1’ if the predicted answer addresses the query similarly to the ground-truth answer.
- Output ’0’ if it does not.
- Only output either ’0’ or ’1’. No explanations or extra text.

[ Query ]
{query}

[ Ground-Truth Answer ]
{gt_answer}

[ Predicted Answer ]
{predicted_answer}

[ Output ]
"""
ANSWER_TOKENS: Final = 60
"""What one answer is taken to have when the cost is estimated."""

_VERDICT = re.compile(r"\W*([01])\W*")

Verdict = Literal["correct", "wrong", "unparsable", "unanswered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """One question to be answered and judged."""

    id: str
    category: str
    query: str
    context: str
    """What was retrieved."""
    answer: str
    """The right one."""

    @property
    def prompt(self) -> str:
        """What the model is asked for an answer."""
        return ANSWER_PROMPT.format(query=self.query, retrieved_content=self.context or "(nothing was found)")

    def judge_prompt(self, predicted: str) -> str:
        """What the model is asked for a verdict."""
        return JUDGE_PROMPT.format(query=self.query, gt_answer=self.answer, predicted_answer=predicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an examination will ask of the model, at most; what is known already is not counted."""

    calls: int
    known: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One question's outcome."""

    exam: Exam
    predicted: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """An examination's outcome."""

    judged: tuple[Judged, ...]
    """In the order of the questions; without those that were not reached."""
    calls: int
    known: int
    tokens_in: int
    tokens_out: int
    failure: str
    """Why it ended before all were judged; empty when it did not."""

    def counts(self, category: str | None = None) -> dict[str, int]:
        """Questions by verdict, over all or one category."""
        counts = dict.fromkeys(("correct", "wrong", "unparsable", "unanswered"), 0)
        for each in self.judged:
            if category is None or each.exam.category == category:
                counts[each.verdict] += 1
        return counts

    def accuracy(self, category: str | None = None) -> float | None:
        """Correct answers among those with a verdict; None without any."""
        counts = self.counts(category)
        decided = counts["correct"] + counts["wrong"]
        return counts["correct"] / decided if decided else None

    def answers(self, category: str | None = None) -> list[tuple[str, str]]:
        """Each answer with the right one, over all or one category; without questions that got none."""
        return [
            (each.predicted, each.exam.answer)
            for each in self.judged
            if each.predicted and (category is None or each.exam.category == category)
        ]


def estimate(exams: Sequence[Exam], chat: Chat) -> Estimate:
    """What it will take."""
    calls = known = tokens_in = tokens_out = 0
    for exam in exams:
        reply = chat.known(exam.prompt)
        if reply is None:
            calls += 1
            tokens_in += estimate_tokens(exam.prompt)
            tokens_out += ANSWER_TOKENS
        else:
            known += 1
        judging = exam.judge_prompt(reply.text if reply is not None else "")
        if reply is not None and chat.known(judging) is not None:
            known += 1
            continue
        calls += 1
        tokens_in += estimate_tokens(judging) + (0 if reply is not None else ANSWER_TOKENS)
        tokens_out += 1
    return Estimate(calls=calls, known=known, tokens_in=tokens_in, tokens_out=tokens_out)


async def examine(
    exams: Sequence[Exam], chat: Chat, *, concurrency: int, stop: asyncio.Event, report: Callable[[int, int, str], None]
) -> Marks:
    """
    Answer and judge all questions.

    Args:
        exams: the questions.
        chat: the model; repeats what is worth repeating.
        concurrency: questions at once, 1 or more.
        stop: when set, those begun are finished and the rest is left.
        report: told after each question: done, of how many, detail.

    Returns:
        What was reached. When the model is away for good, the rest is left and `failure` says why: nothing is lost, since
        every reply is kept.
    """
    outcome: dict[int, Judged] = {}
    failures: list[str] = []
    before = chat.spent()
    waiting = iter(enumerate(exams))

    async def work() -> None:
        for number, exam in waiting:
            if stop.is_set() or failures:
                return
            try:
                outcome[number] = await _judge(exam, chat)
            except BanyanError as error:
                failures.append(str(error))
                return
            report(len(outcome), len(exams), "answered and judged")

    await asyncio.gather(*(work() for _ in range(concurrency)))
    after = chat.spent()
    return Marks(
        judged=tuple(outcome[number] for number in sorted(outcome)),
        calls=after.calls - before.calls,
        known=after.known - before.known,
        tokens_in=after.tokens_in - before.tokens_in,
        tokens_out=after.tokens_out - before.tokens_out,
        failure=failures[0] if failures else "",
    )


async def _judge(exam: Exam, chat: Chat) -> Judged:
    predicted = ""
    try:
        predicted = (await chat.ask(exam.prompt)).text
        if not predicted:
            return Judged(exam=exam, predicted="", verdict="unanswered")
        return Judged(exam=exam, predicted=predicted, verdict=verdict(await chat.ask(exam.judge_prompt(predicted))))
    except RefusedPromptError:
        # This one will never be taken; the others may be.
        return Judged(exam=exam, predicted=predicted, verdict="unparsable" if predicted else "unanswered")


def verdict(reply: Reply) -> Verdict:
    """What a judgement says: 0 or 1, quoted or not, and nothing else; anything more is no verdict."""
    found = _VERDICT.fullmatch(reply.text)
    if found is None:
        return "unparsable"
    return "correct" if found[1] == "1" else "wrong"
