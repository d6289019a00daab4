"""The model of a simulated world and the network before it: the replies, and how their bytes arrive.

A reply is drawn when it is requested, from the habits of the world: messages in pieces, reasoning, calls of tools. On
the way it may be refused, be late, come in pieces of any size, hang, or break off at any byte.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel

from app_server.engine.context.instructions import instruction_text
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest
from app_server_protocol.encoding import Json
from tests.simulation.draws import Draws
from tests.simulation.habits import MIDDLE, SHARED, Habits
from tests.simulation.journal import Journal
from tests.support.scripted_model import ModelRequest

MARK = re.compile(r"\bm\d+\b")
SAID = re.compile(r"^s\d+\b")
RETRY_AFTER: tuple[dict[str, str], ...] = (
    {},
    {"retry-after": "2"},
    {"retry-after": "0"},
    {"retry-after": "100000"},
    {"retry-after": "soon"},
)
FAILED: Json = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}
SENTENCES = ("Done.", "I look at it now.", "", "Grüße 👋\u2028 and a\nnew line", "x" * 700)


@dataclass(frozen=True, slots=True)
class SimRequest(ModelRequest):
    """Request to the model, and the server of the world that sent it."""

    number: int
    """Number among all requests that were begun, in the order in which they were made."""
    server: int
    home: Path

    @property
    def thread(self) -> str:
        return str(self.body["prompt_cache_key"])

    @property
    def is_review(self) -> bool:
        return str(self.body["instructions"]) == instruction_text("review")

    @property
    def is_compaction(self) -> bool:
        return self.texts()[-1:] in ([instruction_text("compact")], [instruction_text("compact_small")])

    def reply_marks(self) -> set[str]:
        """Return the marks of what the model has said and called before."""
        return {mark for item in self.input for mark in marks_of_item(item)}


def marks_of_item(item: Json) -> list[str]:
    """Return the marks of a message of the model or of a call."""
    match item["type"]:
        case "function_call":
            return MARK.findall(item["arguments"])
        case "custom_tool_call":
            return MARK.findall(item["input"])
        case "message" if item["role"] == "assistant":
            return SAID.findall("".join(part["text"] for part in item["content"]))
        case _:
            return []


@dataclass(frozen=True, slots=True)
class Called:
    """Call of the model under one mark."""

    kind: str
    by: SimRequest
    """Request whose reply contained the call."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Reply of the model to one request."""

    request: SimRequest
    marks: frozenset[str]


