"""Requests that are answered before the full server is loaded, and the rest that is left for it."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.support.client_info import ClientProfile
from app_server.engine.support.lazy import Lazy
from app_server.server.bootstrap.handshake import (
    EarlyHandshake,
    StdinBuffer,
    early_handshake,
    initialize_responder,
    plain_initialize,
    spoken_method,
)
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import Request
from app_server_protocol.v1.setup import InitializeParams

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
    """A client's end of the pipes, and the server's loading meanwhile."""

    stdin: int
    to_stdin: int
    stdout: int
    from_stdout: int

    def send(self, *messages: Json) -> None:
        os.write(self.to_stdin, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def close(self) -> None:
        os.close(self.to_stdin)
        self.to_stdin = -1

    def handshake(self, load: Callable[[], object] = object) -> EarlyHandshake | None:
        return early_handshake(StdinBuffer(self.stdin), self.stdout, GREET, Lazy(load))

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
    assert handover == EarlyHandshake(None, b"")
    [refusal] = pipes.answers()
    assert (refusal["id"], refusal["error"]["code"], refusal["error"]["data"]["kind"]) == (5, -32600, kind)


def test_requests_that_follow_are_left_in_their_order(pipes: Pipes) -> None:
    ready, list_ = {"method": "initialized"}, {"id": 2, "method": "list"}
    pipes.send(initialize(clientInfo=CLIENT), ready, list_)
    handover = pipes.handshake()
    assert handover is not None
    assert [json.loads(line) for line in handover.unread.splitlines()] == [ready, list_]


@pytest.mark.parametrize(
    ("unread", "method"),
    [
        (b"", None),
        (b'{"method":"initialized"}\nno JSON\n{"id":2,"method":"thread/start"}\n', "thread/start"),
        (b'{"id":2,"method":"newConversation"}\n{"id":3,"method":"thread/start"}\n', "newConversation"),
        (b'{"id":2,"method":"newConversation"}', None),
    ],
)
def test_the_first_request_tells_what_the_client_speaks(unread: bytes, method: str | None) -> None:
    assert spoken_method(unread) == method


@pytest.mark.parametrize("messages", [[], [initialize(clientInfo=CLIENT)]])
def test_a_client_that_leaves_at_once_is_not_served(pipes: Pipes, messages: list[Json]) -> None:
    held = threading.Event()
    pipes.send(*messages)
    pipes.close()
    assert pipes.handshake(held.wait) is None
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
    handover = pipes.handshake(load)
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
    client = ClientProfile()
    client.announce(early.capabilities)
    assert full.capabilities is None or client.elicitation == full.capabilities.elicitation
