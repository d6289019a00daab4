"""An MCP server of a simulated world: it starts late or never, answers, fails, asks the user, hangs, and dies during
any of these. It speaks one of the two eras of MCP; after a restart that may be the other one.
"""

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from app_server_protocol.encoding import Json

if TYPE_CHECKING:
    from tests.simulation.sim_commands import Commands

TOOL = {
    "name": "echo",
    "description": "says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
QUESTION = {
    "message": "Which project?",
    "requestedSchema": {"type": "object", "properties": {"project": {"type": "string"}}},
}
MODERN = "2026-07-28"


class _Dies(Exception):
    """The server dies in the middle of an operation."""


class _Pipe:
    """Output pipe of the server."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[bytes](math.inf)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive.receive()

    def write(self, message: Json) -> None:
        self.write_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write_bytes(self, data: bytes) -> None:
        try:
            self._send.send_nowait(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the reader has closed the pipe

    def end(self) -> None:
        self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


@dataclass(slots=True)
class SimService:
    """Running server, with the interface of `app_server.engine.sandbox.exec.service.ServiceProcess`."""

    commands: "Commands"
    stdout: _Pipe = field(default_factory=_Pipe)
    stderr: _Pipe = field(default_factory=_Pipe)
    _ended: anyio.Event = field(default_factory=anyio.Event)
    _asked: dict[str, anyio.Event] = field(default_factory=dict)
    _received: list[Json] = field(default_factory=list)
    _some: anyio.Event = field(default_factory=anyio.Event)
    _is_modern: bool | None = None
    """Whether it speaks the revision 2026-07-28 alone; None until its first message."""

    @property
    def stdin(self) -> "SimService":
        return self

    # --- as the program's input
    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._ended.is_set():
            raise anyio.BrokenResourceError
        for line in item.splitlines():
            message = json.loads(line)
            answered = self._asked.pop(str(message.get("id")), None) if "method" not in message else None
            if answered is not None:
                answered.set()
            elif "id" in message:
                self._received.append(message)
        self._some.set()

    async def aclose(self) -> None:
        self._end()

    # --- the interface of a process
    async def wait(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._end()

    def kill(self) -> None:
        self._end()

    async def close(self) -> None:
        self._end()
        self.stdout.close()
        self.stderr.close()

    def _end(self) -> None:
        self.stdout.end()
        self.stderr.end()
        self._ended.set()

    # --- its life
    async def serve(self) -> None:
        """Answer requests until the end."""
        self.commands.running += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._serve)
                await self._ended.wait()
                group.cancel_scope.cancel()
        finally:
            self.commands.running -= 1
            self._end()

    async def _serve(self) -> None:
        try:
            while True:
                while not self._received:
                    self._some = anyio.Event()
                    await self._some.wait()
                await self._answer(self._received.pop(0))
        except _Dies:
            self.commands.model.note("an MCP server died")
            self._end()

    async def _answer(self, request: Json) -> None:
        id = request["id"]
        if self._is_modern is None:
            self._is_modern = self._drawn("era of an MCP server", ("old", "new")) == "new"
        match request["method"]:
            case "initialize" if self._is_modern:
                data = {"supported": [MODERN]}
                self.stdout.write({"id": id, "error": {"code": -32022, "message": "too old", "data": data}})
            case "server/discover" if self._is_modern:
                await self._start()
                self.stdout.write(
                    {"id": id, "result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
                )
            case "initialize":
                await self._start()
                info = {"name": "notes", "version": "1"}
                version = request["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                self.stdout.write({"id": id, "result": result})
            case "tools/list":
                self.stdout.write({"id": id, "result": {"tools": [TOOL]}})
            case "tools/call":
                text = request["params"]["arguments"].get("text", "")
                if "inputResponses" in request["params"]:
                    self._finish(id, text)
                else:
                    await self._call(id, text)
            case "ping":
                self.stdout.write({"id": id, "result": {}})
            case _:
                self.stdout.write({"id": id, "error": {"code": -32601, "message": "no such method"}})

    async def _start(self) -> None:
        match self._drawn("start of an MCP server", self.commands.model.habits.mcp_starts):
            case "slow":
                await self._last(20.0)
            case "dies":
                raise _Dies
            case "mute":
                await self._last(math.inf)

    async def _call(self, id: Json, text: str) -> None:
        kind = self._drawn("call of an MCP tool", self.commands.model.habits.mcp_calls)
        await self._last(self.commands.model.draws.seconds("MCP", *self.commands.model.habits.durations))
        match kind:
            case "error":
                self.stdout.write({"id": id, "error": {"code": -32000, "message": f"no {text}"}})
                return
            case "garbage":
                self.stdout.write_bytes(b"Traceback: \xff\xfe\n{not json\n\n")
            case "dies":
                raise _Dies
            case "hangs":
                await self._last(math.inf)
            case "asks" | "asks and dies" if self._is_modern:
                await self._require_input(id, dies=kind == "asks and dies")
                return
            case "asks":
                await self._ask(id)
            case "asks and dies":
                await self._ask(id, dies=True)
        self._finish(id, text)

    def _finish(self, id: Json, text: str) -> None:
        self.stdout.write({"id": id, "result": {"content": [{"type": "text", "text": text}]}})

    async def _require_input(self, id: Json, *, dies: bool) -> None:
        self.commands.model.note("an MCP server asked the user")
        form = {"method": "elicitation/create", "params": QUESTION}
        self.stdout.write(
            {"id": id, "result": {"resultType": "input_required", "inputRequests": {"one": form}}}
        )
        if dies:
            await anyio.sleep(0.2)
            raise _Dies

    async def _ask(self, id: Json, *, dies: bool = False) -> None:
        self.commands.model.note("an MCP server asked the user")
        question = f"ask-{id}"
        answered = self._asked[question] = anyio.Event()
        self.stdout.write({"id": question, "method": "elicitation/create", "params": QUESTION})
        if dies:
            await anyio.sleep(0.2)
            raise _Dies
        await answered.wait()

    def _drawn(self, what: str, kinds: tuple[str, ...]) -> str:
        return "fine" if self.commands.calm.is_set() else self.commands.model.draws.pick(what, kinds)

    async def _last(self, seconds: float) -> None:
        if not self.commands.calm.is_set():
            await self.commands.last(seconds)
