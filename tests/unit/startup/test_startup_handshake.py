"""What is answered before the full server is loaded, and what is left for it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.apis.capabilities import parse_capabilities
from app_server.conversations.begun import BegunRequest
from app_server.core.begun import Begun
from app_server.core.lazy import Lazy
from app_server.startup.early_answers import EarlyAnswer, EarlyResponder
from app_server.startup.early_handshake import (
    MAX_EARLY,
    Handover,
    early_handshake,
    initialize_responder,
    plain_initialize,
)
from protocol.base import Json
from protocol.ids import ConversationId
from protocol.jsonrpc import Request, dump_response
from protocol.v1.initialize import InitializeParams

HOME = Path("/home/user/.codex")
ENVIRONMENT = {"TERM": "dumb"}
GREET = initialize_responder(ENVIRONMENT, HOME)
CLIENT: Json = {"name": "editor", "version": "7", "title": None}
OF_NEWER_CLIENTS: Json = {
    "experimentalApi": True,
    "optOutNotificationMethods": ["thread/status/changed"],
    "extensions": {"x": 1},
}
OF_AN_EMACS_CLIENT: Json = {"experimentalApi": True, "elicitation": {"form": None, "url": None}}


@dataclass
class Pipes:
    """A client's end, and how the server is loaded meanwhile."""

    stdin: int
    to_stdin: int
    stdout: int
    from_stdout: int

    def send(self, *messages: Json) -> None:
        os.write(self.to_stdin, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def close(self) -> None:
        os.close(self.to_stdin)
        self.to_stdin = -1

    def handshake(self, early: EarlyResponder | None = None) -> Handover | None:
        server: Lazy[object] = Lazy(object)
        return early_handshake(
            self.stdin, self.stdout, GREET, server, None if early is None else Lazy(lambda: lambda _: early)
        )

    def answers(self) -> list[Json]:
        os.close(self.stdout)
        self.stdout = -1
        data = b""
        while more := os.read(self.from_stdout, 1 << 16):
            data += more
        return [json.loads(line) for line in data.splitlines()]


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), os.pipe()
    made = Pipes(stdin, to_stdin, stdout, from_stdout)
    yield made
    for fd in (made.stdin, made.to_stdin, made.stdout, made.from_stdout):
        if fd >= 0:
            os.close(fd)


def answer(request: Request) -> EarlyAnswer:
    return EarlyAnswer(dump_response(request.id, b'"early"'))


def initialize(**params: Json) -> Json:
    return {"id": 1, "method": "initialize", "params": params}


@pytest.mark.parametrize(
    "capabilities", [None, {}, {"elicitation": True}, OF_NEWER_CLIENTS, OF_AN_EMACS_CLIENT]
)
def test_an_initialize_is_answered_and_what_the_client_can_do_is_kept(
    pipes: Pipes, capabilities: Json
) -> None:
    pipes.send(initialize(clientInfo=CLIENT, capabilities=capabilities))
    handover = pipes.handshake()
    assert handover is not None
    assert handover.initialize is not None
    assert handover.initialize.capabilities == capabilities
    assert (handover.initialize.name, handover.initialize.version) == ("editor", "7")
    assert handover.unread == b""
    [answer] = pipes.answers()
    assert answer["result"]["userAgent"].startswith("editor/")


@pytest.mark.parametrize(
    "params",
    [
        {"clientInfo": {"name": "editor"}},
        {"clientInfo": {**CLIENT, "title": 5}},
        {"client_info": CLIENT},
        {"clientInfo": CLIENT, "client_info": CLIENT},
    ],
)
def test_what_has_to_be_looked_at_is_left_for_the_full_server(pipes: Pipes, params: Json) -> None:
    pipes.send(initialize(**params), {"method": "initialized"})
    handover = pipes.handshake()
    assert handover is not None
    assert handover.initialize is None
    assert [json.loads(line) for line in handover.unread.splitlines()] == [
        initialize(**params),
        {"method": "initialized"},
    ]
    assert pipes.answers() == []


@pytest.mark.parametrize(
    ("first", "kind"),
    [({"id": 5, "method": "getUserAgent"}, "not_initialized"), ({**initialize(), "id": 5}, "invalid_params")],
)
def test_a_first_request_that_introduces_nobody_is_refused(pipes: Pipes, first: Json, kind: str) -> None:
    pipes.send(first)
    handover = pipes.handshake()
    assert handover == Handover(None, b"")
    [refusal] = pipes.answers()
    assert (refusal["id"], refusal["error"]["code"], refusal["error"]["data"]["kind"]) == (5, -32600, kind)


