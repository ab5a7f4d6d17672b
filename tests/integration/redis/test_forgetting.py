"""What forgetting leaves in Redis, and how much of a tree its scripts look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from memory.adapters.redis import Link, RedisSettings, RedisTreeStore, redacting, snapshot
from memory.changes import ChangeSet, Create, Rewrite, Step
from memory.model import ROOT, Item, NodeId, mark
from memory.ports.store import Applied
from tests.contract.test_tree_store_forgetting import same
from tests.fakes.change_sets import (
    TREE,
    annotate,
    change_set,
    event,
    expand,
    grow,
    insert,
    leaf,
    move,
    recall,
    remove,
    rewrite,
    shrink,
    summary,
    tree_info,
    vector,
)
from tests.fakes.change_sets import link as link_of
from tests.fakes.plain_tree import PlainTree, fields_of
from tests.servers.redis import RedisServer

WORD = "Zwiebelmuster"


async def all_of(store: RedisTreeStore, *sets: ChangeSet) -> PlainTree:
    """The sets in a store, and in a plain tree that it is compared with."""
    plain = PlainTree()
    for changes in sets:
        assert await store.apply(changes) == plain.apply(changes) == Applied(seq=plain.seq)
    await same(store, plain)
    return plain


def forget(name: str, *path: str) -> ChangeSet:
    """The path from the top down."""
    above = path[::-1]
    return change_set(shrink(name, *above), remove(name, above[0] if above else ROOT), forgets=[name])


# -------------------------------------------------------------------------------------------------- what waited is found again


async def test_a_leaf_that_waits_again_is_found(store: RedisTreeStore) -> None:
    covered = rewrite("s", through=mark(2, 9))
    await all_of(
        store,
        insert("a"),
        expand("a", "b", "s"),
        change_set(covered),
        change_set(recall("a", "s")),
        insert("c", "s"),
        forget("a", "s"),
    )
    assert await store._link.command("HLEN", store._link.keys(TREE).strays) == 0, "that it came late is forgotten, too"


async def test_a_leaf_that_came_to_wait_at_another_time_is_found(store: RedisTreeStore) -> None:
    """Twice at one node, and once more as the set begins that takes it out."""
    late = [change_set(grow("a", "s")), insert("b", "s"), change_set(grow("a", "s"))]
    taken = change_set(grow("a", "s"), shrink("a", "s"), remove("a", ROOT), grow("b", "s"), forgets=["a"])
    await all_of(store, change_set(summary("s")), insert("a"), *late, taken)


PUT_ABOVE = change_set(summary("u", above="s"), move("s", ROOT, "u", 2))


async def test_what_waited_where_another_was_put_above_is_found(store: RedisTreeStore) -> None:
    again = change_set(summary("v", above="u"), move("u", ROOT, "v", 2))
    gone = change_set(shrink("a", "s", "u", "v"), remove("a", "s"), forgets=["a"])
    await all_of(store, insert("a"), expand("a", "b", "s"), PUT_ABOVE, again, gone)


async def test_what_waited_again_where_another_was_put_above_is_found(store: RedisTreeStore) -> None:
    recalled = (change_set(rewrite("s", through=mark(2, 9))), change_set(recall("b", "s")))
    gone = change_set(shrink("b", "s", "u"), remove("b", "s"), forgets=["b"])
    await all_of(store, insert("a"), expand("a", "b", "s"), *recalled, PUT_ABOVE, gone)


async def test_what_of_a_set_is_taken_out_in_its_order(store: RedisTreeStore) -> None:
    """Where nothing waits by then, another leaf does; where a rewrite covers what waits, likewise."""
    first = change_set(
        shrink("a", "s"), remove("a", "s"), shrink("b", "s"), recall("c", "s", "t"), remove("b", "s"), forgets=["a", "b"]
    )
    covered = change_set(recall("c", "s"), rewrite("s", through=mark(99, 0)), recall("c", "s"), recall("c", "s"))
    await all_of(store, insert("a"), expand("a", "b", "s"), change_set(summary("t"), leaf("c")), first, covered)


# ------------------------------------------------------------------------------------------------------- ids that are used again


async def test_the_log_of_a_leaf_that_is_gone_does_not_speak_of_another_with_its_id(store: RedisTreeStore) -> None:
    await all_of(store, insert("a"), forget("a"), replace(insert("a"), events=(event("new", "a"),)))
    log = await store.changes(TREE, 0)
    made = [step for entry in log for step in entry.steps if isinstance(step, Create)]
    assert [bool(step.vector.any()) for step in made] == [False, True]
    assert (await store.news({TREE: 0}))[TREE].gone == ()


async def test_edges_end_with_a_node_and_do_not_come_back_with_its_id(store: RedisTreeStore) -> None:
    edges = change_set(leaf("b"), leaf("c"), link_of("a", "b", "c"), link_of("b", "a", "c", weights=(0.5, 0.25)), link_of("c", "a"))
    again = replace(insert("a"), events=(event("new", "a"),))
    await all_of(store, insert("a"), edges, forget("a"), again, change_set(link_of("a", "b")))
    assert [edge.others for edge in await store.links(TREE)] == [("c",), ("b",)]


async def test_a_tree_is_read_while_nodes_go_and_ids_come_back(store: RedisTreeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PAGE", 10)
    plain = await all_of(store, *(insert(f"n{number}") for number in range(60)))
    send = store._link.script
    late = [forget("n3"), forget("n40"), forget("n5"), replace(insert("n5"), events=(event("new", "n5"),)), insert("last")]

    async def meanwhile(name: str, *arguments: object, **more: object) -> object:
        answer = await send(name, *arguments, **more)  # type: ignore[arg-type]
        if name == "page" and late:
            monkeypatch.setattr(store._link, "script", send)
            changes = late.pop(0)
            assert await store.apply(changes) == plain.apply(changes)
            monkeypatch.setattr(store._link, "script", meanwhile)
        return answer

    monkeypatch.setattr(store._link, "script", meanwhile)
    found = [fields_of(one) async for one in store.all_nodes(TREE, vectors=True)]
    assert late == []
    assert found == list(map(fields_of, plain.by_mark))
    await same(store, plain)


# ------------------------------------------------------------------------------------------------------------ redacting the log


async def rewritten(store: RedisTreeStore, *names: str) -> dict[str, list[bool]]:
    """Of each summary, whether the log still has the vectors that it once had."""
    steps = [step for entry in await store.changes(TREE, 0) for step in entry.steps if isinstance(step, Rewrite)]
    return {name: [bool(step.vector.any()) for step in steps if step.node == name] for name in names}


async def test_a_long_log_is_redacted_in_pieces(store: RedisTreeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redacting, "ENTRIES_PER_READ", 7)
    await store.apply(change_set(summary("s"), summary("t")))
    for number in range(30):
        await store.apply(change_set(rewrite("s" if number % 2 else "t")))
    await store.redact(TREE, {NodeId("x"): 1}, to=0)  # from now on the server knows the scripts
    before = store._link.scripts_called
    await store.redact(TREE, {NodeId("s"): 24, NodeId("t"): 0}, to=0)
    pieces, written = 4, 4
    edges = 1
    assert store._link.scripts_called - before == pieces + written + edges + 1, "24 entries, 7 at a time"
    found = await rewritten(store, "s", "t")
    assert found == {"s": [False] * 11 + [True] * 4, "t": [True] * 15}
    monkeypatch.setattr(redacting, "BYTES_PER_READ", 1)
    await store.redact(TREE, {NodeId("t"): 40}, to=0)
    assert (await rewritten(store, "t"))["t"] == [False] * 15


async def test_two_who_redact_at_once_undo_nothing_of_one_another(store: RedisTreeStore) -> None:
    names = [f"s{number}" for number in range(8)]
    await store.apply(change_set(*map(summary, names)))
    await store.apply(change_set(*map(rewrite, names)))
    await asyncio.gather(*(store.redact(TREE, {NodeId(name): 2}, to=2) for name in names))
    assert await rewritten(store, *names) == {name: [False] for name in names}


# ------------------------------------------------------------------------------------------------------------------- the proof


async def everything(link: Link) -> bytes:
    """All that is below the prefix, keys and values."""
    found = []
    keys = [key async for key in _keys(link)]
    reads = {
        b"string": ("GET",),
        b"hash": ("HGETALL",),
        b"list": ("LRANGE", 0, -1),
        b"zset": ("ZRANGE", 0, -1),
        b"stream": ("XRANGE", "-", "+"),
    }
    for key in keys:
        command, *bounds = reads[await link.command("TYPE", key)]
        found += [key, await link.command(command, key, *bounds)]
    return b"\n".join(_flat(found))


async def _keys(link: Link) -> AsyncIterator[bytes]:
    for key in sorted(await link.command("KEYS", f"{link.settings.prefix}:*")):
        yield key


def _flat(value: object) -> list[bytes]:
    match value:
        case bytes():
            return [value]
        case dict():
            return [part for pair in value.items() for one in pair for part in _flat(one)]
        case list() | tuple():
            return [part for one in value for part in _flat(one)]
        case _:
            return []


def told_of(name: str) -> list[bytes]:
    return [WORD.encode(), vector(name).astype("<f2").tobytes()]


async def remember_and_forget(store: RedisTreeStore) -> AsyncIterator[str]:
    """Steps of a story with a word in a leaf, in its metadata, in a summary and in labels."""
    told_item = Item(event_id=event("a").id, text=f"The {WORD} is in the attic.", title=WORD, metadata={"about": WORD})
    said = leaf("a", "s", 2, told_item, label=WORD)
    steps: list[Step] = [summary("s"), said, grow("a", "s"), leaf("b", "s", 2), grow("b", "s")]
    await store.apply(change_set(*steps, events=[event("a"), event("b")]))
    told = replace(rewrite("s", text=f"Of the {WORD}."), vector=vector("a"))
    await store.apply(change_set(told, annotate("s", label=WORD)))
    yield "told"
    anew: list[Step] = [
        replace(rewrite("s", text="Of b.", provisional=True), vector=vector("b")),
        annotate("s", label=""),
        recall("b", "s"),
    ]
    await store.apply(change_set(shrink("a", "s"), remove("a", "s"), *anew, forgets=["a"]))
    yield "forgotten"
    await store.redact(TREE, {NodeId("a"): 3, NodeId("s"): 2}, to=3)
    yield "redacted"


async def test_edges_keep_no_id_of_what_is_gone(link: Link, store: RedisTreeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told from the log, which keeps ids, by where they stand; an id that is used again has its own edges."""
    monkeypatch.setattr(redacting, "LINKS_PER_READ", 2)
    names = ["gone-a", "b", "c", "gone-d", "e"]
    made = [*map(summary, ["s"]), *(leaf(name) for name in names)]
    edges = [
        link_of("gone-a", "b", "c"),
        link_of("b", "gone-a", "c", "gone-d", weights=(0.5, 0.25, 2.0)),
        link_of("e", "c"),
        link_of("e", "gone-d"),
        link_of("s", "gone-a", "e", weights=(1.0, 1.0)),
    ]
    await store.apply(change_set(*made, *edges, events=[event(name) for name in names]))
    wanted = [("b", ("c",), (0.25,)), ("e", ("c",), ()), ("s", ("e",), (1.0,))]
    await store.apply(change_set(remove("gone-a", ROOT), remove("gone-d", ROOT), forgets=["gone-a", "gone-d"]))
    key, info = link.keys(TREE).links, await store.tree(TREE)
    assert b"gone-" in b"".join(await link.command("LRANGE", key, 0, -1)), "the test looks where they would be"
    again = replace(insert("gone-a"), events=(event("new", "gone-a"),))
    await store.apply(replace(again, steps=(*again.steps, link_of("c", "gone-a"))))
    for _ in range(2):
        await store.redact(TREE, {NodeId("gone-a"): info.seq, NodeId("gone-d"): info.seq, NodeId("s"): info.seq - 1}, to=info.floor)
        *old, new = await link.command("LRANGE", key, 0, -1)
        assert (len(old), b"gone-" in b"".join(old), b"gone-a" in new) == (5, False, True)
        found = [(edge.node, edge.others, edge.weights) for edge in await store.links(TREE)]
        assert found == [*wanted, ("c", ("gone-a",), ())]
        assert (await store.skeleton(TREE)).links == await store.links(TREE)


