"""Operations of the conversation API as commands of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from app_server.server.apis.v1.handlers.conversation_operations import overriding
from app_server.server.apis.v1.handlers.conversations import settings
from app_server_protocol.engine.thread_settings import UNCHANGED, UNSET
from app_server_protocol.v1.ops import OverrideTurnContextOp, UserTurnOp

TURN = {
    "items": [],
    "cwd": "/x",
    "approval_policy": "never",
    "sandbox_policy": {"mode": "read-only"},
    "model": "n",
}


@pytest.mark.parametrize(
    ("given", "effort"), [({"model": "n"}, UNSET), ({"effort": None}, None), ({"effort": "low"}, "low")]
)
def test_an_effort_of_null_is_the_models_default_and_none_at_all_changes_nothing(
    given: dict[str, Any], effort: object
) -> None:
    assert overriding(OverrideTurnContextOp.model_validate(given)).effort == effort


def test_null_leaves_every_other_setting() -> None:
    nulls = dict.fromkeys(("cwd", "approval_policy", "sandbox_policy", "model", "summary"))
    assert overriding(OverrideTurnContextOp.model_validate(nulls)) == UNCHANGED


def test_a_user_turn_always_says_which_effort_it_wants() -> None:
    assert settings(UserTurnOp.model_validate(TURN)).effort is None
    assert settings(UserTurnOp.model_validate({**TURN, "effort": "low"})).effort == "low"
