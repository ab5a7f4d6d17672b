"""Every key of a tree is in the tree's slot, whatever the ids are; and the documentation names them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.crc import key_slot

from memory.adapters.redis.keys import FORMAT, TreeKeys, format_key, trees_key
from memory.model import ROOT, NodeId, TreeId

ODD = ["a", "}{other}", "{", "", "line\nbreak", "ключ", ":k:x"]


def every_key(keys: TreeKeys, node: str) -> list[str]:
    return [*keys.whole(), *keys.leases, keys.children(NodeId(node)), keys.contributions(NodeId(node)), keys.wake + "w"]


@pytest.mark.parametrize("node", ODD)
def test_the_keys_of_a_tree_share_a_slot(node: str) -> None:
    keys = TreeKeys.of("banyan", TreeId("user:42"))
    found = every_key(keys, node)
    assert len({key_slot(key.encode()) for key in found}) == 1
    assert len(set(found)) == len(found)
    assert all(key.startswith(f"banyan:{FORMAT}:") for key in found)


def test_trees_and_prefixes_are_apart() -> None:
    found = [
        key
        for prefix in ("banyan", "banyan2")
        for tree in ("a", "a:k", "b")
        for key in every_key(TreeKeys.of(prefix, TreeId(tree)), ROOT)
    ]
    assert len(set(found)) == len(found)


def test_the_documentation_names_every_key() -> None:
    page = Path("docs/redis.md").read_text("utf-8")
    keys = TreeKeys.of("banyan", TreeId("<tree>"))
    letters = [key.removeprefix(keys.base) for key in (*keys.whole(), *keys.leases)]
    for name in (*letters, "k:<node>", "c:<node>", "lu:<waiter>"):
        assert f"| `{name}` |" in page, name
    for key in (format_key("banyan"), trees_key("banyan"), f"{keys.base}"):
        assert f"`{key}" in page, key


def test_the_documentation_names_every_command_of_the_scripts() -> None:
    """A user of its own is made from that list."""
    listed = Path("docs/redis.md").read_text("utf-8").partition("## Access")[2]
    for path in Path("memory/adapters/redis/scripts").glob("*.lua"):
        for command in re.findall(r"\b(?:p?call|many)\('([A-Z]+)'", path.read_text("utf-8")):
            assert re.search(rf"\+{command.lower()}\b", listed), (path.name, command)
