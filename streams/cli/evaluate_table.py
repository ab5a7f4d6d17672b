"""`banyan eval … --structure all`: many structures and sets in one run, kept as they are measured."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memory.errors import SettingError
from streams.cli.app import Exit
from streams.cli.evaluate_sessions import measure_sessions
from streams.cli.evaluation_run import Measuring, reporter
from streams.evaluation.choices import chosen_for

if TYPE_CHECKING:
    from memory.model import Vector
    from streams.cli.common import Session
    from streams.evaluation.dataset import Dataset
    from streams.settings import Settings

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the table is to hold."""

    sets: Mapping[str, tuple[str, Path]]
    """Data sets by name: format and folder."""
    structures: Sequence[str]
    strategies: Sequence[str]
    """As asked for; none means all that work on a structure. Those that do not work on one are left out there."""
    data: Path | None
    """Where memories are kept, a folder below it for each set and structure."""


class _Vectors:
    """Of the set in hand, what its texts are embedded to: once for all structures."""

    def __init__(self, session: Session, stop: asyncio.Event) -> None:
        self._session = session
        self._stop = stop
        self._of = ""
        self._known: dict[str, Vector] = {}

    async def of(self, name: str, dataset: Dataset, settings: Settings) -> dict[str, Vector]:
        """The vectors of a set, by text."""
        from streams.evaluation.run import embedded  # noqa: PLC0415  # brings numpy

        if name != self._of:
            with self._session.output.progress("embedding", total=None) as progress:
                self._known = await embedded(settings, dataset, stop=self._stop, report=reporter(progress))
            self._of = name
        return self._known