async def test_nothing_of_what_is_forgotten_is_left_below_the_prefix(link: Link, store: RedisTreeStore) -> None:
    async for done in remember_and_forget(store):
        left = await everything(link)
        word, numbers = (part in left for part in told_of("a"))
        assert (word, numbers) == (done != "redacted", done != "redacted")
    assert vector("b").astype("<f2").tobytes() in left, "what stays is looked for in the same way"


async def test_a_rewritten_append_only_file_has_nothing_of_it(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, ["--appendonly", "yes", "--rdbcompression", "no"]).start()
    link = await Link.open(RedisSettings(url=server.url))
    try:
        store = RedisTreeStore(link)
        await store.create_tree(tree_info())
        async for _ in remember_and_forget(store):
            pass

        def in_files() -> bool:
            return any(part in path.read_bytes() for path in tmp_path.rglob("*.aof") for part in told_of("a"))

        async def rewriting() -> bool:
            said = await link.command("INFO", "persistence")
            return bool(said["aof_rewrite_scheduled"] or said["aof_rewrite_in_progress"])

        assert in_files(), "the file has the commands as they came"
        await link.command("BGREWRITEAOF")
        for _ in range(6_000):
            if not await rewriting() and not in_files():
                break
            await asyncio.sleep(0.02)  # the old file goes beside the server's main thread
        assert not in_files()
    finally:
        await link.close()
        server.stop()


# -------------------------------------------------------------------------------------------------------------------- its cost


@pytest.mark.parametrize("waiting", [400, 4_000])
async def test_a_leaf_is_taken_out_without_going_through_the_tree(store: RedisTreeStore, link: Link, waiting: int) -> None:
    names = [f"n{number}" for number in range(waiting)]
    await store.apply(change_set(summary("s")))
    for at in range(0, waiting, 100):
        some = names[at : at + 100]
        steps: list[Step] = [step for name in some for step in (leaf(name, "s", 2), grow(name, "s"))]
        await store.apply(change_set(*steps, events=[event(name) for name in some]))
    gone = names[waiting // 3]
    await link.command("CONFIG", "RESETSTAT")
    assert isinstance(await store.apply(forget(gone, "s")), Applied)
    calls = {name: figures["calls"] for name, figures in (await link.command("INFO", "commandstats")).items()}
    assert calls["cmdstat_lrange"] <= 3, "the contributions of two commits"
    assert sum(calls.values()) < 120
    assert len(await store.contributions(TREE, NodeId("s"))) == waiting - 1
