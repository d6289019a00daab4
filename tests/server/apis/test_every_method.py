"""Every method of the table through the real process: once with its example, and once with each field broken.

The broken values come from the published schemas, so the server is checked against what it promises.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from jsonschema import Draft7Validator

from app_server_protocol.base import Model
from app_server_protocol.encoding import Json
from app_server_protocol.export.guide import EXAMPLES
from app_server_protocol.export.schemas import params_name, result_name
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.ops import OPERATIONS, Op
from tests.support.pipes import Piped
from tests.support.published import definitions, fits
from tests.support.schema_examples import examples

pytestmark = pytest.mark.process

REQUESTS = EXAMPLES["requests"]
CONVERSATION, ROLLOUT = REQUESTS["archiveConversation"][0].values()
SUBSCRIPTION = REQUESTS["removeConversationListener"][0]["subscriptionId"]
LOGIN = REQUESTS["cancelLoginChatGpt"][0]["loginId"]

WRONG: tuple[Json, ...] = (5, "nonsense", [1], {"nonsense": 1}, True, -1, 1.5, None)
"""Values of each kind. Those that a field allows are left out."""

CONFIG = """\
model = "scripted"
model_provider = "nobody"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.nobody]
name = "Nobody"
base_url = "http://127.0.0.1:9/v1"
request_max_retries = 0
stream_max_retries = 0
"""

DEFINITIONS = definitions(v1_table.TABLE.api)
OPS: dict[str, Json] = {op["type"]: op for op in examples("Op", DEFINITIONS)}


@dataclass(frozen=True, slots=True)
class Place:
    """Conversation of a running server, whose ids replace those of an example."""

    server: Piped
    conversation: str
    rollout: str
    subscription: str

    def into(self, example: Json) -> Json:
        text = json.dumps(example)
        for ours, theirs in (
            (ROLLOUT, self.rollout),
            (CONVERSATION, self.conversation),
            (SUBSCRIPTION, self.subscription),
            ("/home/me/project", str(self.server.workspace)),
        ):
            text = text.replace(ours, theirs)
        return json.loads(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Piped]:
    with Piped(tmp_path_factory.mktemp("methods"), config=CONFIG) as server:
        yield server.initialize()


@pytest.fixture
def place(server: Piped) -> Place:
    opened = server.call("newConversation", {"cwd": str(server.workspace)})
    conversation = opened["conversationId"]
    listening = server.call("addConversationListener", {"conversationId": conversation})
    return Place(server, conversation, opened["rolloutPath"], listening["subscriptionId"])


REFUSED = {
    "initialize": "Already initialized",
    "cancelLoginChatGpt": "login id not found",
    "gitDiffToRemote": "git diff to remote",
}
"""Error messages of valid requests that this place cannot serve: no such login, no repository, already initialized."""


@pytest.mark.parametrize("method", v1_table.TABLE.client_requests)
def test_each_method_answers_its_example(method: str, place: Place) -> None:
    params = place.into(REQUESTS[method][0])
    if method == "getConversationSummary":
        place.server.call("sendUserMessage", {"conversationId": place.conversation, "items": []})
    answer = place.server.ask(method, params)
    if method in REFUSED:
        assert REFUSED[method] in answer["error"]["message"]
        return
    if method == "loginChatGpt":
        if "error" in answer:
            pytest.skip(f"the port of the login is taken: {answer['error']['message']}")
        place.server.call("cancelLoginChatGpt", {"loginId": answer["result"]["loginId"]})
    assert "result" in answer, answer
    assert fits(result_name(v1_table.TABLE.client_requests[method]), answer["result"]) == []


@dataclass(frozen=True, slots=True)
class Broken:
    """Way to break an object: this field gets this value or is left out."""

    field: str
    value: Json = None
    missing: bool = False

    def spoil(self, params: Json) -> Json:
        rest = {name: value for name, value in params.items() if name != self.field}
        return rest if self.missing else {**rest, self.field: self.value}

    def __str__(self) -> str:
        return f"{self.field} {'missing' if self.missing else json.dumps(self.value)}"


def ways_to_break(model: type[Model]) -> Iterator[Broken]:
    """Yield the ways to break an object by the published schema: required fields that are missing, and values that a
    field does not allow.
    """
    schema = DEFINITIONS.get(model.__name__, {})  # methods without parameters have no schema
    parts = schema.get("anyOf") or [schema]
    for part in parts:
        for name, field in part.get("properties", {}).items():
            if name in part.get("required", ()) and len(parts) == 1:
                yield Broken(name, missing=True)
            validator = Draft7Validator({"definitions": DEFINITIONS, **field})
            yield from (Broken(name, value) for value in WRONG if not validator.is_valid(value))


CASES = [
    pytest.param(method, broken, id=f"{method}-{broken}")
    for method, row in v1_table.TABLE.client_requests.items()
    for broken in ways_to_break(row.params)
    if method != "initialize"
]

LENIENT = {
    ("newConversation", "config"),
    ("resumeConversation", "history"),
}
"""Fields that the server reads more leniently than their schema says."""


def test_there_is_much_to_break() -> None:
    assert len(CASES) > 150
    assert {case.values[0] for case in CASES} >= {"newConversation", "sendUserTurn", "submit", "model/list"}


@pytest.mark.parametrize("method", sorted({str(case.values[0]) for case in CASES}))
def test_each_broken_field_is_named(method: str, place: Place) -> None:
    """No part of the request is carried out: the answer is an error."""
    good = place.into(REQUESTS[method][0])
    wrong = []
    for broken in ways_to_break(v1_table.TABLE.client_requests[method].params):
        if (method, broken.field) in LENIENT:
            continue
        params = broken.spoil(good)
        if not fits(params_name(v1_table.TABLE.client_requests[method]), params):
            continue  # such as one of two ways to name a conversation
        error = place.server.ask(method, params).get("error")
        wrong += [f"{broken}: {problem}" for problem in complaints(error, broken.field)]
    assert not wrong, "\n".join(wrong)


def complaints(error: Json, field: str) -> list[str]:
    if error is None:
        return ["was accepted"]
    problems = []
    if error["code"] not in (-32600, -32602):
        problems.append(f"has the code {error['code']}")
    if error.get("data", {}).get("kind") != "invalid_params":
        problems.append(f"has the data {error.get('data')}")
    elif field not in error["data"].get("field", field):
        problems.append(f"is said to be in {error['data']['field']}")
    if field not in error["message"]:
        problems.append(f"is not named in {error['message']!r}")
    if "expected" not in error["message"] and "missing field" not in error["message"]:
        problems.append(f"is not explained in {error['message']!r}")
    return problems


@pytest.mark.parametrize("params", [5, "text", [1], True, [[]]], ids=str)
@pytest.mark.parametrize(
    "method", [m for m, row in v1_table.TABLE.client_requests.items() if row.params.model_fields]
)
def test_parameters_are_an_object(method: str, params: Json, server: Piped) -> None:
    error = server.ask(method, params)["error"]
    assert error["code"] in (-32600, -32602)
    assert "expected an object" in error["message"]


# --- operations
def kind_of(op: type[Op]) -> str:
    return str(op.model_fields["type"].default)


def test_every_operation_is_here() -> None:
    assert set(OPS) == {kind_of(op) for op in OPERATIONS}


@pytest.mark.parametrize("kind", OPS)
def test_each_operation_is_taken_and_the_conversation_lives_on_or_ends(kind: str, place: Place) -> None:
    op = OPS[kind]
    answer = place.server.call("submit", {"conversationId": place.conversation, "op": op})
    assert answer == {"submissionId": "0"}
    if kind == "shutdown":
        while place.server.hear().get("method") != "codex/event/shutdown_complete":
            pass
    after = place.server.ask("interruptConversation", {"conversationId": place.conversation})
    assert ("error" in after) is (kind == "shutdown"), after


@pytest.mark.parametrize("op", OPERATIONS, ids=kind_of)
def test_each_broken_field_of_an_operation_is_named(op: type[Op], place: Place) -> None:
    kind = kind_of(op)
    good = OPS[kind]
    wrong = []
    for broken in ways_to_break(op):
        params = {"conversationId": place.conversation, "op": broken.spoil(good)}
        error = place.server.ask("submit", params).get("error")
        wrong += [f"{broken}: {problem}" for problem in complaints(error, broken.field)]
    assert not wrong, "\n".join(wrong)
    lives = place.server.ask("interruptConversation", {"conversationId": place.conversation})
    assert "result" in lives, "nothing of it was carried out"


@pytest.mark.parametrize(
    "op", [None, 5, "undo", [], {}, {"type": 5}, {"type": "no_such_op"}, {"type": None}], ids=str
)
def test_what_is_no_operation_is_refused(op: Json, place: Place) -> None:
    error = place.server.ask("submit", {"conversationId": place.conversation, "op": op})["error"]
    assert error["code"] == -32600
    assert error["data"]["field"].startswith("op")
