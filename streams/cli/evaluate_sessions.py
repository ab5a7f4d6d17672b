"""`banyan eval msc`: summaries of conversations against those that people wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.cli.app import Exit
from streams.cli.console import counted
from streams.cli.ingest import wait_for_summaries

if TYPE_CHECKING:
    import asyncio

    from streams.cli.common import Session
    from streams.settings import Settings


async def measure(session: Session, folder: Path, stop: asyncio.Event) -> int:
    """
    Measure and show.

    Args:
        session: with settings and output.
        folder: of the data.
        stop: when set, the rest is left.

    Returns:
        The exit code.
    """
    result = await measure_sessions(session, session.settings, folder, stop)
    if result is None:
        return Exit.INTERRUPTED
    output = session.output
    if output.as_json:
        output.emit(result)
        return Exit.OK
    output.show(
        f"msc: {counted(result['conversations'], 'conversation')}, summary at the end of session {result['session']}, "
        f"{result['structure']}, {result['summarizer']}, {counted(result['llm_calls'], 'model call')}"
    )
    said = result["profiles"]
    output.show("            summaries       profiles' statements")
    for name, first, second in (("F1", "f1", None), ("BLEU-1/2", "bleu_1", "bleu_2")):
        output.show(f"{name:<12}{_pair(result, first, second, 2):<16}{_pair(said, first, second, 2)}")
    output.show(f"{'DISTINCT':<12}{_pair(result, 'distinct_1', 'distinct_2', 3):<16}{_pair(said, 'distinct_1', 'distinct_2', 3)}")
    output.show(f"{'words':<12}{result['words']:<16.1f}{said['words']:.1f}, {result['gold_words']:.1f} in the gold summaries")
    return Exit.OK


def _pair(values: Mapping[str, Any], first: str, second: str | None, decimals: int) -> str:
    return " / ".join(f"{values[each]:.{decimals}f}" for each in (first, second) if each is not None)


async def measure_sessions(session: Session, settings: Settings, folder: Path, stop: asyncio.Event) -> dict[str, Any] | None:
    """
    Put each conversation into a tree of a temporary memory, wait for the summaries, compare the uppermost with the gold ones.

    Args:
        session: with the output.
        settings: say how trees grow, and by which models.
        folder: of the data.
        stop: when set, the rest is left.

    Returns:
        As `streams.evaluation.sessions.outcome`; None when it was interrupted.
    """
    from streams.evaluation import sessions  # noqa: PLC0415  # brings numpy
    from streams.evaluation.run import open_memory  # noqa: PLC0415

    conversations = sessions.load(folder)
    records = [record for conversation in conversations for record in conversation.records]
    output = session.output
    output.note(f"{counted(len(records), 'turn')} in {counted(len(conversations), 'conversation')}")
    memory, _, _ = await open_memory(settings, None)
    async with memory:
        with output.progress("ingesting", total=len(records)) as progress:
            done = 0

            def count(results: Sequence[object]) -> None:
                nonlocal done
                done += len(results)
                progress.update(done)

            await memory.ingest_stream(records, on_batch=count, stop=stop)
        if not stop.is_set():
            await wait_for_summaries(session, memory, stop)
        if stop.is_set():
            return None
        scores = [sessions.score(await sessions.summary_of(memory, each.tree), each.gold) for each in conversations]
        profiles = [sessions.score(await sessions.statements_of(memory, each.tree), each.gold) for each in conversations]
        return sessions.outcome(
            scores,
            profiles,
            session=conversations[0].session,
            structure=settings.tree.structure,
            summarizer=settings.summarizer,
            calls=memory.summary_counts.calls,
        )