def test_requests_that_follow_at_once_may_be_answered_early(pipes: Pipes) -> None:
    asked: list[Request] = []

    def early(request: Request) -> EarlyAnswer | None:
        asked.append(request)
        return answer(request) if request.method == "list" else None

    ready, other, next_ = {"method": "initialized"}, {"id": 4, "method": "other"}, {"id": 5, "method": "list"}
    lists = [{"id": 2, "method": "list"}, {"id": 3, "method": "list"}]
    pipes.send(initialize(clientInfo=CLIENT), ready, *lists, other, next_)
    handover = pipes.handshake(early)
    assert handover is not None
    assert [json.loads(line) for line in handover.unread.splitlines()] == [ready, other, next_]
    assert [request.id for request in asked] == [2, 3, 4]
    assert [answer["id"] for answer in pipes.answers()] == [1, 2, 3]


def test_only_so_many_requests_are_answered_early(pipes: Pipes) -> None:
    lists = [{"id": n, "method": "list"} for n in range(2, MAX_EARLY + 5)]
    pipes.send(initialize(clientInfo=CLIENT), *lists)
    handover = pipes.handshake(answer)
    assert handover is not None
    assert [json.loads(line) for line in handover.unread.splitlines()] == lists[MAX_EARLY:]


def test_a_begun_conversation_is_the_last_early_answer(pipes: Pipes) -> None:
    begun = Begun(ConversationId("c"), datetime(2025, 1, 1, tzinfo=UTC))

    def begin(request: Request) -> EarlyAnswer:
        return EarlyAnswer(answer(request).response, BegunRequest(request, begun))

    ready, after = {"method": "initialized"}, {"id": 3, "method": "new"}
    pipes.send(initialize(clientInfo=CLIENT), ready, {"id": 2, "method": "new"}, after)
    handover = pipes.handshake(begin)
    assert handover is not None
    assert [(each.request.id, each.conversation) for each in handover.begun] == [(2, begun)]
    assert [json.loads(line) for line in handover.unread.splitlines()] == [ready, after]
    assert [each["id"] for each in pipes.answers()] == [1, 2]


def test_a_begun_conversation_is_gone_on_with_though_the_client_has_left(pipes: Pipes) -> None:
    begun = Begun(ConversationId("c"), datetime(2025, 1, 1, tzinfo=UTC))
    pipes.send(initialize(clientInfo=CLIENT), {"id": 2, "method": "new"})
    pipes.close()
    handover = pipes.handshake(
        lambda request: EarlyAnswer(answer(request).response, BegunRequest(request, begun))
    )
    assert handover is not None
    assert len(handover.begun) == 1


def test_requests_that_come_one_upon_another_have_the_processor_to_themselves(pipes: Pipes) -> None:
    loaded: list[bool] = []
    answered_before: list[bool] = []

    def early(request: Request) -> EarlyAnswer | None:
        answered_before.append(not loaded)
        return answer(request)

    ids = list(range(2, 12))
    pipes.send(initialize(clientInfo=CLIENT), *({"id": n, "method": "list"} for n in ids))
    handover = early_handshake(
        pipes.stdin, pipes.stdout, GREET, Lazy(lambda: loaded.append(True)), Lazy(lambda: lambda _: early)
    )
    assert handover == Handover(handover.initialize if handover else None, b"")
    assert answered_before == [True] * len(ids)
    assert loaded


def test_a_long_answer_does_not_wait_for_a_client_that_sends_more_first(pipes: Pipes) -> None:
    """A client may fill its end before it reads."""
    long = "x" * (1 << 21)
    request, after = {"id": 2, "method": "resume"}, {"id": 3, "method": "x", "params": "y" * (1 << 17)}

    def resume(request: Request) -> EarlyAnswer:
        return EarlyAnswer(dump_response(request.id, json.dumps(long).encode()), BegunRequest(request))

    handovers: list[Handover | None] = []
    server = threading.Thread(target=lambda: handovers.append(pipes.handshake(resume)))
    pipes.send(initialize(clientInfo=CLIENT), request)
    server.start()
    pipes.send(after)
    data = b""
    while data.count(b"\n") < 2:
        data += os.read(pipes.from_stdout, 1 << 16)
    server.join()
    assert json.loads(data.splitlines()[1])["result"] == long
    [handover] = handovers
    assert handover is not None
    assert len(handover.begun) == 1


