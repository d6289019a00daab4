"""Bytes that are no messages, and messages that are no requests: each is answered as it should be, once where it has an
id, and the server goes on.
"""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from protocol.base import Json
from tests.faults.rig import Place, Served, served

pytestmark = [pytest.mark.anyio, pytest.mark.process]

PARSE, INVALID, NO_METHOD, PARAMS = -32700, -32600, -32601, -32602
LIST = '"method":"listConversations","params":{"pageSize":1}'
CONVERSATION = "01a1f982-9ecb-72b0-ab99-000000000000"


def asks(method: str, params: Json) -> bytes:
    return json.dumps({"id": 7, "method": method, "params": params}).encode()


UNREADABLE = {
    "no JSON": b"hello",
    "half a message": b'{"id":7,"meth',
    "invalid UTF-8": b'{"id":7,"method":"\xff\xfe"}',
    "overlong UTF-8": b'{"id":7,"method":"\xc0\xaf"}',
    "UTF-16": '{"id":7}'.encode("utf-16"),
    "NUL": b"\0" * 4096,
    "two on a line": b'{"id":7,%b}{"id":8,%b}' % (LIST.encode(), LIST.encode()),
    "an array": b"[]",
    "a batch": b'[{"id":7,%b}]' % LIST.encode(),
    "a number": b"1",
    "null": b"null",
    "an empty object": b"{}",
    "NaN": b'{"id":7,"method":"x","params":{"a":NaN}}',
    "nested deeply": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "id null": b'{"id":null,%b}' % LIST.encode(),
    "id true": b'{"id":true,%b}' % LIST.encode(),
    "id an object": b'{"id":{},%b}' % LIST.encode(),
    "id a fraction": b'{"id":1.5,%b}' % LIST.encode(),
    "id of 5000 digits": b'{"id":%b,%b}' % (b"9" * 5000, LIST.encode()),
}
"""Told of without an id, since there is none that could be trusted."""

REFUSED = {
    "no method": (b'{"id":7,"params":{}}', {INVALID}),
    "method null": (b'{"id":7,"method":null}', {INVALID}),
    "unknown method": (asks("no/such", {}), {NO_METHOD, INVALID}),
    "a method of the server's": (asks("execCommandApproval", {}), {NO_METHOD, INVALID}),
    "control characters": (asks("a\x1b[2J\n\0", {}), {NO_METHOD, INVALID}),
    "params an array": (asks("listConversations", [1]), {INVALID, PARAMS}),
    "params true": (asks("listConversations", True), {INVALID, PARAMS}),
    "a member of the wrong type": (asks("newConversation", {"cwd": 5}), {INVALID, PARAMS}),
    "an unknown word": (asks("newConversation", {"approvalPolicy": "yolo"}), {INVALID, PARAMS}),
    "an unknown conversation": (
        asks("sendUserMessage", {"conversationId": CONVERSATION, "items": []}),
        {INVALID},
    ),
    "an id that is a path": (
        asks("interruptConversation", {"conversationId": "../../etc/passwd"}),
        {INVALID, PARAMS},
    ),
    "a path that is no rollout": (asks("resumeConversation", {"path": "/etc/passwd"}), {INVALID, -32603}),
    "a device": (asks("resumeConversation", {"path": "/dev/full"}), {INVALID, -32603}),
    "initialize again": (asks("initialize", {"clientInfo": {"name": "a", "version": "1"}}), {INVALID}),
}

SERVED = {
    "a byte order mark": b'\xef\xbb\xbf{"id":7,%b}' % LIST.encode(),
    "a carriage return": b'{"id":7,%b}\r' % LIST.encode(),
    "unknown members": b'{"jsonrpc":"1.0","id":7,"zzz":1,"method":"listConversations","params":{"zzz":1}}',
    "a large page": asks("listConversations", {"pageSize": 2**32 - 1}),
    "escapes": b'{"id":7,"method":"list\\u0043onversations","params":{}}',
    "space": b'  {"id" : 7 , %b}  ' % LIST.encode(),
}

NOTHING = {
    "blank lines": b"\n \n\t\n",
    "an answer that nobody waits for": b'{"id":4242,"result":{}}',
    "an error that nobody waits for": b'{"id":"zz","error":{"code":1,"message":"x"}}',
    "an unknown notification": b'{"method":"no/such","params":{"a":1}}',
    "a notification of a request": b"{%b}" % LIST.encode(),
}


async def answers(server: Served, line: bytes, *, some: bool = True) -> list[Json]:
    """Everything that came back until the answer to a plain request that followed; `some`: there has to be one."""
    client, start = server.client, len(server.client.log)
    await server.wire.write(line + b"\n")
    if some:
        await client.rest_of_turn("", until=lambda m: "id" in m, start=start)
    await client.call("listConversations", {})
    return [e.message for e in client.log[start:] if not e.sent and "id" in e.message][:-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.configure()
    return made


async def test_every_abuse_is_survived_and_answered_as_it_should_be(place: Place) -> None:
    wrong = []
    async with served(place) as server:
        server.client._next_id = 1_000_000  # its own ids stay apart
        for name, line in UNREADABLE.items():
            came = [(a["id"], a["error"]["code"] in (PARSE, INVALID)) for a in await answers(server, line)]
            wrong += [] if came == [(None, True)] else [f"{name}: {came}"]
        for name, (line, codes) in REFUSED.items():
            told = [(a["id"], a.get("error", {}).get("code")) for a in await answers(server, line)]
            wrong += [] if len(told) == 1 and told[0][0] == 7 and told[0][1] in codes else [f"{name}: {told}"]
        for name, line in SERVED.items():
            got = await answers(server, line)
            wrong += [] if len(got) == 1 and got[0]["id"] == 7 and "result" in got[0] else [f"{name}: {got}"]
        for name, line in NOTHING.items():
            got = await answers(server, line, some=False)
            wrong += [f"{name}: {got}"] if got else []
        for id in (0, -7, 2**63 - 1, "7", "", "x" * 1000):
            (one,) = await answers(server, json.dumps({"id": id, "method": "getUserAgent"}).encode())
            wrong += [] if one["id"] == id and type(one["id"]) is type(id) else [f"id {id!r}: {one}"]
    assert not wrong, "\n".join(wrong)


async def test_a_line_may_come_byte_by_byte_and_another_without_end(place: Place) -> None:
    async with served(place) as server:
        before = server.memory()
        for byte in asks("listConversations", {}) + b"\n":
            await server.wire.write(bytes([byte]))
        assert "result" in await server.client.answer_to(7)
        for _ in range(130):
            await server.wire.write(b"x" * (1 << 20))
        assert server.memory() - before < 160 << 20
        await server.wire.write(b"\n")
        told = await server.client.anywhere(lambda m: m.get("id", "") is None)
        assert told["error"]["data"] == {"kind": "line_too_long"}
        assert await server.client.call("getUserAgent")


async def test_ten_thousand_requests_at_once_are_each_answered_once(place: Place) -> None:
    async with served(place) as server:
        lines = b"".join(b'{"id":"n%d","method":"getUserAgent"}\n' % n for n in range(10_000))
        await server.wire.write(lines)
        with anyio.fail_after(40):
            await server.client.answer_to("n9999")
            await server.client.call("getUserAgent")
        got = [m["id"] for m in server.client.received() if str(m.get("id", "")).startswith("n")]
        assert sorted(got) == sorted(f"n{n}" for n in range(10_000))
