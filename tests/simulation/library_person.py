"""Person who uses the client library (`app_server.client`).

The messages on the wire are recorded, and the library's report of a turn has to match what the server sent.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.client import (
    ApprovalAnswer,
    ApprovalRequest,
    AppServer,
    ClientToolRequest,
    CommandApprovalRequest,
    PatchApprovalRequest,
    RequestRefused,
    ServerEnded,
    ThreadClosed,
    ThreadHandle,
    TurnHandle,
)
from app_server_protocol.encoding import Json
from app_server_protocol.v2.thread_open import FunctionDynamicToolSpec
from tests.simulation.connection import Gone
from tests.simulation.sayings import call_of, marks_of
from tests.simulation.thread_person import CLIENT_TOOL, ThreadPerson
from tests.support.client import MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld


class _RecordedLink:
    """The client's end of a connection, in the form that the library requires."""

    def __init__(self, person: "LibraryPerson") -> None:
        self._person = person

    async def lines(self) -> AsyncIterator[list[bytes]]:
        async for line in self._person.wire.lines():
            self._person.hear(line)
            yield [line]

    async def write(self, data: bytes) -> None:
        if not self._person.dead:
            for line in data.splitlines():
                self._person.note_message(json.loads(line), sent=True)
        await self._person.wire.write(data)

    async def close(self) -> None:
        await self._person.wire.close()

    async def cause_of_end(self) -> str:
        return "the server has ended"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["_RecordedLink"]:
        yield self
        await self.close()


class LibraryPerson(ThreadPerson):
    """Person who uses the server through the library."""

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._server: AppServer | None = None
        self._connected, self._leaves = anyio.Event(), anyio.Event()
        self._handles: dict[str, ThreadHandle] = {}
        self._turns: dict[str, TurnHandle] = {}
        self._taken: set[int] = set()
        """Questions that a handler decides. One item may have several."""

    async def read(self) -> None:
        link = _RecordedLink(self)
        try:
            async with AppServer.connect(link, on_approval=self._decide_for_library) as server:  # type: ignore[arg-type]
                self._server = server
                self._connected.set()
                await self._leaves.wait()
        except ServerEnded:
            pass
        finally:
            self.closed = True
            self._connected.set()
            self.wake()

    def asked(self, question: Json) -> None:
        self.open_questions.append(question)

    async def leave(self) -> None:
        self.leaving = True
        self.left_at = anyio.current_time() if self.left_at is None else self.left_at
        self.world.model.note("somebody left")
        self._leaves.set()
        await self.until_closed()

    async def begin(self) -> None:
        await self._connected.wait()

    async def ask(self, method: str, params: Json) -> Json:
        self.asking += 1
        try:
            return {"result": await self._alive().request_raw(method, params)}
        except RequestRefused as refused:
            return {"error": {"code": refused.code, "message": refused.message}}
        except ServerEnded:
            raise Gone from None
        finally:
            self.asking -= 1

    def _alive(self) -> AppServer:
        if self._server is None or self.closed or self.leaving or self.dead:
            raise Gone
        return self._server

    async def open(self) -> str:
        try:
            tools = [FunctionDynamicToolSpec.model_validate(CLIENT_TOOL)] if self.habits.client_tools else []
            handle = await self._alive().start_thread(cwd=self.world.workspace, dynamic_tools=tools)
        except ServerEnded:
            raise Gone from None
        self._handles[handle.id] = handle
        return handle.id

    async def say(self, thread: str, text: str) -> str | None:
        handle = self._handles.get(thread)
        if handle is None:
            return await super().say(thread, text)
        self._alive()
        try:
            turn = await handle.start_turn(text)
        except RequestRefused:
            return None
        except ServerEnded:
            raise Gone from None
        self._turns[turn.id] = turn
        return turn.id

    async def ended(self, thread: str, turn: str) -> str:
        if turn not in self._turns:
            return await super().ended(thread, turn)
        try:
            result = await self._turns[turn].result()
        except (ServerEnded, ThreadClosed):
            raise Gone from None
        told = await super().ended(thread, turn)
        if result.status != told:
            self.wrong.append(f"the library says that {turn} is {result.status}, and the server {told}")
        shown = [item.id for item in result.items]
        if shown != [each for each in self._completed.get(turn, ()) if each in shown]:
            self.wrong.append(f"the library has other items of {turn} than the server sent: {shown}")
        return told

    async def history(self, thread: str) -> list[str] | None:
        try:
            handle = await self._alive().resume_thread(thread)
        except RequestRefused:
            return None
        except ServerEnded:
            raise Gone from None
        self._handles[thread] = handle
        read = await self.ask("thread/read", {"threadId": thread, "includeTurns": True})
        return marks_of(read["result"]["thread"]) if "result" in read else None

    async def _decide_for_library(self, request: ApprovalRequest) -> ApprovalAnswer:
        if not isinstance(request, CommandApprovalRequest | PatchApprovalRequest | ClientToolRequest):
            return False
        item = request.params.call_id if isinstance(request, ClientToolRequest) else request.params.item_id
        asked = (each for each in self.open_questions if call_of(each["params"]) == item)
        question = next((each for each in asked if each["id"] not in self._taken), None)
        if question is None:
            return False  # it was sent twice, and withdrawn once
        self._taken.add(question["id"])
        kind = await self.decide(question)
        if isinstance(request, ClientToolRequest):
            return request.fail("no") if kind in ("no", "abort") else request.succeed("it is there")
        if kind == "session":
            return request.accept_for_thread()
        return request.cancel() if kind == "abort" else kind in ("yes", "twice")
