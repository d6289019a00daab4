"""`app-server inspect` as a process, with the client's ends of its pipes."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.cli.inspect.line_store import EntryStore
from app_server_protocol.encoding import Json
from tests.support.processes import children
from tests.support.program import SCRIPT
from tests.support.waiting import PATIENCE, wait_until

BROKEN = str(Path(__file__).with_name("broken_server.py"))
INITIALIZE: Json = {
    "id": 1,
    "method": "initialize",
    "params": {"clientInfo": {"name": "tests", "version": "1"}},
}


class Inspected:
    """`app-server inspect` as a process, with the client's ends of its pipes and the address of its page."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.url_file = folder / "url"
        self.url_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            (SCRIPT, "inspect", "--url-file", str(self.url_file), *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def url(self) -> str:
        wait_until(self.url_file.exists)
        return self.url_file.read_text().strip()

    def send(self, message: Json) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def receive(self) -> Json:
        return json.loads(self.stdout.readline())

    def receive_until(self, method: str) -> Json:
        while (message := self.receive()).get("method") != method:
            pass
        return message

    def helpers(self) -> set[int]:
        """Return the ids of the processes that it has started. They can be listed only on Linux."""
        return children(self.process.pid)

    def leave_with_helpers(self) -> None:
        """Leave, and wait for the helper process that serves the page: it has a low priority and ends later."""
        helpers = self.helpers()
        self.leave()
        wait_until(lambda: not any(Path(f"/proc/{helper}").exists() for helper in helpers))

    def leave(self) -> None:
        self.stdin.close()
        self.stdout.read()
        self.stdout.close()
        assert self.process.wait(PATIENCE) == 0


@contextmanager
def inspected(folder: Path, *server: str) -> Iterator[Inspected]:
    running = Inspected(folder, "--", *server)
    try:
        yield running
        running.leave()
    finally:
        running.process.kill()
        running.process.wait()


@contextmanager
def served(store: EntryStore, url_file: Path) -> Iterator[str]:
    """Serve the page of a session in a thread of this process; yield its address."""
    from app_server.cli.inspect import page_api, page_server  # noqa: PLC0415  an extra

    known, over = threading.Event(), threading.Event()

    async def until() -> None:
        known.set()
        await anyio.to_thread.run_sync(over.wait)

    sessions = page_api.ShownSessions(store, (), None)
    thread = threading.Thread(target=anyio.run, args=(page_server.serve_page, sessions, str(url_file), until))
    thread.start()
    try:
        assert known.wait(PATIENCE)
        yield url_file.read_text().strip()
    finally:
        over.set()
        thread.join(PATIENCE)