@dataclass(slots=True)
class SimModel:
    """The model provider of a world."""

    draws: Draws
    habits: Habits
    journal: Journal
    requests: list[SimRequest] = field(default_factory=list)
    faults: bool = True
    """Whether the network may fail. It may not in the last part of a world."""
    disk_is_full: bool = False
    calm: bool = False
    """Whether the model ends every turn with its next reply."""
    called: dict[str, Called] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    """Number of calls, by their mark."""
    """Calls by mark."""
    answered: list[Answered] = field(default_factory=list)
    begun: int = 0
    """Number of requests that were begun, including those that never arrived."""
    first_tries: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Body that was sent last, and the number of the first request with it, by thread. A request that is sent again is
    not made anew.
    """
    terminals: set[str] = field(default_factory=set)
    """Ids of calls whose commands may outlive their turn."""
    servers: int = 0
    _marks: int = 0
    _calls: int = 0

    def note(self, situation: str) -> None:
        self.journal.note(situation)

    def reply(self, request: SimRequest) -> list[Json]:
        """Draw the events of one reply."""
        draws, habits = self.draws, self.habits
        events: list[Json] = [{"type": "response.created", "response": {"id": "resp-1"}}]
        if draws.chance("reasoning", habits.reasoning):
            events += self._reasoning()
        calls = 0
        if not self.calm and draws.chance("tool call", habits.tool_calls):
            calls = draws.pick("calls in a reply", habits.calls_per_reply)
        if not calls or draws.chance("words beside calls", 0.4):
            events += self._message()
        for number in range(calls):
            call = self._call(request, number)
            if call.get("name") == "exec_command":
                self.terminals.add(call["call_id"])
            events.append(_done(call))
        if calls and draws.chance("words behind calls", 0.1):
            events += self._message()
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        marks = frozenset(mark for item in items for mark in marks_of_item(item))
        self.answered.append(Answered(request, marks))
        tokens = 10 if self.calm else draws.pick("tokens", habits.tokens)
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            # The client recognises by this number that the reply was read.
            "output_tokens_details": {"reasoning_tokens": len(self.answered)},
            "total_tokens": tokens + 5,
        }
        events.append({"type": "response.completed", "response": {"id": "resp-1", "usage": usage}})
        return events

    def _message(self) -> list[Json]:
        self._marks += 1
        text = f"s{self._marks} " + self.draws.pick("sentence", SENTENCES)
        id = f"msg-{self._marks}"
        item = {"type": "message", "role": "assistant", "id": id}
        events: list[Json] = []
        pieces = self.draws.pick("pieces of a message", self.habits.pieces)
        if pieces:
            empty = {**item, "content": [{"type": "output_text", "text": ""}]}
            events.append({"type": "response.output_item.added", "item": empty})
            step = max(len(text) // pieces, 1)
            events += [
                {"type": "response.output_text.delta", "delta": text[at : at + step]}
                for at in range(0, len(text), step)
            ]
        return [*events, _done({**item, "content": [{"type": "output_text", "text": text}]})]

    def _reasoning(self) -> list[Json]:
        self._marks += 1
        text = f"r{self._marks} thinking"
        item = {
            "type": "reasoning",
            "id": f"rs-{self._marks}",
            "summary": [{"type": "summary_text", "text": text}],
        }
        return [{"type": "response.reasoning_summary_text.delta", "delta": text}, _done(item)]

    def _call(self, request: SimRequest, number: int) -> Json:
        """Draw a call of a tool that was offered, or of one that was not."""
        self._calls += 1
        names = set(request.tools)
        mark = f"m{self._calls}"
        call_id = f"call-{number + 1 if self.habits.call_ids_repeat else self._calls}"
        kinds = [kind for kind in self.habits.call_kinds if kind not in OFFERED or OFFERED[kind] in names]
        kind = self.draws.pick("kind of call", kinds or ["shell"])
        before = [
            m
            for m, called in self.called.items()
            if (called.kind, called.by.thread) == (kind, request.thread)
        ]
        if kind == "shell" and before and self.draws.chance("a command again", self.habits.repeats):
            mark = self.draws.pick("command of before", before)
        else:
            self.called[mark] = Called(kind, request)
        self.times[mark] += 1
        match kind:
            case "shell":
                return _shell(names, call_id, f"touch {mark}")
            case "read":
                return _shell(names, call_id, f"cat {mark}")
            case "escalated":
                more = {"with_escalated_permissions": True, "justification": mark}
                return _shell(names, call_id, f"touch {mark}", more)
            case "patch":
                changes = self._change_of_a_file(mark)
                text = f"*** Begin Patch\n*** Add File: {mark}.txt\n+{mark}\n{changes}*** End Patch\n"
                if "apply_patch" in names and self.draws.chance("freeform", 0.5):
                    return {
                        "type": "custom_tool_call",
                        "call_id": call_id,
                        "name": "apply_patch",
                        "input": text,
                    }
                return _shell(names, call_id, f"apply_patch <<'EOF'\n{text}EOF\n")
            case "plan":
                steps = [{"step": mark, "status": "in_progress"}]
                return _function(call_id, "update_plan", {"plan": steps})
            case "mcp":
                return _function(call_id, "mcp__notes__echo", {"text": mark})
            case "client":
                return _function(call_id, "look", {"text": mark})
            case "goal":
                status = self.draws.pick("status of a goal", ("complete", "blocked", "paused"))
                return _function(call_id, "update_goal", {"status": status})
            case "unknown":
                return _function(call_id, "no_such_tool", {"text": mark})
            case "broken":
                broken = json.dumps({"text": mark})[:-1]
                return {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": broken}
            case "terminal":
                return _function(call_id, "exec_command", {"cmd": f"touch {mark}", "yield_time_ms": 1000})
            case _:
                return _function(call_id, "write_stdin", {"session_id": 1, "chars": "x\n"})

    def _change_of_a_file(self, mark: str) -> str:
        """Return the part of a patch that adds a line to a file which people and commands write, too; often none."""
        if not (self.habits.goes_back and self.draws.chance("a patch of a shared file", 0.5)):
            return ""
        return f"*** Update File: {SHARED}\n@@\n {MIDDLE}\n+line of a patch {mark}\n"


OFFERED = {
    "plan": "update_plan",
    "terminal": "exec_command",
    "input": "write_stdin",
    "mcp": "mcp__notes__echo",
    "client": "look",
    "goal": "update_goal",
}
"""Name of the tool that a kind of call needs."""


def _shell(names: set[str], call_id: str, script: str, more: Mapping[str, Json] | None = None) -> Json:
    if "shell" in names:
        return _function(call_id, "shell", {"command": ["sh", "-c", script], **(more or {})})
    if "exec_command" in names:
        return _function(call_id, "exec_command", {"cmd": script, **(more or {})})
    return _function(call_id, "shell_command", {"command": script, **(more or {})})


def _function(call_id: str, name: str, arguments: Json) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def _done(item: Json) -> Json:
    return {"type": "response.output_item.done", "item": item}


class SimHttp:
    """The network between a server and its model."""

    def __init__(self, model: SimModel, home: Path) -> None:
        self._model, self._home = model, home
        model.servers += 1
        self._server = model.servers

    async def warm_up(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator["SimResponse"]:
        model = self._model
        draws, habits = model.draws, model.habits
        data = request.body or b"{}"
        body = json.loads(data)
        thread = str(body.get("prompt_cache_key"))
        before, number = model.first_tries.get(thread, (b"", 0))
        if before != data:
            number = model.begun
            model.first_tries[thread] = data, number
        model.begun += 1
        await anyio.sleep(draws.seconds("connect", *habits.network_delays))
        fault = draws.pick("fault of a request", habits.request_faults) if model.faults else "none"
        match fault:
            case "unreachable":
                raise HttpFailure(Fault.UNREACHABLE, "connection refused")
            case "no answer":
                raise HttpFailure(Fault.NO_ANSWER, "closed", reused_connection=draws.chance("reused", 0.5))
            case "late":
                await anyio.sleep(request.header_seconds)
                raise HttpFailure(Fault.HEADERS_LATE, "no headers")
        if request.method == "GET":
            yield SimResponse(self, 200, b'{"models": [], "data": []}', "none", request.idle_seconds)
            return
        asked = SimRequest(request.url, dict(request.headers), body, number, self._server, self._home)
        model.requests.append(asked)
        model.journal.tell(f"request {len(model.requests)} of {asked.thread}, with {len(asked.input)} items")
        if fault.isdigit():
            model.note(f"status {fault}")
            answer = json.dumps({"error": {"message": "sorry", "type": "sorry"}}).encode()
            response = SimResponse(self, int(fault), answer, "none", request.idle_seconds)
            if fault in ("429", "503"):
                response.headers |= draws.pick("retry after", RETRY_AFTER)
            yield response
            return
        broken = draws.pick("fault of a stream", habits.stream_faults) if model.faults else "none"
        events = model.reply(asked)
        calls = [event for event in events if "call_id" in event.get("item", {})]
        match broken:
            case "no end":
                events.pop()
            case "two ends":
                events.append(events[-1])
            case "failed":
                events[-1] = FAILED
            case "a call twice" if calls:
                events.insert(-1, calls[0])
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        if broken == "garbage":
            text = "data: {not json\n\n: a comment\n\n" + text
        yield SimResponse(self, 200, text.encode(), broken, request.idle_seconds)

    async def pieces(self, data: bytes, fault: str, idle: float) -> AsyncGenerator[bytes, None]:
        """Yield the body in drawn pieces with drawn pauses, up to the fault."""
        model = self._model
        draws, habits = model.draws, model.habits
        end = draws.below("cut at", len(data)) if fault in ("cut", "idle") and data else len(data)
        at = 0
        while at < end:
            size = draws.pick("size of a chunk", habits.chunk_sizes)
            await anyio.sleep(draws.seconds("chunk", *habits.network_delays))
            yield data[at : min(at + size, end)]
            at += size
        if fault == "cut":
            model.note("stream cut")
            raise HttpFailure(Fault.CUT, "the connection broke")
        if fault == "idle":
            model.note("stream idle")
            await anyio.sleep(idle)
            raise HttpFailure(Fault.IDLE, "nothing came")


class SimResponse:
    """Response of the simulated provider."""

    def __init__(self, http: SimHttp, status: int, body: bytes, fault: str, idle: float) -> None:
        self.status = status
        self.headers = {"content-type": "text/event-stream" if status == 200 else "application/json"}
        self._http, self._body, self._fault, self._idle = http, body, fault, idle

    def chunks(self) -> AsyncGenerator[bytes, None]:
        return self._http.pieces(self._body, self._fault, self._idle)
