"""Approval policies that say which kinds of questions reach the user, in the user's settings."""

from pathlib import Path

import pytest

from app_server.core.config.load import load_config
from app_server.core.config.saved import load_saved_config
from app_server.core.config.types import CliOverrides, PermissionSettings, RequestOverrides
from protocol.policy import AskForApproval, QuestionKinds
from protocol.structs import replace

GRANULAR = "[approval_policy.granular]\nsandbox_approval = false\nrules = true\nmcp_elicitations = false\n"
KINDS = QuestionKinds(sandbox_approval=False, rules=True, mcp_elicitations=False)


def load(
    home: Path,
    text: str,
    cli: CliOverrides = CliOverrides(),  # noqa: B008 - frozen
    request: RequestOverrides = RequestOverrides(),  # noqa: B008 - frozen
) -> PermissionSettings:
    (home / "config.toml").write_text(text)
    return load_config(home, cwd=home, cli=cli, request=request, env={}).permissions


@pytest.mark.parametrize(
    "text",
    [
        GRANULAR,
        "approval_policy = { granular = { sandbox_approval = false, rules = true, mcp_elicitations = false } }",
        f'profile = "p"\napproval_policy = "never"\n{GRANULAR.replace("[", "[profiles.p.")}',
        f"{GRANULAR}skill_approval = false\nrequest_permissions = false",
    ],
)
def test_the_kinds_are_read(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text)
    assert (found.approval_policy, found.granular) == (AskForApproval.ON_REQUEST, KINDS)


def test_a_part_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    cli = CliOverrides(settings=(("approval_policy.granular.rules", "false"),))
    assert load(tmp_path, GRANULAR, cli).granular == replace(KINDS, rules=False)


def test_a_policy_that_somebody_names_replaces_all_of_it(tmp_path: Path) -> None:
    named = (
        (CliOverrides(approval_policy=AskForApproval.ON_REQUEST), RequestOverrides()),
        (CliOverrides(), RequestOverrides(approval_policy=AskForApproval.ON_REQUEST)),
        (CliOverrides(), RequestOverrides(settings={"approval_policy": "on-request"})),
    )
    for cli, request in named:
        assert load(tmp_path, GRANULAR, cli, request).granular is None
    given = RequestOverrides(approval_policy=AskForApproval.ON_REQUEST, granular=QuestionKinds(rules=False))
    assert load(tmp_path, GRANULAR, request=given).granular == QuestionKinds(rules=False)


def test_the_conversation_api_shows_the_word_that_comes_near(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(GRANULAR)
    assert load_saved_config(tmp_path)["approval_policy"] is AskForApproval.ON_REQUEST