class Results:
    """
    What was measured, by set and structure, in a JSON file that is written after each strategy.

    Args:
        path: the file; None keeps nothing.

    Raises:
        SettingError: there is something else in the file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.sets: dict[str, dict[str, dict[str, Any]]] = {}
        if path is not None and path.exists():
            try:
                held = json.loads(path.read_text("utf-8"))
                if held["version"] != VERSION:
                    raise ValueError(held["version"])
                self.sets = held["sets"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise SettingError(f"{path} holds no results of this version of banyan eval; name another file") from error

    def known(self, name: str, structure: str, digest: str) -> dict[str, Any]:
        """What is known of a structure on a set under the same conditions; empty for nothing."""
        found = self.sets.get(name, {}).get(structure, {})
        return found if found.get("conditions") == digest else {}

    def keep(self, name: str, structure: str, result: Mapping[str, Any]) -> None:
        """Add or replace, and write the file."""
        self.sets.setdefault(name, {})[structure] = dict(result)
        if self._path is not None:
            draft = self._path.with_name(f"{self._path.name}.part")
            draft.write_text(json.dumps({"version": VERSION, "sets": self.sets}, indent=1) + "\n", "utf-8")
            draft.replace(self._path)


async def measure_table(session: Session, wanted: Wanted, results: Results, stop: asyncio.Event) -> int:
    """
    Measure everything that is not known yet.

    Args:
        session: with settings and output.
        wanted: what.
        results: what is known; gets what is measured.
        stop: when set, the rest is left.

    Returns:
        The exit code.
    """
    output = session.output
    shown: dict[str, dict[str, Any]] = {}
    vectors = _Vectors(session, stop)
    for name, (form, folder) in wanted.sets.items():
        for structure in wanted.structures:
            output.note(f"{name}, {structure}")
            settings = replace(session.settings, tree=replace(session.settings.tree, structure=structure))
            if form == "msc":
                result = await _sessions(session, settings, name, folder, results, stop)
            else:
                result = await _measure(session, settings, name, wanted, results, vectors, stop)
            if result is None:
                output.note("what was measured so far is kept; the same command goes on" if results.sets else "nothing is kept")
                return Exit.INTERRUPTED
            shown.setdefault(name, {})[structure] = result
    if output.as_json:
        output.emit({"version": VERSION, "sets": shown})
        return Exit.OK
    from streams.cli.evaluation_tables import wide_tables  # noqa: PLC0415  # rich is slow to load

    for each in wide_tables(shown):
        output.show(each)
        output.show()
    return Exit.OK


async def _measure(
    session: Session,
    settings: Settings,
    name: str,
    wanted: Wanted,
    results: Results,
    vectors: _Vectors,
    stop: asyncio.Event,
) -> dict[str, Any] | None:
    """One structure on one set; None when it was interrupted."""
    from streams.evaluation.formats import load  # noqa: PLC0415  # brings numpy
    from streams.evaluation.run import conditions, open_memory  # noqa: PLC0415

    structure = settings.tree.structure
    works = chosen_for(structure, ())
    chosen = [each for each in works if not wanted.strategies or each in wanted.strategies]
    dataset = load(*wanted.sets[name]).marked(*conditions(settings))
    digest = f"{dataset.trees[0].rpartition('-')[2]} {settings.navigator}"
    known = results.known(name, structure, digest)
    missing = [each for each in chosen if each not in known.get("strategies", {})]
    if known and not missing:
        return _only(known, chosen)

    async def save(result: dict[str, Any]) -> None:
        await asyncio.to_thread(results.keep, name, structure, _together(known, result, digest))

    with _folder(wanted.data, name, structure) as (folder, there):
        known_vectors = {} if there else await vectors.of(name, dataset, settings)
        if stop.is_set():
            return None
        memory, embedder, summarizer = await open_memory(settings, folder, known=known_vectors)
        async with memory:
            measured = await Measuring(session, memory, embedder, summarizer, dataset, stop).measure(missing, save=save)
        if measured is None:
            return None
        measured["size"] = _size(folder, measured["tree"]["leaves"])
    await save(measured)
    return _only(_together(known, measured, digest), chosen)


@contextmanager
def _folder(data: Path | None, name: str, structure: str) -> Iterator[tuple[Path, bool]]:
    """Where the memory of a structure on a set is kept, and whether there is one already."""
    if data is not None:
        folder = data / name / structure
        yield folder, folder.exists()
        return
    with tempfile.TemporaryDirectory(prefix="banyan-") as temporary:
        yield Path(temporary) / structure, False


def _size(folder: Path, leaves: int) -> dict[str, float]:
    """Bytes on disk of a memory that was closed: its store, and the index that is derived from it."""
    from memory.local import INDEX_FILE, STORE_FILE  # noqa: PLC0415  # brings numpy

    store, index = ((folder / name).stat().st_size for name in (STORE_FILE, INDEX_FILE))
    return {"store_bytes": store, "index_bytes": index, "store_bytes_per_item": store / leaves if leaves else 0.0}


async def _sessions(
    session: Session, settings: Settings, name: str, folder: Path, results: Results, stop: asyncio.Event
) -> dict[str, Any] | None:
    from streams.evaluation.run import conditions  # noqa: PLC0415

    digest = " ".join(conditions(settings))
    known = results.known(name, settings.tree.structure, digest)
    if known:
        return known
    measured = await measure_sessions(session, settings, folder, stop)
    if measured is None:
        return None
    result = {**measured, "conditions": digest}
    await asyncio.to_thread(results.keep, name, settings.tree.structure, result)
    return result


def _together(known: Mapping[str, Any], fresh: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """What an earlier run measured, and what this one did. What ingestion took is of the run that put everything in."""
    if not known:
        return {**fresh, "conditions": digest}
    whole = known if known["ingestion"]["items_per_s_committed"] else fresh
    times = {**known["latency_ms"]["strategies"], **fresh["latency_ms"]["strategies"]}
    return {
        **fresh,
        "strategies": {**known["strategies"], **fresh["strategies"]},
        "latency_ms": {**known["latency_ms"], "strategies": times},
        "ingestion": whole["ingestion"],
        **({"size": known["size"]} if "size" in known and "size" not in fresh else {}),
        "conditions": digest,
    }


def _only(result: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    """The strategies that were asked for, in their order."""
    times = result["latency_ms"]["strategies"]
    return {
        **result,
        "strategies": {each: result["strategies"][each] for each in chosen},
        "latency_ms": {**result["latency_ms"], "strategies": {each: times[each] for each in chosen if each in times}},
    }


def sets_of(name: str, folder: Path) -> dict[str, tuple[str, Path]]:
    """
    The data sets to measure: a folder of one format, or with the format `all` each folder in it that is of one.

    Raises:
        SettingError: no folder of any format.
    """
    from streams.evaluation.formats import formats_of  # noqa: PLC0415

    if name != "all":
        return {folder.resolve().name: (name, folder)}
    found: dict[str, tuple[str, Path]] = {}
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        for form in formats_of(each)[:1]:
            found[each.name] = (form, each)
    if not found:
        raise SettingError(f"{folder} has no folder of any format that can be measured")
    return found
