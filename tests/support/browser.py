"""A Chromium for tests of the inspector's page, in a thread of its own.

While Playwright's synchronous API is in use, its event loop counts as running in the thread that started it, and no
other event loop can run there: async tests that the same worker runs next would fail. So the browser lives in one
thread from its start to its end, and a test that asks for a `page` runs in that thread. The order of the tests in a
worker does not matter.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.support.waiting import PATIENCE

P = ParamSpec("P")
T = TypeVar("T")


class BrowserThread:
    """A browser and the single thread that may use it."""

    def __init__(self, thread: ThreadPoolExecutor, chromium: Any) -> None:
        self._thread, self._chromium = thread, chromium

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the browser's thread and wait for its result."""
        return self._thread.submit(work, *args, **kwargs).result()

    @contextmanager
    def page(self) -> Iterator[Any]:
        """Open a page. The block fails if a script of the page raised an error."""
        page = self.run(
            self._chromium.new_page, viewport={"width": 1440, "height": 860}, accept_downloads=True
        )
        errors: list[str] = []
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        try:
            yield page
        finally:
            self.run(page.close)
        assert errors == []


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserThread]:
    """Yield a browser. The test is skipped if something that a page needs is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright (make venv)")
    pytest.importorskip("starlette", reason="no extra `inspect`")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    sync_api.expect.set_options(timeout=PATIENCE * 1000)
    with ThreadPoolExecutor(1, "browser") as thread, ExitStack() as closing:
        playwright = thread.submit(sync_api.sync_playwright().start).result()
        closing.callback(lambda: thread.submit(playwright.stop).result())
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]
        launched = thread.submit(
            lambda: playwright.chromium.launch(executable_path=program, args=arguments)
        ).result()
        closing.callback(lambda: thread.submit(launched.close).result())
        yield BrowserThread(thread, launched)


@pytest.fixture
def page(browser: BrowserThread) -> Iterator[Any]:
    """Yield a page of the browser. The test runs in the browser's thread."""
    with browser.page() as opened:
        yield opened


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that asks for a page in the browser's thread."""
    if not {"browser", "page"} <= {*pyfuncitem.fixturenames}:
        return None
    browser = pyfuncitem.funcargs["browser"]
    assert isinstance(browser, BrowserThread)
    assert not iscoroutinefunction(pyfuncitem.obj), (
        "an async test asks for the `browser`, and runs work in its thread"
    )
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    browser.run(pyfuncitem.obj, **arguments)
    return True


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect  # noqa: PLC0415  not installed everywhere

    return expect(locator)


def line(page: Any, method: str) -> Any:
    """Return the lines of the list that have this method."""
    return page.locator("#list .line", has=page.get_by_text(method, exact=True))


def capture(page: Any, name: str, replaced: Mapping[str, str], theme: str, view: str) -> None:
    """Write `docs/NAME.png`, with texts of this machine replaced, if pictures are recorded (`make captures`)."""
    if "RECORD_CAPTURES" not in os.environ:
        return
    page.set_viewport_size({"width": 1280, "height": 760})
    page.emulate_media(color_scheme=theme)
    page.locator(f"#tab-{view}").click()
    expect(page.locator(f"#view-{view} svg, #view-{view} .bars").first).to_be_visible()
    page.evaluate(REPLACED, dict(replaced))
    page.screenshot(path=DOCS / f"{name}.png")


DOCS = Path(__file__).resolve().parents[2] / "docs"
REPLACED = """replaced => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    for (const [from, to] of Object.entries(replaced)) {
      if (text.data.includes(from)) text.data = text.data.replaceAll(from, to);
    }
  }
}"""
