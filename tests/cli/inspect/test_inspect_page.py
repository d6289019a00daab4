"""The inspector's page in a browser, as a person sees it: for a stream, and for a turn of this server."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.session_records import SessionHead
from app_server_protocol.values import replace
from tests.cli.inspect.recorded_turn import TURN, analysed, told
from tests.support.browser import capture, expect, line
from tests.support.inspected import BROKEN, INITIALIZE, inspected, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

LATE = "rule_10_nothing_follows_the_end_of_a_turn"
EARLIER = "rule_04_an_item_starts_before_anything_about_it"


def test_a_broken_order_is_marked_at_its_message_and_filters_work(page: Any, tmp_path: Path) -> None:
    with inspected(tmp_path, sys.executable, BROKEN, "200") as running:
        page.goto(running.url())
        running.send(INITIALIZE)
        expect(page.locator("#wrong-count")).not_to_be_empty()
        late = page.locator("#list .line.is-wrong", has_text="too late")
        expect(late.locator(".mark")).to_have_text(EARLIER)
        expect(line(page, "item/agentMessage/delta").first.locator(".times")).to_have_text("×200")
        late.click()
        expect(page.locator("#facts .violation strong").nth(1)).to_have_text(LATE)
        expect(page.locator("#json")).to_contain_text('"too late"')
        replaced = {f"{sys.executable} {BROKEN} 200": "my-server --stdio"}
        capture(page, "inspector-violation", replaced, theme="dark", view="figures")
        answer = page.locator("#list .line.kind-answer")
        expect(answer.locator(".right").first).to_have_text(re.compile(r"^\d.* (ms|s)$"))
        answer.click()
        page.keyboard.press("p")
        expect(page.locator("#list .line[aria-selected=true].kind-request")).to_contain_text("initialize")
        page.locator("#text").fill("word199")
        expect(page.locator("#list .line")).to_have_count(1)
        expect(page.locator("#counts")).to_contain_text("1 of")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.get_by_role("radio", name="→ Client").click()
        expect(page.locator("#list .line:not(.from-client)")).to_have_count(0)
        page.get_by_role("button", name="Clear").click()
        page.locator("#method").fill("turn/")
        expect(page.locator("#list .line")).to_have_count(2)
        page.locator("#only").select_option("violations")
        expect(page.locator("#list .line")).to_have_count(0)
        page.locator("#only").select_option("")
        page.locator("#method").fill("")
        page.locator("#turn").select_option("turn-1")
        expect(line(page, "initialize")).to_have_count(0)
        page.get_by_role("tab", name="stderr").click()
        expect(page.locator("#view-stderr")).to_contain_text("the model is slow today")


def test_what_waits_is_shown_until_it_is_answered(page: Any, tmp_path: Path) -> None:
    with inspected(tmp_path, sys.executable, BROKEN) as running:
        page.goto(running.url())
        running.send({"id": 9, "method": "wait"})
        expect(page.locator("#waiting-count")).to_have_text("2")
        expect(page.locator("#questions")).to_have_text("1 question waits")
        expect(page.locator("#list .line.is-waiting")).to_contain_text("item/tool/call")
        page.keyboard.press("q")
        expect(page.locator("#message-title")).to_have_text("item/tool/call")
        expect(page.locator("#facts")).to_contain_text("not answered yet")
        page.keyboard.press("2")
        expect(page.locator("#view-waiting")).to_contain_text("item/tool/call")
        running.send({"id": 0, "result": {}})
        expect(page.locator("#waiting-count")).to_be_hidden()
        expect(page.locator("#questions")).to_be_hidden()
        expect(page.locator("#list .line.is-waiting")).to_have_count(0)
        expect(page.locator("#view-waiting")).to_contain_text("No request waits")


MANY = 200_000


def test_two_hundred_thousand_messages_scroll(page: Any, tmp_path: Path) -> None:
    """The page holds only a part of them, whatever is shown."""
    with served(very_many(), tmp_path / "url") as url:
        page.goto(url)
        page.locator("#fold").uncheck()
        expect(page.locator("#counts")).to_contain_text("200,000 messages")
        expect(page.locator("#list .line", has_text=f"word{MANY - 1} ")).to_be_visible()
        assert page.locator("#list .line").count() < 120, "only what is in view is drawn"
        page.locator("#list").focus()
        page.keyboard.press("Home")
        expect(page.locator("#list .line", has_text=re.compile(r"word0\b"))).to_be_visible()
        page.locator("#list").evaluate("box => { box.scrollTop = box.scrollHeight / 2; }")
        expect(page.locator("#list .line", has_text=f"word{MANY // 2} ")).to_be_visible()
        assert page.locator("#list .line").count() < 120
        assert min(page.evaluate(SCROLLED)) > 10, "lines are there wherever it is scrolled to"
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        assert heap < 40e6, "what was scrolled past is not kept"
        page.locator("#text").fill(f"word{MANY - 2} ")
        expect(page.locator("#list .line:not(.is-empty)")).to_have_count(1)
        expect(page.locator("#counts")).to_contain_text("1 of 200,000")


def very_many() -> EntryStore:
    [first] = analysed([told("item/agentMessage/delta", turnId=TURN, itemId="message", delta="word0 ")])
    store = EntryStore(SessionHead((), ""))
    store.add(
        replace(
            first,
            number=number,
            record=replace(
                first.record, at=float(number), text=first.record.text.replace("word0", f"word{number}")
            ),
        )
        for number in range(MANY)
    )
    store.end()
    return store


SCROLLED = """async () => {
  const box = document.getElementById("list");
  const drawn = [];
  for (let step = 0; step < 8; step += 1) {
    box.scrollTop = (box.scrollHeight / 8) * step;
    for (let frame = 0; frame < 3; frame += 1) await new Promise((done) => requestAnimationFrame(done));
    const { top, bottom } = box.getBoundingClientRect();
    drawn.push([...box.querySelectorAll(".line")].filter((line) => {
      const place = line.getBoundingClientRect();
      return place.bottom > top && place.top < bottom;
    }).length);
  }
  return drawn;
}"""


def test_a_session_is_saved_opened_and_replayed(page: Any, tmp_path: Path) -> None:
    with inspected(tmp_path, sys.executable, BROKEN) as running:
        page.goto(running.url())
        running.send(INITIALIZE)
        expect(page.locator("#list .line", has_text="too late")).to_be_visible()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save").click()
        file = tmp_path / "saved.jsonl"
        saved.value.save_as(file)
        assert json.loads(file.read_text().splitlines()[0])["format"] == "app-server-session"
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Open…").click()
        chooser.value.set_files(file)
        expect(page.locator("#state")).to_have_text("ended")
        expect(page.locator("#session")).to_have_value("1")
        expect(page.locator("#list .line", has_text="too late")).to_be_visible()
        page.get_by_role("button", name="Replay").click()
        expect(page.locator("#session")).to_have_value("2")
        expect(page.locator("#list .line", has_text="the server exited with status 0")).to_be_visible()
        expect(page.locator("#list .line", has_text="too late").locator(".mark")).to_have_text(EARLIER)
        with page.expect_download() as exported:
            page.get_by_role("button", name="Export test").click()
        assert "def test_" in Path(exported.value.path()).read_text()


def test_a_page_can_be_read_on_when_the_server_has_ended(page: Any, tmp_path: Path) -> None:
    """The process that serves the page ends with the server."""
    with inspected(tmp_path, sys.executable, BROKEN) as running:
        page.goto(running.url())
        running.send(INITIALIZE)
        expect(page.locator("#list .line", has_text="too late")).to_be_visible()
        helpers = running.helpers()
    expect(page.locator("#list .line", has_text="the server exited with status 0")).to_be_visible()
    expect(page.locator("#state")).to_have_text("ended")
    page.locator("#text").fill("too late")
    expect(page.locator("#list .line")).to_have_count(1)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save").click()
    lines = [json.loads(each) for each in Path(saved.value.path()).read_text().splitlines()]
    assert lines[-1]["event"] == {"event": "exited", "status": 0}
    page.goto("about:blank")
    wait_until(lambda: not any(Path(f"/proc/{helper}").exists() for helper in helpers))


def test_a_message_is_copied_as_json_and_as_a_test(page: Any, tmp_path: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with inspected(tmp_path, sys.executable, BROKEN) as running:
        page.goto(running.url())
        running.send(INITIALIZE)
        page.locator("#list .line.kind-answer").click()
        page.keyboard.press("c")
        expect(page.locator("#notice")).to_have_text("The message was copied as JSON.")
        answer = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert answer["id"] == 1
        page.get_by_role("button", name="Copy test").click()
        expect(page.locator("#notice")).to_have_text("The test was copied.")
        exported = page.evaluate("navigator.clipboard.readText()")
        names: dict[str, Any] = {}
        exec(compile(exported, "exported", "exec"), names)
        assert names["STEPS"][-1].expected["result"].keys() == answer["result"].keys()


def test_what_a_server_says_is_text_and_nothing_else(page: Any, tmp_path: Path) -> None:
    code = (
        "import sys; sys.stdin.readline(); print(sys.argv[1], flush=True); "
        "print(sys.argv[1], file=sys.stderr, flush=True); sys.stdin.read()"
    )
    mark = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
    params = {"threadId": mark, "turnId": mark, "itemId": mark, mark: mark}
    message = json.dumps({"id": mark, "method": mark, "params": params})
    with inspected(tmp_path, sys.executable, "-c", code, message) as running:
        page.goto(running.url())
        running.send(INITIALIZE)
        page.locator("#list .line", has_text="onerror").last.click()
        expect(page.locator("#json")).to_contain_text("onerror")
        for number in "1234":
            page.keyboard.press(number)
        expect(page.locator("#view-stderr")).to_contain_text("onerror")
        assert page.locator("img, main script").count() == 0
        assert page.evaluate("window.hit") is None


def test_the_token_and_the_origin_are_needed(page: Any, tmp_path: Path) -> None:
    with inspected(tmp_path, sys.executable, BROKEN) as running, inspected_elsewhere(tmp_path) as elsewhere:
        url = running.url()
        root = re.sub(r"(http://[^/]+/).*", r"\1", url)
        assert page.goto(root).status == 403
        assert page.goto(url.replace("127.0.0.1", "localhost")).status == 200
        assert page.goto(elsewhere).status == 200
        asked = page.evaluate(
            "url => fetch(url).then((r) => r.text(), (error) => error.name)", f"{url}sessions/0"
        )
        assert asked == "TypeError", "another origin gets nothing"


@contextmanager
def inspected_elsewhere(folder: Path) -> Iterator[str]:
    """Yield the page of another inspector, which is another origin."""
    other = folder / "other"
    other.mkdir()
    with inspected(other, sys.executable, BROKEN) as running:
        yield running.url()


def test_both_themes_can_be_chosen(page: Any, tmp_path: Path) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    with inspected(tmp_path, sys.executable, BROKEN) as running:
        page.emulate_media(color_scheme="dark")
        page.goto(running.url())
        dark = page.evaluate(ground)
        page.keyboard.press("t")
        assert page.evaluate(ground) != dark
        page.keyboard.press("t")
        assert page.evaluate(ground) == dark
