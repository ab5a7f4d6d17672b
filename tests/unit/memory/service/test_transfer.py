"""Export and import: the same tree, or a clear refusal."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.errors import RecordError, TreeMismatchError, TreeNotFoundError
from memory.model import EmbeddingModel, TreeId
from memory.records import Document
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld


async def exported(world: World, tree: TreeId = TREE) -> list[bytes]:
    return [line async for line in world.transfer.export(tree)]


async def imported(world: World, lines: list[bytes], **options: object) -> None:
    await world.transfer.import_(lines, model=world.embedder.model, **options)  # type: ignore[arg-type]


async def grown(world: World, *, drained: bool) -> list[bytes]:
    """A tree with some of everything: conversations, documents, metadata, rewrites, contributions that wait."""
    strange = turn(
        "ü", "Grüße, 你好 🌳\nnew line\t\x1b", speaker="Ana", at=datetime(2026, 3, 1, tzinfo=UTC), metadata={"a": [1, None]}
    )
    text = "A sentence of a document. " * 200
    document = Document(tree=TREE, id="d", text=text, title="Title", source="Paper", url="https://example.org")
    await world.put(*turns(range(20)), strange, document)
    await world.drain()
    await world.put(*turns(range(20, 60)), batch=7)
    if drained:
        await world.drain()
    return await exported(world)


@pytest.mark.parametrize("drained", [True, False])
async def test_an_imported_tree_is_the_exported_one_byte_for_byte(make_world: MakeWorld, *, drained: bool) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=drained)
    await imported(target, lines)
    assert await exported(target) == lines
    report = await target.inspect.check(TREE)
    assert report.violations == ()
    assert await target.texts() == await source.texts()
    ours, theirs = await source.store.stats(TREE), await target.store.stats(TREE)
    assert (ours.pending, ours.dirty, ours.cost, ours.events) == (theirs.pending, theirs.dirty, theirs.cost, theirs.events)


async def test_both_go_on_alike(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    await imported(target, await grown(source, drained=False))
    for world in (source, target):
        await world.put(*turns(range(60, 80)))
        await world.drain()
    assert await source.texts() == await target.texts()


async def test_importing_again_changes_nothing(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    for _ in range(2):
        await imported(target, lines)
    assert await exported(target) == lines


async def test_an_interrupted_import_goes_on(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    for end in (1, 2, len(lines) // 2, len(lines) - 1):
        with pytest.raises(RecordError, match="cut off"):
            await imported(target, lines[:end])
        assert (await target.store.tree(TREE)).seq == end - 1
        assert (await target.inspect.check(TREE)).clean
    await imported(target, lines)
    assert await exported(target) == lines


async def test_under_another_name(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    await imported(target, lines, tree="copy")
    copied = await exported(target, TreeId("copy"))
    assert copied[1:] == lines[1:]
    assert json.loads(copied[0]) == {**json.loads(lines[0]), "tree": "copy"}


async def test_lines_may_come_asynchronously_with_blanks_between(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)

    async def slowly() -> AsyncIterator[bytes]:
        for line in lines:
            yield line.rstrip(b"\n")
            yield b"\r\n"

    await target.transfer.import_(slowly(), model=target.embedder.model)
    assert await exported(target) == lines


async def test_a_file_that_is_cut_off_in_a_line_says_so(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    with pytest.raises(RecordError, match="line 3 is no line of an export"):
        await imported(target, [*lines[:2], lines[2][:40]])
    assert (await target.inspect.check(TREE)).clean


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "the file is empty"),
        ([b"\n", b" \n"], "the file is empty"),
        ([b"PK\x03\x04\xff"], "line 1 is no line of an export"),
        ([b'{"tree": "t"}'], "line 1 is no line of an export"),
        ([b"[]"], "line 1 is no line of an export"),
    ],
)
async def test_what_is_no_export_is_refused_before_anything_is_made(world: World, lines: list[bytes], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        await imported(world, lines)
    assert await world.store.trees() == []


async def test_one_of_another_model_or_format_is_refused_before_anything_is_made(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    other = EmbeddingModel(name="fake:other", dimension=16, unrelated_cosine=0.0)
    with pytest.raises(TreeMismatchError, match="set BANYAN_EMBEDDER"):
        await target.transfer.import_(lines, model=other)
    newer = json.dumps({**json.loads(lines[0]), "banyan_export": 2}).encode()
    with pytest.raises(RecordError, match="format 2 is not known"):
        await imported(target, [newer, *lines[1:]])
    with pytest.raises(RecordError, match="tree"):
        await imported(target, lines, tree="a/b")
    assert await target.store.trees() == []


@pytest.mark.parametrize("change", [{"structure": "other"}, {"parameters": {"base": 7.0, "rate": 0.5, "depth_max": 8.0}}])
async def test_one_of_a_structure_that_is_not_there_is_refused_before_anything_is_made(
    make_world: MakeWorld, change: dict[str, object]
) -> None:
    source, target = make_world("source"), make_world("target")
    header, *rest = await grown(source, drained=True)
    with pytest.raises(TreeMismatchError, match="structure"):
        await imported(target, [json.dumps({**json.loads(header), **change}).encode(), *rest])
    assert await target.store.trees() == []


async def test_another_tree_of_that_name_is_left_as_it_is(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    await target.put(*turns(range(5)))
    before = await exported(target)
    with pytest.raises(TreeMismatchError, match="import under another name"):
        await imported(target, lines)
    assert await exported(target) == before


async def test_an_empty_tree_of_another_shape_is_not_filled(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    header = json.loads(lines[0])
    other = json.dumps({**header, "parameters": {**header["parameters"], "base": 0.7}, "seq": 0}).encode()
    await imported(target, [other])
    with pytest.raises(TreeMismatchError, match="import under another name"):
        await imported(target, lines)
    assert (await target.store.tree(TREE)).seq == 0


async def test_a_tree_that_others_change_meanwhile_is_not_mixed_up(make_world: MakeWorld) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)

    async def interrupted() -> AsyncIterator[bytes]:
        for number, line in enumerate(lines):
            if number == len(lines) // 2:
                await target.put(turn("stranger"))
            yield line

    with pytest.raises(TreeMismatchError, match="changed by others"):
        await target.transfer.import_(interrupted(), model=target.embedder.model)
    assert (await target.inspect.check(TREE)).clean


SPOILED: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "op": lambda _, step: step.update(op="prune"),
    "vector": lambda _, step: step.update(vector="not base64!"),
    "odd": lambda _, step: step.update(vector=base64.b64encode(b"odd").decode()),
    "dimension": lambda _, step: step.update(vector=base64.b64encode(b"\x00\x3c" * 3).decode()),
    "infinite": lambda _, step: step.update(vector=base64.b64encode(b"\x00\x7c" * 16).decode()),
    "kind": lambda _, step: step.update(kind="branch"),
    "parent": lambda _, step: step.update(parent="nowhere"),
    "item": lambda _, step: step.pop("item"),
    "depth": lambda _, step: step.update(depth=2**70),
    "digest": lambda commit, _: commit["events"][0].update(digest="zz"),
    "twice": lambda commit, _: commit["events"].append(commit["events"][0]),
    "seq": lambda commit, _: commit.update(seq=7),
}


@pytest.mark.parametrize("what", SPOILED)
async def test_a_commit_that_is_wrong_is_refused_with_its_line(make_world: MakeWorld, what: str) -> None:
    source, target = make_world("source"), make_world("target")
    lines = await grown(source, drained=True)
    commit = json.loads(lines[1])
    SPOILED[what](commit, next(step for step in commit["steps"] if step["op"] == "create"))
    with pytest.raises(RecordError, match="line 2"):
        await imported(target, [lines[0], json.dumps(commit).encode(), *lines[2:]])
    assert (await target.store.tree(TREE)).seq == 0


async def test_a_tree_that_is_not_there(world: World) -> None:
    with pytest.raises(TreeNotFoundError, match="missing"):
        await exported(world, TreeId("missing"))


async def test_summaries_go_on_after_an_import(make_world: MakeWorld) -> None:
    source = make_world("source")
    summarizer = FakeSummarizer()
    target = make_world("target", summarizer=summarizer)
    await imported(target, await grown(source, drained=False))
    await target.start()
    assert await target.idle()
    stats = await target.store.stats(TREE)
    assert (stats.pending, stats.dirty) == (0, 0)
    assert (await target.inspect.check(TREE)).clean
