"""Accessibility of the inspector's page: with the keyboard alone, in a narrow window, with a screen reader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.session_records import SessionHead
from tests.cli.inspect.recorded_turn import TURN_WITH_APPROVAL, analysed
from tests.support.browser import expect, line
from tests.support.inspected import served

pytestmark = pytest.mark.process

QUESTION = "item/commandExecution/requestApproval"
ASKED = next(at for at, (_, message) in enumerate(TURN_WITH_APPROVAL) if message.get("method") == QUESTION)
WIDE = {"width": 1280, "height": 760}
NARROW = {"width": 400, "height": 800}
CONTROLS = "button, select, input, summary, [tabindex]"


@pytest.fixture
def url(browser: Any, tmp_path: Path) -> Iterator[str]:
    """Return the address of the page of a turn with an unanswered question."""
    store = EntryStore(SessionHead(("app-server",), ""))
    store.add(analysed([*TURN_WITH_APPROVAL[: ASKED + 1], *TURN_WITH_APPROVAL[ASKED + 3 :]]))
    with served(store, tmp_path / "url") as address:
        yield address


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def complaints(page: Any) -> list[str]:
    """Return the violations that axe-core finds on the page in its present state."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core (make venv)")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"], "runOnly": RULES})
    return [
        f"{rule['id']} at {' '.join(node['target'])}: {node['failureSummary']}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(("size", "theme"), [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")])
def test_axe_finds_nothing(page: Any, url: str, size: Any, theme: str) -> None:
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.goto(url)
    line(page, QUESTION).click()
    expect(page.locator("#facts")).to_contain_text("not answered yet")
    expect(page.locator("#view-timeline .bar.gap")).to_have_count(1)
    assert complaints(page) == []
    for key, shown in {
        "2": "#view-waiting .wait",
        "3": "#view-figures .methods",
        "4": "#view-stderr",
    }.items():
        page.keyboard.press(key)
        expect(page.locator(shown).first).to_be_visible()
    page.keyboard.press("3")
    expect(page.locator("#view-figures .methods")).to_be_visible()
    assert complaints(page) == []
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert complaints(page) == []


@pytest.mark.parametrize("width", [320, 400])
def test_a_narrow_window_shows_everything(page: Any, url: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(url)
    expect(page.locator("#view-timeline .bar.gap")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing scrolls sideways"
    for number in "1234":
        page.keyboard.press(number)
        assert page.evaluate(CUT, CONTROLS) == []
    line(page, QUESTION).click()
    expect(page.locator("#json")).to_be_in_viewport()
    expect(page.locator("#json")).to_contain_text('"itemId"')
    page.get_by_role("radio", name="← Server").click()
    expect(page.locator("#list .line.from-client")).to_have_count(0)


CUT = """controls => [...document.querySelectorAll(controls)].filter((each) => {
  if (!each.checkVisibility()) return false;
  const { left, right, bottom } = each.getBoundingClientRect();
  const around = each.parentElement.getBoundingClientRect();
  const hides = getComputedStyle(each.parentElement).overflow === "hidden";
  return left < 0 || right > innerWidth || (hides && (right > around.right + 1 || bottom > around.bottom + 1));
}).map((each) => each.outerHTML)"""
"""Script that returns controls which reach beyond the window or their container."""


def test_each_control_has_its_turn_with_the_tab_key(page: Any, url: str) -> None:
    page.goto(url)
    line(page, QUESTION).click()
    expect(page.locator("#facts")).to_contain_text("not answered yet")
    expect(page.locator("#view-timeline .bar.gap")).to_have_count(1)
    wanted = page.evaluate(REACHABLE, CONTROLS)
    assert len(wanted) > 20
    seen: dict[str, None] = {}
    page.evaluate("document.activeElement.blur()")
    for _ in range(2 * len(wanted)):
        page.keyboard.press("Tab")
        named, is_marked = page.evaluate(FOCUSED)
        if named in seen:
            break
        seen[named] = None
        assert is_marked, f"{named} does not show that it has the focus"
    assert {*wanted} - {*seen} == set()


NAMED = "const named = (each) => each.id || each.dataset.key || each.dataset.path || each.outerHTML;"
REACHABLE = f"""controls => {{
  {NAMED}
  return [...document.querySelectorAll(controls)]
    .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0).map(named);
}}"""
FOCUSED = f"""() => {{
  {NAMED}
  const now = document.activeElement;
  const heads = document.querySelector(".heads");
  const marked = now.id === "list" ? getComputedStyle(heads).boxShadow !== "none"
    : now.id === "split" ? getComputedStyle(now).backgroundColor !== "rgba(0, 0, 0, 0)"
    : getComputedStyle(now).outlineStyle !== "none";
  return [now === document.body ? "the end" : named(now), marked || now === document.body];
}}"""


def test_a_session_is_read_with_the_keyboard_alone(page: Any, url: str) -> None:
    press = page.keyboard.press
    chosen = page.locator("#list .line[aria-selected=true]")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(url)
    expect(page.locator("#list")).to_be_focused()
    expect(page.locator("#questions")).to_be_visible()
    press("q")
    expect(chosen).to_contain_text("waits for an answer")
    expect(page.locator("#list")).to_have_attribute("aria-activedescendant", chosen.get_attribute("id"))
    press("c")
    expect(page.locator("#notice")).to_have_text("The message was copied as JSON.")
    press("m")
    expect(page.locator("#json")).to_be_focused()
    press("Tab")
    press("Enter")
    expect(page.locator("#json details").first).not_to_have_attribute("open", "")
    press("j")
    press("End")
    expect(chosen).to_contain_text("thread/status/changed")
    press("/")
    page.keyboard.type("useragent")
    expect(page.locator("#list .line")).to_have_count(1)
    press("Escape")
    press("j")
    expect(chosen).to_contain_text("userAgent")
    press("p")
    expect(chosen).to_contain_text("clientInfo")
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("#view-timeline .bar.gap")).to_have_count(1)
    page.locator("#tab-timeline").focus()
    press("ArrowRight")
    expect(page.locator("#tab-waiting")).to_be_focused()
    expect(page.locator("#view-waiting")).to_be_visible()
    press("ArrowLeft")
    press("Tab")
    press("Tab")
    press("Enter")
    expect(page.locator("#message-title")).to_have_text("item/started")
    for _ in range(5):
        press("j")
    expect(chosen).to_contain_text("×3")
    press("Enter")
    expect(page.locator("#list .line.is-part")).to_have_count(3)
    press("?")
    expect(page.locator("#keys")).to_be_visible()
    press("Escape")
    expect(page.locator("#keys")).to_be_hidden()


def test_what_is_chosen_while_a_list_is_opened_stays_chosen(page: Any, url: str) -> None:
    """Meanwhile the page asks for the position of the message that was chosen before."""
    chosen = page.locator("#list .line[aria-selected=true]")
    page.goto(url)
    line(page, QUESTION).click()
    expect(page.locator("#facts")).to_contain_text("not answered yet")
    held: list[Any] = []
    page.route("**/place?*", lambda route: held.append(route))
    with page.expect_request("**/place?*"):
        page.locator("#text").fill("useragent")
    expect(page.locator("#list .line")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(chosen).to_contain_text("userAgent")
    with page.expect_response("**/place?*"):
        held[0].continue_()
    page.evaluate(
        "new Promise((drawn) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(drawn))))"
    )
    expect(chosen).to_contain_text("userAgent")
