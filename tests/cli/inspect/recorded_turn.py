"""A turn of the thread API with an approval, as a session."""

import json
from collections.abc import Iterable, Sequence

from app_server.cli.inspect.analysis import Analyzer, SessionEntry
from app_server.cli.inspect.session_records import Record, SessionHead, Source, record_of, session_lines
from app_server_protocol.encoding import Json

THREAD, TURN = "thread-1", "turn-1"
CLIENT, SERVER = Source.CLIENT, Source.SERVER
HEAD = SessionHead(("server", "--key", "sk-abcdefghijklmnopqrstuvwx"), "2026-01-01T00:00:00+00:00")


def told(method: str, **params: Json) -> tuple[Source, Json]:
    return SERVER, {"method": method, "params": {"threadId": THREAD} | params}


def asked(id: int, method: str, **params: Json) -> tuple[Source, Json]:
    return CLIENT, {"id": id, "method": method, "params": params}


def item(method: str, kind: str, id: str, **fields: Json) -> tuple[Source, Json]:
    return told(f"item/{method}", turnId=TURN, item={"type": kind, "id": id, **fields})


def status(*flags: str) -> tuple[Source, Json]:
    return told("thread/status/changed", status={"type": "active", "activeFlags": list(flags)})


TURN_WITH_APPROVAL: Sequence[tuple[Source, Json]] = (
    asked(1, "initialize", clientInfo={"name": "tests", "version": "1"}),
    (SERVER, {"id": 1, "result": {"userAgent": "x"}}),
    asked(2, "turn/start", threadId=THREAD, input=[]),
    (SERVER, {"id": 2, "result": {"turn": {"id": TURN}}}),
    status(),
    told("turn/started", turn={"id": TURN}),
    item("started", "commandExecution", "command"),
    status("waitingOnApproval"),
    (
        SERVER,
        {
            "id": 0,
            "method": "item/commandExecution/requestApproval",
            "params": {"threadId": THREAD, "turnId": TURN, "itemId": "command"},
        },
    ),
    (CLIENT, {"id": 0, "result": {"decision": "accept"}}),
    told("serverRequest/resolved", requestId=0),
    item("completed", "commandExecution", "command"),
    item("started", "agentMessage", "message"),
    *(told("item/agentMessage/delta", turnId=TURN, itemId="message", delta=word) for word in ("a", "b", "c")),
    item("completed", "agentMessage", "message", text="abc"),
    told("turn/completed", turn={"id": TURN, "status": "completed", "error": None}),
    told("thread/status/changed", status={"type": "idle"}),
)


def records(messages: Iterable[tuple[Source, Json]]) -> list[Record]:
    """Return records of the messages, one every ten milliseconds."""
    return [
        record_of(source, 10.0 * n, json.dumps(message).encode())[0]
        for n, (source, message) in enumerate(messages)
    ]


def analysed(messages: Iterable[tuple[Source, Json]]) -> list[SessionEntry]:
    analyzer = Analyzer()
    return [analyzer.entry(record, record.value()) for record in records(messages)]


def rules(entries: Iterable[SessionEntry]) -> list[str]:
    """Return the names of the order rules that were broken."""
    names = [rule for entry in entries for rule, _ in entry.violations]
    return [name for name in names if name not in ("schema", "unknown-method")]


def as_file(messages: Iterable[tuple[Source, Json]]) -> str:
    return "".join(session_lines(HEAD, records(messages)))