def test_the_server_is_loaded_though_a_client_does_not_read_a_long_answer(pipes: Pipes) -> None:
    loaded = threading.Event()

    def resume(request: Request) -> EarlyAnswer:
        long = dump_response(request.id, json.dumps("x" * (1 << 20)).encode())
        return EarlyAnswer(long, BegunRequest(request))

    handovers: list[Handover | None] = []

    def serve() -> None:
        server = Lazy(loaded.set)
        handovers.append(
            early_handshake(pipes.stdin, pipes.stdout, GREET, server, Lazy(lambda: lambda _: resume))
        )

    pipes.send(initialize(clientInfo=CLIENT), {"id": 2, "method": "resume"})
    thread = threading.Thread(target=serve)
    thread.start()
    assert loaded.wait(10)
    data = b""
    while data.count(b"\n") < 2:
        data += os.read(pipes.from_stdout, 1 << 16)
    thread.join()
    assert handovers[0] is not None


def test_lines_before_an_answer_are_sent_before_it(pipes: Pipes) -> None:
    told = {"method": "configured", "params": {}}

    def resume(request: Request) -> EarlyAnswer:
        return EarlyAnswer(
            answer(request).response, BegunRequest(request), before=(json.dumps(told).encode(),)
        )

    pipes.send(initialize(clientInfo=CLIENT), {"id": 2, "method": "resume"})
    assert pipes.handshake(resume) is not None
    assert pipes.answers()[1:] == [told, {"id": 2, "result": "early"}]


def test_what_has_no_early_answer_is_left_in_its_order(pipes: Pipes) -> None:
    ready, list_ = {"method": "initialized"}, {"id": 2, "method": "list"}
    pipes.send(initialize(clientInfo=CLIENT), ready, list_)
    handover = pipes.handshake(lambda request: None)
    assert handover is not None
    assert [json.loads(line) for line in handover.unread.splitlines()] == [ready, list_]


@pytest.mark.parametrize("messages", [[], [initialize(clientInfo=CLIENT)]])
def test_a_client_that_leaves_at_once_is_not_served(pipes: Pipes, messages: list[Json]) -> None:
    held = threading.Event()
    pipes.send(*messages)
    pipes.close()
    assert early_handshake(pipes.stdin, pipes.stdout, GREET, Lazy(held.wait)) is None
    held.set()
    assert len(pipes.answers()) == len(messages)


def test_requests_of_a_client_that_has_left_are_still_served(pipes: Pipes) -> None:
    pipes.send(initialize(clientInfo=CLIENT), {"id": 2, "method": "getUserAgent"})
    pipes.close()
    handover = pipes.handshake()
    assert handover is not None
    assert json.loads(handover.unread)["id"] == 2


def test_a_client_that_takes_its_time_finds_the_server_loading(pipes: Pipes) -> None:
    loading = threading.Event()

    def load() -> object:
        loading.set()
        return object()

    def write_then() -> None:
        assert loading.wait(10)
        pipes.send(initialize(clientInfo=CLIENT))

    client = threading.Thread(target=write_then)
    client.start()
    handover = early_handshake(pipes.stdin, pipes.stdout, GREET, Lazy(load))
    client.join()
    assert handover is not None
    assert handover.initialize is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
clients = st.fixed_dictionaries(
    {}, optional={"name": json_values, "version": json_values, "title": json_values}
)
capabilities = json_values | st.dictionaries(
    st.sampled_from(["elicitation", "experimentalApi", "other"]), json_values
)


@given(st.fixed_dictionaries({"clientInfo": clients | json_values}, optional={"capabilities": capabilities}))
def test_only_what_the_full_server_accepts_is_answered_early(params: Json) -> None:
    early = plain_initialize(Request(1, "initialize", params))
    if early is None:
        return
    full = InitializeParams.model_validate(params)
    assert (early.name, early.version) == (full.client_info.name, full.client_info.version)
    assert (early.capabilities is None) == (full.capabilities is None)
    assert (
        full.capabilities is None
        or parse_capabilities(early.capabilities).elicitation == full.capabilities.elicitation
    )
