"""The client of a scenario: it sends requests, listens, answers the server's requests, and records every message in
order.

Waiting goes forward: `expect` returns the next match after the message that it returned last. Every wait is bounded.
The module also has the two ways to reach a server: in this process through memory, or as a process through pipes.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio.abc import Process

from app_server.server.transport.memory import MemoryTransport
from app_server_protocol.encoding import Json
from app_server_protocol.framing import LineDecoder


class Wire(Protocol):
    def lines(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        """Close the direction to the server."""
        ...


class MemoryWire:
    def __init__(self, end: MemoryTransport) -> None:
        self._end = end

    async def lines(self) -> AsyncIterator[bytes]:
        async for batch in self._end.lines():
            for line in batch:
                assert isinstance(line, bytes), "the server wrote a line over the limit"
                yield line

    async def write(self, data: bytes) -> None:
        await self._end.write(data)

    async def close(self) -> None:
        self._end.close()


class ProcessWire:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def lines(self) -> AsyncIterator[bytes]:
        decoder = LineDecoder()
        async for data in self._stdout:
            for line in decoder.feed(data):
                assert isinstance(line, bytes), "the server wrote a line over the limit"
                yield line
        if rest := decoder.close():
            yield rest

    async def write(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionError("the server reads no more") from None

    async def close(self) -> None:
        await self._stdin.aclose()


PATIENCE = 60.0
"""Maximum time of any wait, in seconds. It passes only if something hangs."""

ENDS = ("task_complete", "turn_aborted")

Matcher = Callable[[Json], bool]


class Decider(Protocol):
    """Function that returns the answer to a request of the server, or None to leave it open."""

    def __call__(self, request: Json) -> Json | None: ...


class Refused(Exception):
    """Error answer of the server."""

    def __init__(self, method: str, error: Json) -> None:
        super().__init__(f"{method}: {error}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Json = error.get("data")


@dataclass(frozen=True, slots=True)
class Logged:
    """One message of the log. `sent` is true for a message that the client sent."""

    sent: bool
    message: Json


@dataclass(slots=True)
class Turn:
    """The messages of one turn, from the answer to its request up to its last event."""

    conversation: str
    messages: list[Json]

    @property
    def events(self) -> list[Json]:
        return [m["params"]["msg"] for m in self.messages if _is_event_of(m, self.conversation)]

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def last_message(self) -> str | None:
        ends = self.of("task_complete")
        return ends[-1]["last_agent_message"] if ends else None


@dataclass(slots=True)
class Client:
    """The client's end of a wire."""

    wire: Wire
    log: list[Logged] = field(default_factory=list)
    garbage: list[bytes] = field(default_factory=list)
    closed: bool = False
    """Whether the server has closed its end."""
    left_early: bool = False
    """Whether the client left while a turn or a request was still open."""
    _asleep: anyio.Event | None = None
    """Event that is set when a client that stopped reading reads again. None if it never stopped."""
    _next_id: int = 0
    _position: int = 0
    _arrived: anyio.Event = field(default_factory=anyio.Event)
    _deciders: dict[str, list[Json | Decider]] = field(default_factory=dict)

    # --- reading
    async def read(self) -> None:
        """Read messages until the server closes its end."""
        async for line in self.wire.lines():
            if self._asleep is not None:
                await self._asleep.wait()
            try:
                message = json.loads(line)
            except ValueError:
                self.garbage.append(line)
                continue
            self.log.append(Logged(False, message))
            if "method" in message and "id" in message:
                await self._decide(message)
            self._wake()
        self.closed = True
        self._wake()

    def stop_reading(self) -> None:
        """Read nothing more until `read_on`."""
        self._asleep = anyio.Event()

    def read_on(self) -> None:
        if self._asleep is not None:
            self._asleep.set()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def _decide(self, request: Json) -> None:
        deciders = self._deciders.get(request["method"])
        if not deciders:
            return
        decider = deciders.pop(0) if len(deciders) > 1 else deciders[0]
        result = decider(request) if callable(decider) else decider
        if result is not None:
            await self.answer(request, result)

    async def leave(self) -> None:
        """Close the client's end, whatever is running, and wait until the server has left too."""
        self.left_early = True
        await self.wire.close()
        with anyio.fail_after(PATIENCE):
            while not self.closed:
                await self._arrived.wait()

    # --- writing
    async def write(self, message: Json) -> None:
        self.log.append(Logged(True, message))
        await self.wire.write(json.dumps(message).encode() + b"\n")

    async def send(self, method: str, params: Json = None, *, id: int | str | None = None) -> int | str:
        """Send a request without waiting for its answer; return its id."""
        if id is None:
            id = self._next_id = self._next_id + 1
        await self.write({"id": id, "method": method} | ({} if params is None else {"params": params}))
        return id

    async def ask(self, method: str, params: Json = None, *, id: int | str | None = None) -> Json:
        """Send a request and return its whole answer, result or error."""
        return await self.answer_to(await self.send(method, params, id=id))

    async def call(self, method: str, params: Json = None) -> Json:
        """Send a request and return its result. Raises Refused."""
        answer = await self.ask(method, params)
        if "error" in answer:
            raise Refused(method, answer["error"])
        return answer["result"]

    async def tell(self, method: str, params: Json = None) -> None:
        await self.write({"method": method} | ({} if params is None else {"params": params}))

    async def answer(self, request: Json, result: Json) -> None:
        await self.write({"id": request["id"], "result": result})

    def decide(self, method: str, *answers: Json | Decider) -> None:
        """Set the answers to a request of the server, in order. The last answer holds from then on. A string stands for
        the decision.
        """
        self._deciders[method] = [{"decision": a} if isinstance(a, str) else a for a in answers]

    # --- waiting
    async def answer_to(self, id: int | str) -> Json:
        def is_answer(message: Json) -> bool:
            return "method" not in message and message.get("id") == id and type(message["id"]) is type(id)

        return await self.anywhere(is_answer, f"the answer to {id!r}")

    async def expect(self, what: str | Matcher, conversation: str | None = None) -> Json:
        """Wait for the next message that matches. A string is a method or the type of an event."""
        position, message = await self._find(_matcher(what, conversation), self._position, str(what))
        self._position = position + 1
        return message

    async def anywhere(self, what: str | Matcher, why: str = "") -> Json:
        """Wait for the first match among all messages, old ones included."""
        return (await self._find(_matcher(what), 0, why or str(what)))[1]

    async def _find(self, matches: Matcher, start: int, why: str) -> tuple[int, Json]:
        try:
            with anyio.fail_after(PATIENCE):
                while True:
                    for n in range(start, len(self.log)):
                        entry = self.log[n]
                        if not entry.sent and matches(entry.message):
                            return n, entry.message
                    start = len(self.log)
                    assert not self.closed, f"the server left before {why}"
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"never came: {why}\n" + "\n".join(self.tail())) from None

    def tail(self) -> list[str]:
        return [("> " if e.sent else "< ") + json.dumps(e.message)[:300] for e in self.log[-40:]]

    def received(self) -> list[Json]:
        return [entry.message for entry in self.log if not entry.sent]

    def events(self, kind: str, conversation: str | None = None) -> list[Json]:
        """Return the events of that kind received so far."""
        matches = _matcher(kind, conversation)
        return [m["params"]["msg"] for m in self.received() if "id" not in m and matches(m)]

    # --- conversations
    async def initialize(self, **more: Json) -> Json:
        return await self.call("initialize", {"clientInfo": {"name": "tests", "version": "1.0"}} | more)

    async def open(self, *, raw: bool = False, **params: Json) -> str:
        """Open a new conversation and subscribe to its events; return its id."""
        opened = await self.call("newConversation", params)
        await self.listen(opened["conversationId"], raw=raw)
        return str(opened["conversationId"])

    async def resume(self, **how: Json) -> Json:
        """Resume a conversation and subscribe to its events; return the answer."""
        resumed = await self.call("resumeConversation", how)
        await self.listen(resumed["conversationId"])
        return resumed

    async def listen(self, conversation: str, *, raw: bool = False) -> str:
        params = {"conversationId": conversation, "experimentalRawEvents": raw}
        return str((await self.call("addConversationListener", params))["subscriptionId"])

    async def say(self, conversation: str, text: str = "hi", items: Sequence[Json] = ()) -> None:
        given = list(items) or [text_item(text)]
        await self.call("sendUserMessage", {"conversationId": conversation, "items": given})

    async def turn(
        self,
        conversation: str,
        text: str = "hi",
        *,
        items: Sequence[Json] = (),
        until: str = "task_complete",
    ) -> Turn:
        """Send a message of the user and wait for the end of the turn."""
        start = len(self.log)
        await self.say(conversation, text, items)
        return await self.rest_of_turn(conversation, until=until, start=start)

    async def submit(self, conversation: str, op: Json) -> str:
        answer = await self.call("submit", {"conversationId": conversation, "op": op})
        return str(answer["submissionId"])

    async def operate(self, conversation: str, op: Json, *, until: str = "task_complete") -> Turn:
        """Submit an operation and wait for the end of its turn, or for another event."""
        start = len(self.log)
        await self.submit(conversation, op)
        return await self.rest_of_turn(conversation, until=until, start=start)

    async def rest_of_turn(
        self, conversation: str, *, until: str | Matcher = "task_complete", start: int | None = None
    ) -> Turn:
        start = self._position if start is None else start
        end, _ = await self._find(_matcher(until, conversation), start, str(until))
        self._position = max(self._position, end + 1)
        return Turn(conversation, [e.message for e in self.log[start : end + 1] if not e.sent])

    async def idle(self) -> None:
        """Wait until every turn that has begun has ended."""
        with anyio.fail_after(PATIENCE):
            while len(self.events("task_started")) > sum(len(self.events(end)) for end in ENDS):
                await self._arrived.wait()

    async def interrupt(self, conversation: str) -> Json:
        return await self.call("interruptConversation", {"conversationId": conversation})


def text_item(text: str) -> Json:
    return {"type": "text", "data": {"text": text}}


def _is_event_of(message: Json, conversation: str | None) -> bool:
    return (
        "id" not in message
        and message.get("method", "").startswith("codex/event/")
        and (conversation is None or message["params"].get("conversationId") == conversation)
    )


def _matcher(what: str | Matcher, conversation: str | None = None) -> Matcher:
    if callable(what):
        return what
    names = {what, f"codex/event/{what}"}

    def matches(message: Json) -> bool:
        if message.get("method") not in names:
            return False
        return conversation is None or message["params"].get("conversationId") == conversation

    return matches
