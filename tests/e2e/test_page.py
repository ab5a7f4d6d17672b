"""The page in a browser: what a stranger does first, what the keyboard and a phone can do, and what happens when things fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.conftest import served
from tests.e2e.browsing import Page, PageService, page_service
from tests.e2e.commands import ROOT
from tests.servers.browser import chromium, colours, sized

pytestmark = pytest.mark.slow
WIDE, HIGH = 1440, 900
HOSTILE = """<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>"""
TURNS = [json.loads(line) for line in (ROOT / "examples/data/turns.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def driver(pytestconfig: pytest.Config) -> Iterator[Any]:
    yield from served(pytestconfig, "the page in Chromium", lambda: chromium(width=WIDE, height=HIGH))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageService]:
    with page_service(tmp_path_factory.mktemp("page"), BANYAN_AUTH="off") as running:
        chats = [{name: value for name, value in turn.items() if name != "tree"} for turn in TURNS]
        running.put("chats", chats)
        running.put("flat", [{"id": f"f{number}", "text": f"{number:x}q{number * 7:x}"} for number in range(120)])
        running.put(
            "odd",
            [
                {
                    "id": HOSTILE[:200],
                    "title": HOSTILE,
                    "text": f"{HOSTILE} harm",
                    "source": HOSTILE,
                    "url": "javascript:window.harmed=1",
                    "metadata": {HOSTILE[:100]: HOSTILE},
                },
                {"id": "good", "title": "A tunnel", "text": "The tunnel opens.", "url": "https://example.com/tunnel"},
            ],
        )
        yield running


@pytest.fixture
def page(driver: Any, service: PageService) -> Iterator[Page]:
    """A page in light colours; the console must be silent at the end."""
    colours(driver, "light")
    sized(driver, WIDE, HIGH)
    found = Page(driver, service.url)
    found.open()
    found.run("localStorage.clear(); sessionStorage.clear()")
    driver.get_log("browser")
    yield found
    assert found.complaints() == []


def opened(page: Page, place: str = "#/t/chats") -> Page:
    page.open(place)
    page.until(lambda: page.all(".arc"), "the map")
    page.one(".row")
    return page


def test_a_stranger_chooses_a_tree_opens_it_and_reads_a_node(page: Page) -> None:
    page.open()
    page.until(lambda: len(page.all(".tree-rows .tree-row")) == 3, "three trees")
    page.says("[data-tree=chats] [data-label=Items]", "308")
    page.says("[data-tree=chats] [data-label=Rate]", "idle")
    page.one("#filter").send_keys("cha")
    page.until(lambda: len(page.all(".tree-rows .tree-row")) == 1, "one tree")
    page.one("[data-tree=chats] a").click()
    page.says("[data-figure=items]", "308")
    page.says(".live-dot + *, #state", "Live")
    assert page.place == "/#/t/chats"
    assert int(page.text(".centre-amount")) == 308

    page.one(".row.summary .twist").click()
    page.until(lambda: page.all(".row[aria-level='2']"), "what lies below")
    page.one(".row.summary .row-text").click()
    page.says(".node .badge.kind", "Topic")
    assert page.all(".node .part")
    assert "/n/" in page.place
    page.one(".node .part").click()
    page.until(lambda: len(page.all(".above li")) == 2, "the way to it")
    assert page.all(".line.strong")
    assert page.all(".arc.selected")
    page.driver.back()
    page.until(lambda: len(page.all(".above li")) == 1, "the node before")


def test_the_outline_reads_a_page_of_children_at_a_time(page: Page, service: PageService) -> None:
    opened(page, "#/t/flat")
    below = service.get("trees/flat/nodes/root", order="size", limit=1_000)["children"]
    assert len(below) > 80
    for shown in (40, 80):
        assert len(page.all(".row:not(.more)")) == shown
        page.one(".row.more").click()
        page.until(partial(row_count_is, page, min(shown + 40, len(below))), f"{shown + 40} rows")
    asked = page.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert sum("&after=40" in each or "&after=80" in each for each in asked) == 2


def tree_count_is(page: Page, count: int) -> bool:
    return len(page.all(".tree-rows .tree-row")) == count


def row_count_is(page: Page, count: int) -> bool:
    return len(page.all(".row:not(.more)")) == count


def test_a_search_is_drawn_and_leads_to_why_an_item_lies_where_it_lies(page: Page) -> None:
    opened(page)
    page.ask("Who plays the cello?")
    page.until(lambda: len(page.all(".hit")) == 10, "hits")
    assert page.place == "/#/t/chats?q=Who%20plays%20the%20cello%3F"
    assert "cello" in [each.text.lower() for each in page.all(".hit mark")]
    assert len(page.all(".end")) == 10
    assert page.text(".end-label.strong") == "1"
    # Names of what the way goes through stay as they are; the others step back.
    fills = "return [...document.querySelectorAll(arguments[0])].map((each) => getComputedStyle(each).fillOpacity)"
    page.until(lambda: set(page.run(fills, ".arc-label:not(.on-path)")) == {"0.5"}, "other names, stepped back")
    assert set(page.run(fills, ".arc-label.on-path")) <= {"1"}
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert page.text(".end-label.strong") == "2"
    assert page.all(".row.marked")

    page.one(".would summary").click()
    assert page.all(".would .step .gauge")

    leaf = next(each for each in page.all(".hit") if each.text.split("\n")[1] == "Item")
    leaf.click()
    page.one("#why").click()
    page.until(lambda: page.all(".route .step"), "how it was placed")
    figures = [each.text for each in page.all(".route .step-figures")]
    assert all("similarity" in each and "threshold" in each for each in figures)
    # It goes in while the similarity reaches the threshold, and only then.
    entered = [each for each in page.all(".route .step") if "goes in" in each.text]
    assert all("≥" in each.text for each in entered)
    assert "goes in" not in page.all(".route .step")[-1].text
    assert page.one(".row[aria-selected=true]").is_displayed()


def test_it_grows_while_records_come_in(page: Page, service: PageService) -> None:
    service.put("live", [{"id": "first", "text": "the harbour tunnel opens", "speaker": "Ana"}])
    opened(page, "#/t/live")
    page.says("#state", "Live")
    page.press("3")
    before = len(page.all(".commit"))
    page.run("window.stayed = true")
    service.put("live", [{"id": f"new{number}", "text": f"the harbour tunnel opens on day {number}"} for number in range(12)])
    page.says("[data-figure=items]", "13")
    page.until(lambda: page.text(".centre-amount") == "13", "the map's own count")
    page.until(lambda: len(page.all(".commit")) > before, "its commit")
    page.until(lambda: page.all(".row.summary"), "a topic in the outline")
    assert page.run("return window.stayed") is True
    page.one(".commit .chip").click()
    page.says(".node .badge.kind", "Item")


def test_a_tab_that_nobody_has_seen_yet_holds_no_connection(page: Page, service: PageService) -> None:
    service.put("aside", [{"id": "first", "text": "the harbour tunnel opens", "speaker": "Ana"}])
    unseen = """
        window.unseen = true;
        window.followed = [];
        Object.defineProperty(Document.prototype, "hidden", { configurable: true, get: () => window.unseen });
        const asked = window.fetch;
        window.fetch = (url, ...more) => {
          if (String(url?.url ?? url).includes("/commits/stream")) window.followed.push(String(url));
          return asked(url, ...more);
        };
    """
    added = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": unseen})
    try:
        opened(page, "#/t/aside")
        page.press("3")
        page.one(".commit")
        assert page.run("return window.followed") == []
        page.run("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
        page.says("#state", "Live")
        assert len(page.run("return window.followed")) == 1
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_texts_are_texts_whatever_they_say(page: Page) -> None:
    opened(page, "#/t/odd")
    page.ask("harm")
    page.says(".hit-text", HOSTILE)
    page.until(lambda: page.all(".hit"), "hits")
    next(each for each in page.all(".hit") if HOSTILE in each.text).click()
    page.says(".node h2", HOSTILE)
    for shown in (".node-text", ".facts dt", ".facts dd", ".row-text"):
        page.says(shown, "<img src=x")
    assert page.run("return document.querySelectorAll('main img, main script, main a[href^=javascript]').length") == 0
    page.one("#why").click()
    page.until(lambda: page.all(".route .step"), "how it was placed")
    page.press("3")
    page.says(".commit", "<img src=x")
    assert page.run("return window.harmed ?? null") is None
    page.ask("tunnel opens")
    page.until(lambda: page.all(".hit"), "hits")
    next(each for each in page.all(".hit") if "The tunnel opens" in each.text).click()
    assert page.one(".facts a").get_attribute("rel") == "noopener noreferrer nofollow"


def test_the_browser_itself_refuses_markup_and_other_hosts(page: Page) -> None:
    opened(page)
    assert "TrustedHTML" in page.run(
        "try { document.body.innerHTML = '<b>x</b>'; return '' } catch (error) { return String(error) }"
    )
    asked = page.run("return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert set(asked) == {page.url}
    assert "blocked" in page.driver.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (event) => done(`blocked ${event.effectiveDirective}`));"
        "fetch('https://example.com/').catch(() => {})"
    )
    page.driver.get_log("browser")


def test_light_and_dark_follow_the_system_until_one_is_chosen(page: Page) -> None:
    def background() -> str:
        return str(page.run("return getComputedStyle(document.body).backgroundColor"))

    opened(page)
    light = background()
    colours(page.driver, "dark")
    dark = page.until(lambda: background() if background() != light else None, "dark colours")
    page.one("#theme").click()
    assert background() == light
    assert page.one("#theme").get_attribute("aria-pressed") == "false"
    page.driver.refresh()
    page.until(lambda: page.all(".arc"), "the map")
    assert background() == light
    page.press("t")
    assert background() == dark


def test_everything_can_be_done_with_the_keyboard(page: Page) -> None:
    page.open()
    page.one("[data-tree=chats] a")
    page.press(Keys.TAB, Keys.ENTER)
    assert page.focused == "main"
    page.press("/")
    assert page.focused == "filter"
    page.run("document.querySelector('[data-tree=chats] a').focus()")
    page.press(Keys.ENTER)
    page.until(lambda: page.all(".arc") and page.all(".row"), "the tree")

    page.run("document.querySelector('.row[tabindex=\"0\"]').focus()")
    first = page.focused
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: page.all(".row[aria-level='2']"), "an open topic")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert page.focused == first
    page.press(Keys.ENTER)
    page.until(lambda: page.all(".node .part"), "the topic")
    assert page.focused == first
    page.press("z")
    page.until(lambda: page.all(".trail button"), "the map of the topic")
    page.press(Keys.BACKSPACE)
    page.until(lambda: not page.all(".trail button"), "the whole map")
    page.press(Keys.END)
    assert page.focused != first

    page.press("/", "cello", Keys.ENTER)
    page.until(lambda: page.all(".hit"), "hits")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.says(".node .badge.kind", "Item")
    page.press(Keys.TAB, "w") if page.focused == "query" else page.press("w")
    page.until(lambda: page.all(".route .step"), "how it was placed")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all(".line"), "nothing drawn")
    page.press("3")
    assert page.one("#pane-activity").is_displayed()
    page.press("?")
    assert page.one("dialog").is_displayed()
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog"), "no dialog")
    page.press("g")
    page.one(".tree-table")


@pytest.mark.parametrize("width", [320, 390, 820, 1024])
def test_nothing_is_broken_or_leaves_a_hole_at_any_width(page: Page, width: int) -> None:
    sized(page.driver, width, 800)
    page.open("#/t/chats")
    page.until(lambda: page.all(".arc"), "the map")
    lines = (
        "return [...document.querySelectorAll('.bar .brand, .bar .button')]"
        ".filter((each) => each.getClientRects().length && each.getBoundingClientRect().height > 44)"
        ".map((each) => each.textContent)"
    )
    assert page.run(lines) == []
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    head, ask = page.run(
        "return ['.tree-head', '.ask'].map((each) => document.querySelector(each).getBoundingClientRect()).map((each) => "
        "[each.left, each.right, each.width])"
    )
    if width <= 820:
        assert ask[2] >= head[2] - 48, "the question has the whole width of its line"


def test_a_phone_shows_one_part_at_a_time(page: Page) -> None:
    sized(page.driver, 390, 844, touch=True)

    def fits() -> None:
        assert page.run("return document.documentElement.scrollWidth - innerWidth") <= 0

    page.open()
    page.one("[data-tree=chats] [data-label=Items]")
    fits()
    page.one("[data-tree=chats] a").click()
    page.until(lambda: page.all(".arc"), "the map")
    fits()
    small = page.run(
        "return [...document.querySelectorAll('.bottom button, .bar button, .ask button')].filter((each) => each.offsetParent)"
        ".map((each) => each.getBoundingClientRect()).filter(({width, height}) => width < 36 || height < 36).length"
    )
    assert small == 0
    assert page.all("#pane-outline") == []
    for part, shown in (("outline", ".row"), ("activity", ".commit"), ("map", ".arc")):
        page.one(f".bottom [data-pane={part}]").click()
        page.one(shown)
        fits()
    page.run("document.querySelector('.arc.l1').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    page.one(".picked button").click()
    page.says(".node .badge.kind", "Topic")
    page.ask("cello")
    page.until(lambda: page.all(".hit"), "hits")
    fits()


def test_it_passes_axe_in_both_colours(page: Page) -> None:
    for scheme in ("light", "dark"):
        colours(page.driver, scheme)
        page.open()
        page.says("[data-tree=chats] [data-label=Items]", "308")
        assert page.findings() == []
        opened(page)
        page.one(".row.summary .twist").click()
        page.until(lambda: page.all(".row[aria-level='2']"), "an open topic")
        page.one(".row.summary .row-text").click()
        page.until(lambda: page.all(".node .part"), "the topic")
        assert page.findings() == []
        page.ask("cello")
        page.until(lambda: page.all(".hit"), "hits")
        page.one(".would summary").click()
        assert page.findings() == []
        page.press(Keys.TAB, "?")
        page.one("dialog")
        assert page.findings() == []
    sized(page.driver, 390, 844, touch=True)
    page.open("#/t/chats")
    page.until(lambda: page.all(".arc"), "the map")
    assert page.findings() == []


def test_what_is_not_there_and_what_goes_away_is_said(page: Page, service: PageService) -> None:
    page.open("#/t/nobody")
    page.says(".blank.error", "There is no such tree")
    page.open("#/somewhere/else")
    page.says(".blank", "nothing at this address")
    opened(page, "#/t/chats/n/no-such-node")
    page.says("#pane-node .blank.error", "There is no such node")
    page.one("#pane-node .blank button").click()
    page.says(".node .badge.kind", "Tree")

    opened(page)
    service.stop()
    page.ask("cello")
    page.says("#banner", "cannot be reached")
    page.says("#pane-search .blank.error", "cannot be reached")
    service.start()
    page.until(lambda: not page.all("#banner"), "the service again")
    page.ask("cello")
    page.until(lambda: page.all(".hit"), "hits")
    page.says("#state", "Live")


def test_a_key_is_asked_for_kept_in_the_tab_and_never_in_an_address(driver: Any, tmp_path: Path) -> None:
    with page_service(tmp_path) as running:
        key = running.command("keys", "create", "browser", "--right", "read")["key"]
        sized(driver, WIDE, HIGH)
        page = Page(driver, running.url)
        page.open()
        page.one("#key-input").send_keys("banyan_wrong", Keys.ENTER)
        page.says("#key-mistake", "not accepted")
        page.one("#key-input").send_keys("naïve ключ", Keys.ENTER)
        page.says("#key-mistake", "not accepted")
        assert page.findings() == []
        page.one("#key-input").send_keys(key, Keys.ENTER)
        page.says(".blank", "No trees yet")
        assert page.run("return Object.values(sessionStorage)") == [key]
        assert key not in page.run("return JSON.stringify(localStorage) + document.cookie")
        visited = page.run("return performance.getEntriesByType('resource').map((each) => each.name).join(' ') + location.href")
        assert "banyan_" not in visited
        driver.refresh()
        page.says(".blank", "No trees yet")
        # What a stranger is to type is seen whole, in the middle of the page, with the key's place in it.
        wide, left, right, hidden = page.run(
            "const at = document.querySelector('.blank pre'), place = at.getBoundingClientRect();"
            "return [at.scrollWidth <= at.clientWidth, place.left, document.documentElement.clientWidth - place.right,"
            " document.querySelector('#filter').hidden]"
        )
        assert (wide, hidden) == (True, True)
        assert abs(left - right) < 2
        assert "Authorization: Bearer $KEY" in page.text(".blank pre")
        # Trees that are made meanwhile come by themselves, each to its place by name.
        file = tmp_path / "one.jsonl"
        file.write_text('{"id":"t-1","text":"I moved to Porto."}\n', encoding="utf-8")
        for number, tree in enumerate(("m", "z", "a"), 1):
            running.command("ingest", str(file), "--tree", tree)
            page.until(partial(tree_count_is, page, number), f"{number} trees")
        assert page.run("return [...document.querySelectorAll('[data-tree]')].map((each) => each.dataset.tree)") == ["a", "m", "z"]
        page.one("#key").click()
        next(each for each in page.all("dialog button") if each.text == "Forget the key").click()
        page.one("#key-input")
        assert page.run("return sessionStorage.length") == 0
        assert page.complaints() == []


def test_the_description_of_the_api_comes_from_the_service_too(page: Page) -> None:
    page.driver.get(f"{page.url}/docs")
    page.until(lambda: len(page.all(".opblock")) >= 16, "its operations")
    asked = page.run("return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert set(asked) == {page.url}
