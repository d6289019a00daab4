"""Parameters of a request that no field takes, and the number of warnings about them."""

import pytest

from app_server.server.apis.ignored_parameters import MOST_TOLD, ParameterCheck, ignored_parameters
from app_server_protocol.encoding import Json
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v1.conversation import NewConversationParams, SendUserTurnParams
from app_server_protocol.v2.thread_open import ThreadStartParams
from app_server_protocol.v2.turn import TurnStartParams


def told(raw: Json, *, strict: bool = False, check: ParameterCheck | None = None) -> str | None:
    check = check or ParameterCheck(lambda: strict)
    return check.check("thread/start", raw, ThreadStartParams.model_validate(raw))


@pytest.mark.parametrize(
    ("raw", "notice"),
    [
        ({"approvalPolicy": "never", "config": {"any.thing": 1}, "cwd": None}, None),
        ({"of_a_later_version": None, "another": [], "third": {}}, None),
        (
            {"approval_policy": "never"},
            "`approval_policy` was read as `approvalPolicy`, which is how it is spelled",
        ),
        (
            {"approvalpolicy": "never"},
            "`approvalpolicy` is unknown and was ignored; did you mean `approvalPolicy`?",
        ),
        ({"personality": "friendly"}, "`personality` has no effect on this server"),
        ({"personality": None}, None),
        ({"zzzz": False}, "`zzzz` is unknown and was ignored"),
        (
            {
                "dynamicTools": [
                    {"name": "a", "description": "b", "inputSchema": {"any": 1}, "deferLoadin": True}
                ]
            },
            "`dynamicTools[].deferLoadin` is unknown and was ignored; did you mean `deferLoading`?",
        ),
    ],
)
def test_what_no_field_takes_is_told(raw: Json, notice: str | None) -> None:
    assert told(raw) == (None if notice is None else f"thread/start: {notice}")


def test_a_parameter_is_told_once_and_a_client_not_without_end() -> None:
    check = ParameterCheck(lambda: False)
    assert told({"sandbx": 1}, check=check) is not None
    assert told({"sandbx": 2}, check=check) is None
    assert "`modl`" in str(told({"sandbx": 2, "modl": 1}, check=check))
    for number in range(2 * MOST_TOLD):
        told({f"other{number}": 1}, check=check)
    assert told({"one_more": 1}, check=check) is None


def test_a_strict_client_is_refused() -> None:
    with pytest.raises(RpcError, match="`sandbx` is unknown; did you mean `sandbox`"):
        told({"sandbx": "read-only"}, strict=True)


def test_nested_policies_are_read_in_each_of_their_spellings() -> None:
    sandbox = {"type": "workspaceWrite", "writable_roots": ["/a"], "networkAccess": True}
    turn = {"threadId": "t", "input": [{"type": "text", "text": "hi"}], "sandboxPolicy": sandbox}
    assert ignored_parameters(turn, TurnStartParams.model_validate(turn)) == ()
    sandbox["netwrkAccess"] = False
    (found,) = ignored_parameters(turn, TurnStartParams.model_validate(turn))
    assert found.place == "sandboxPolicy.netwrkAccess"
    old: Json = {
        "conversationId": "01a22309-bae9-7deb-8f33-b595214dc2f4",
        "items": [{"type": "text", "data": {"text": "hi"}}],
        "cwd": "/",
        "approvalPolicy": "never",
        "sandboxPolicy": {"mode": "workspace-write", "writable_roots": [], "network_access": True},
        "model": "m",
        "summary": "auto",
        "effort": None,
    }
    assert ignored_parameters(old, SendUserTurnParams.model_validate(old)) == ()


def test_parameters_of_the_conversation_api_are_checked_alike() -> None:
    raw = {"approval_policy": "never"}
    (found,) = ignored_parameters(raw, NewConversationParams.model_validate(raw))
    assert found.place == "approval_policy"
