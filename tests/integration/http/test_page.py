"""The page's files and headers, and what it asks for: the largest parts of a tree, children by size, events by any id."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.query import drawing
from tests.integration.http.served import Served, ids, problem, serving

ASSETS = Path(__file__).parents[3] / "streams" / "query" / "assets"


async def page(served: Served, **headers: str) -> Any:
    return await served.client.get("/", headers=headers)


async def test_the_page_is_for_everyone_and_its_policy_is_strict(tmp_path: Path) -> None:
    async with serving(tmp_path, auth="keys") as served:
        answer = await page(served)
        assert answer.status_code == 200
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert problem(await served.get("")) == "unauthorized"
        docs = await served.client.get("/docs")
        assert "script-src 'self'" in docs.headers["content-security-policy"]


async def test_the_label_of_a_request_does_not_depend_on_how_the_page_is_called(served: Served) -> None:
    for below, host in (("", "localhost"), ("/memory", "localhost"), ("", "localhost/made-up")):
        transport = httpx.ASGITransport(app=served.app, root_path=below)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get(f"{below}/", headers={"Host": host})).status_code == 200
    assert {route for route, _, _ in served.app.state.meter.answers} == {"/"}


@pytest.mark.parametrize("name", ["/", "/docs"])
async def test_every_file_that_it_names_is_there_to_be_kept(served: Served, name: str) -> None:
    text = (await served.client.get(name)).text
    assert not re.search(r"https?://|<script>|\son\w+=|style=", text), "all is its own, and nothing inline"
    named = re.findall(r'(?:src|href)="(assets/[^"]+)"', text)
    assert len(named) >= 5
    for path in named:
        answer = await served.client.get(f"/{path}", headers={"Accept-Encoding": "identity"})
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[path.rpartition(".")[2]]
        assert answer.headers["content-type"].startswith(kind)


def test_every_module_is_loaded_at_once_and_markup_is_made_nowhere() -> None:
    index = (ASSETS / "index.html").read_text(encoding="utf-8")
    for script in ASSETS.glob("*.js"):
        code = script.read_text(encoding="utf-8")
        assert script.name == "docs.js" or f"/{script.name}" in index
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", code), script.name
        for imported in re.findall(r'from "\./([^"]+)"', code):
            assert (ASSETS / imported).exists(), imported


async def test_files_are_packed_and_not_sent_twice(served: Served) -> None:
    plain = await page(served, **{"Accept-Encoding": "identity"})
    async with served.client.stream("GET", "/", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join([part async for part in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
    assert len(packed) < len(plain.content)
    assert gzip.decompress(packed) == plain.content
    again = await page(served, **{"If-None-Match": plain.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["{0}/app.py", "{0}/..%2Fpage.py", "{0}/index.html", "{0}/docs.html", "other/main.js", "{0}/redoc.standalone.js"]
)
async def test_other_files_are_not_given(served: Served, path: str) -> None:
    [digest, *_] = re.findall(r"assets/([0-9a-f]+)/", (await page(served)).text)
    assert problem(await served.client.get(f"/assets/{path.format(digest)}")) == "not-found"


def sizes(node: dict[str, Any]) -> list[int]:
    return [child["descendants"] for child in node["children"]]


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node["children"] for below in nodes_of(child))]


async def grown(served: Served) -> None:
    subjects = ["the harbour tunnel opens", "my cello lesson", "the marathon in Zwolle", "a ferry to Aarhus"]
    await served.put("me", *(f"{subjects[number % 4 if number % 3 else 0]} {number}" for number in range(60)))
    await served.memory.fresh()


async def test_the_map_has_the_largest_parts_and_counts_the_others(served: Served) -> None:
    await grown(served)
    whole = (await served.get("/me/map?nodes=2000")).json()
    stats = (await served.get("/me")).json()
    assert len(nodes_of(whole)) == 1 + stats["nodes"]
    assert all(sizes(node) == sorted(sizes(node), reverse=True) for node in nodes_of(whole))
    assert all(node["hidden"] == 0 for node in nodes_of(whole))
    for count in (1, 7, 20):
        some = (await served.get(f"/me/map?nodes={count}&children=5&characters=12")).json()
        assert len(nodes_of(some)) == 1 + count
        assert all(len(node["children"]) <= 5 and len(node["text"]) <= 12 for node in nodes_of(some))
        assert len(some["children"]) + some["hidden"] == len(whole["children"])
    # What is opened is at least as large as what is not.
    some = (await served.get("/me/map?nodes=12&children=100")).json()
    opened = [node["descendants"] for node in nodes_of(some)[1:] if node["children"]]
    closed = [node["descendants"] for node in nodes_of(some) if node["hidden"] is None]
    assert not opened or not closed or min(opened) >= max(closed)


async def test_a_map_may_begin_anywhere_and_says_how_deep_that_is(served: Served) -> None:
    await grown(served)
    whole = (await served.get("/me/map?nodes=2000")).json()
    [deep] = [node for node in nodes_of(whole) if node["depth"] == 2 and node["children"]][:1]
    below = (await served.get(f"/me/map?node={deep['id']}&nodes=2000")).json()
    assert below["depth"] == 2
    assert below["children"] == deep["children"]
    assert problem(await served.get("/me/map?node=nobody")) == "node-not-found"
    assert problem(await served.get("/nobody/map")) == "tree-not-found"


async def test_children_come_by_size_page_by_page_and_a_node_knows_its_way_up(served: Served) -> None:
    await grown(served)
    whole = (await served.get("/me/map?nodes=2000")).json()
    read: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        part = (await served.get(f"/me/nodes/root?order=size&limit=3&after={after}")).json()
        read += part["children"]
        after = part["next"]
    assert ids(read) == ids(whole["children"])
    by_age = (await served.get("/me/nodes/root?limit=1000")).json()
    assert sorted(ids(by_age["children"])) == sorted(ids(read))
    [deep] = [node for node in nodes_of(whole) if node["depth"] == 3][:1]
    found = (await served.get(f"/me/nodes/{deep['id']}?limit=0")).json()
    assert (found["children"], found["next"]) == ([], None)
    above = [node for node in nodes_of(whole) if deep["id"] in ids(nodes_of(node)[1:]) and node["id"] != "root"]
    assert ids(found["path"]) == ids(sorted(above, key=lambda node: int(node["depth"])))


@pytest.mark.parametrize(("read", "limit"), [(4, 3), (4, 2), (4, 100), (8, 3)])
async def test_children_beyond_those_that_are_put_in_order_follow_by_age(
    served: Served, monkeypatch: pytest.MonkeyPatch, read: int, limit: int
) -> None:
    monkeypatch.setattr(drawing, "CHILDREN_READ", read)
    monkeypatch.setattr(drawing, "CHILDREN_PER_READ", 2)
    alike = (f"the harbour tunnel opens on day {number}" for number in range(3))
    await served.put("me", *(f"{number:x}q{number * 7:x}" for number in range(6)), *alike, *"abcdef")
    await served.memory.fresh()
    by_age = (await served.get("/me/nodes/root?limit=1000")).json()["children"]
    assert len(by_age) > 9
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        part = (await served.get(f"/me/nodes/root?order=size&limit={limit}&after={after}")).json()
        found += part["children"]
        after = part["next"]
    drawn = (await served.get(f"/me/map?nodes=2000&children={limit}")).json()
    assert (drawn["unread"], drawn["hidden"]) == (len(by_age) > read, max(0, read - limit))
    ordered = found[:read]
    assert sorted(ids(ordered)) == sorted(ids(by_age[:read]))
    assert sizes({"children": ordered}) == sorted(sizes({"children": ordered}), reverse=True)
    assert ids(found[read:]) == ids(by_age[read:])


async def test_an_event_is_found_whatever_its_id_is(served: Served) -> None:
    for event in ("https://example.com/a?b#c", "a/b/../c", "<img src=x>", "100%", "a b+c", "чат/1"):
        await served.post("odd/turns", {"id": event, "text": f"about {event}"})
        client = served.client
        path = f"/v1/trees/odd/events/{_escaped(event)}"
        assert (await client.get(path)).json()["event_id"] == event
        assert (await client.get(f"{path}/route")).json()["event_id"] == event


async def test_an_id_that_ends_like_an_address_is_told_from_one(served: Served) -> None:
    events = ("a", "a/route", "a/route/route", "route", "/route")
    for event in events:
        await served.post("odd/turns", {"id": event, "text": f"about {event}"})
    for event in events:
        path = f"/v1/trees/odd/events/{_escaped(event)}"
        found = (await served.client.get(path)).json()
        assert (found["event_id"], len(found["leaves"])) == (event, 1)
        route = (await served.client.get(f"{path}/route")).json()
        assert (route["event_id"], "decisions" in route["leaves"][0]) == (event, True)


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


@pytest.mark.parametrize(("structure", "own"), [("memtree", []), ("hat", ["agent"]), ("hmem", ["descent"]), ("memgas", ["router"])])
async def test_a_tree_offers_the_ways_of_searching_that_its_structure_has(tmp_path: Path, structure: str, own: list[str]) -> None:
    async with serving(tmp_path, structure=structure) as served:
        await served.put("me", "the harbour tunnel opens", "Rita bakes cheese cake")
        tree = (await served.get("/me")).json()
        assert tree["strategies"] == ["hybrid", "collapsed", "traversal", "bm25", *own]
        assert (await served.get("")).json()["trees"][0]["strategies"] == tree["strategies"]
        for strategy in tree["strategies"]:
            await served.hits("me", "harbour", strategy=strategy)
