"""The inspector's page beside a turn of this server, with requests and waits while the turn runs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.support.browser import BrowserThread, capture, expect, line
from tests.support.inspected import INITIALIZE, Inspected
from tests.support.program import SCRIPT
from tests.support.scripted_model import begins_to_say, reply, says, script, word
from tests.support.world import MakeWorld

pytestmark = pytest.mark.process


async def test_a_turn_with_an_approval_is_watched_live(browser: BrowserThread, world: MakeWorld) -> None:
    words = "It is made, and says hi to everybody who reads it."
    said = [word(each) for each in re.findall(r"\S+\s*", words)]
    replies = reply(script("echo hi > made")), reply(begins_to_say(), *said, says(words))
    async with world(*replies, config={"approval_policy": "untrusted"}, initialize=False) as w:
        await anyio.to_thread.run_sync(watch_a_turn, browser, w.root, w.workspace, w.environment)
        assert (w.workspace / "made").read_text() == "hi\n"


def watch_a_turn(browser: BrowserThread, root: Path, workspace: Path, environment: Mapping[str, str]) -> None:
    with browser.page() as page:
        running = Inspected(root, "--", SCRIPT, environment=environment)
        try:
            browser.run(play_a_turn, page, running, workspace)
            browser.run(page.goto, "about:blank")
            running.leave_with_helpers()
        finally:
            running.process.kill()
            running.process.wait()


def play_a_turn(page: Any, running: Inspected, workspace: Path) -> None:
    page.goto(running.url())
    running.send(INITIALIZE)
    running.receive()
    running.send({"id": 2, "method": "thread/start", "params": {"cwd": str(workspace)}})
    while (answer := running.receive()).get("id") != 2:
        pass
    words = [{"type": "text", "text": "Make a file that says hi."}]
    thread = answer["result"]["thread"]["id"]
    running.send({"id": 3, "method": "turn/start", "params": {"threadId": thread, "input": words}})
    asked = running.receive_until("item/commandExecution/requestApproval")
    expect(line(page, "item/commandExecution/requestApproval")).to_be_visible()
    expect(page.locator("#view-timeline .gap.is-open")).to_have_count(1)
    running.send({"id": asked["id"], "result": {"decision": "accept"}})
    running.receive_until("turn/completed")
    running.receive_until("thread/status/changed")
    expect(page.locator("#view-timeline .gap")).to_have_count(1)
    expect(page.locator("#view-timeline .gap.is-open")).to_have_count(0)
    expect(page.locator("#view-timeline [data-kind=commandExecution]")).to_have_count(1)
    expect(page.locator("#view-timeline")).to_contain_text("waited")
    strip = page.locator("#view-timeline .strip")
    expect(strip).to_have_attribute(
        "aria-label", re.compile(r"Where the time went: model \d+ %, tools \d+ %")
    )
    expect(strip.locator(".of-question")).to_have_count(1)
    line(page, "item/commandExecution/requestApproval").first.click()
    expect(page.locator("#facts")).to_contain_text("its answer")
    replaced = {SCRIPT: "app-server", str(workspace): "/home/me/project"}
    capture(page, "inspector-turn", replaced, theme="light", view="timeline")
    page.locator("#view-timeline [data-kind=commandExecution]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#message-title")).to_have_text("item/started")
    expect(page.locator("#wrong-count")).to_be_hidden()
