"""Rights of a client under `app_server.client_rights = false`: at most those that the user has configured."""

from pathlib import Path
from typing import Any

import pytest

from app_server.engine.config.client_limits import check_permissions, temporary_folder
from app_server.engine.config.config_values import (
    ClientFence,
    CliOverrides,
    Config,
    RequestOverrides,
    SettingsSource,
)
from app_server.engine.config.effective import setting_edit
from app_server.engine.config.settings_file import write_settings
from app_server.engine.config.settings_service import load_config
from app_server.engine.support.engine_errors import BeyondClientRights, InvalidSettings
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import SettingsPatch, ThreadSettings
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    QuestionKinds,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.values import replace
from tests.engine.config import homes

FENCE = "[app_server]\nclient_rights = false\n"
NO_TEMPORARY = "exclude_tmpdir_env_var = true\nexclude_slash_tmp = true\n"
WRITABLE = f'sandbox_mode = "workspace-write"\n{FENCE}[sandbox_workspace_write]\n{NO_TEMPORARY}'
CLOSED = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
UNTRUSTED, ON_REQUEST = AskForApproval.UNTRUSTED, AskForApproval.ON_REQUEST
ON_FAILURE, NEVER = AskForApproval.ON_FAILURE, AskForApproval.NEVER


def settings(*, cwd: str = "/ws", **fields: Any) -> ThreadSettings:
    return ThreadSettings(cwd=cwd, **fields)


def load(
    home: Path, text: str, request: RequestOverrides | None = None, cli: CliOverrides | None = None
) -> Config:
    (home / "ws").mkdir(exist_ok=True)
    return homes.load(home, text, cli, request, cwd=home / "ws")


@pytest.mark.parametrize(
    "settings",
    [
        {"notify": ["touch", "x"]},
        {"mcp_servers.e.command": "touch"},
        {"mcp_servers": {"e": {"url": "http://127.0.0.1:1"}}},
        {'"mcp_servers".e': {"command": "touch"}},
        {"model_providers.openai.base_url": "http://evil.example"},
        {"openai_base_url": "http://evil.example"},
        {"otel.exporter": "none"},
        {"shell_environment_policy.inherit": "all"},
        {"model_instructions_file": "/etc/hostname"},
        {"projects": {"/": {"trust_level": "trusted"}}},
        {"profiles.q.sandbox_mode": "danger-full-access", "profile": "q"},
        {"setting_of_a_later_version": True},
        {'"not a key': True},
        {"sandbox_mode": "workspace-write"},
        {"sandbox_mode": "danger-full-access"},
        {"approval_policy": "never"},
        {"profile": "wide"},
    ],
    ids=str,
)
def test_a_request_gets_nothing_that_starts_reads_or_grants_more(
    tmp_path: Path, settings: dict[str, Json]
) -> None:
    text = f'sandbox_mode = "read-only"\n{FENCE}[profiles.wide]\nsandbox_mode = "danger-full-access"\n'
    for fenced, cli in (
        (text, CliOverrides()),
        (text.replace("false", "true"), CliOverrides(settings=(("app_server.client_rights", "false"),))),
    ):
        with pytest.raises(BeyondClientRights, match="client_rights"):
            load(tmp_path, fenced, RequestOverrides(settings=settings), cli)


def test_a_profile_that_the_client_chooses_does_not_lift_the_fence(tmp_path: Path) -> None:
    assert load(tmp_path, "", RequestOverrides(settings={"notify": ["touch", "x"]})).fence is None
    text = f'{FENCE}[profiles.p]\nsandbox_mode = "danger-full-access"\napp_server.client_rights = true\n'
    for request in (RequestOverrides(profile="p"), RequestOverrides(settings={"profile": "p"})):
        with pytest.raises(BeyondClientRights):
            load(tmp_path, text, request)
    assert load(tmp_path, text, cli=CliOverrides(profile="p")).fence is None


def test_what_is_no_right_stays_the_clients(tmp_path: Path) -> None:
    given = {"model_verbosity": "low", "features.view_image_tool": False, "app_server.client_rights": True}
    request = RequestOverrides(
        patch=SettingsPatch(model="m", cwd="/elsewhere"),
        settings=given,
        developer_instructions="d",
        sandbox="read-only",
    )
    config = load(tmp_path, FENCE, request)
    assert (config.thread.model, config.permissions.client_rights) == ("m", False)
    assert config.fence is not None


@pytest.mark.parametrize(
    ("own", "asked", "fits"),
    [
        (ReadOnly(), ReadOnly(), True),
        (ReadOnly(), CLOSED, False),
        (ReadOnly(), DangerFullAccess(), False),
        (CLOSED, ReadOnly(), True),
        (CLOSED, CLOSED, True),
        (CLOSED, DangerFullAccess(), False),
        (CLOSED, WorkspaceWrite(exclude_slash_tmp=True), False),
        (CLOSED, WorkspaceWrite(exclude_tmpdir_env_var=True), False),
        (WorkspaceWrite(), CLOSED, True),
        (WorkspaceWrite(), WorkspaceWrite(network_access=True), False),
        (WorkspaceWrite(network_access=True), WorkspaceWrite(), True),
        (WorkspaceWrite(), WorkspaceWrite(writable_roots=("/ws/sub", "/more/x")), True),
        (WorkspaceWrite(), WorkspaceWrite(writable_roots=("/ws/../out",)), False),
        (WorkspaceWrite(), WorkspaceWrite(writable_roots=("/wsx",)), False),
        (DangerFullAccess(), WorkspaceWrite(network_access=True), True),
        (DangerFullAccess(), DangerFullAccess(), True),
    ],
    ids=str,
)
def test_a_sandbox_is_at_most_the_configured_one(
    own: SandboxPolicy, asked: SandboxPolicy, fits: bool
) -> None:
    fence = ClientFence(settings(sandbox_policy=own), ("/ws", "/more"))
    check_permissions(None, settings(sandbox_policy=asked, cwd="/anywhere"))
    try:
        check_permissions(fence, settings(sandbox_policy=asked))
    except BeyondClientRights:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize(
    ("own", "wider"),
    [
        (UNTRUSTED, {ON_REQUEST, ON_FAILURE, NEVER}),
        (ON_REQUEST, {ON_FAILURE, NEVER}),
        (ON_FAILURE, {NEVER}),
        (
            NEVER,
            {UNTRUSTED, ON_REQUEST, ON_FAILURE},
        ),  # with it a client could let the model out of the sandbox
    ],
)
def test_an_approval_policy_is_at_most_the_configured_one(
    own: AskForApproval, wider: set[AskForApproval]
) -> None:
    fence, refused = ClientFence(settings(approval_policy=own), ("/ws",)), set()
    for policy in AskForApproval:
        try:
            check_permissions(fence, settings(approval_policy=policy))
        except BeyondClientRights:
            refused.add(policy)
    assert refused == wider


def test_questions_that_the_user_switched_off_stay_off(tmp_path: Path) -> None:
    silent, all_kinds = QuestionKinds(sandbox_approval=False), QuestionKinds()
    fence = ClientFence(settings(granular=silent), ("/ws",))
    check_permissions(fence, settings(granular=silent))
    for granular in (None, all_kinds):
        with pytest.raises(BeyondClientRights):
            check_permissions(fence, settings(granular=granular))
    with pytest.raises(BeyondClientRights):
        check_permissions(fence, settings(approval_policy=UNTRUSTED))


def test_a_client_writes_only_where_the_user_said_so(tmp_path: Path) -> None:
    trusted, out = tmp_path / "trusted", tmp_path / "out"
    for folder in (trusted, out):
        folder.mkdir()
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/link").symlink_to(out)
    text = (
        f'{WRITABLE}writable_roots = ["{tmp_path}/more"]\n[projects."{trusted}"]\ntrust_level = "trusted"\n'
    )
    for inside in (None, "sub", f"{tmp_path}/more/x", str(trusted)):
        assert load(tmp_path, text, RequestOverrides.in_folder(inside)).fence is not None
    for outside in ("..", "/", str(out), "link", "link/x", f"{tmp_path}/ws/../out"):
        with pytest.raises(BeyondClientRights, match="writing in"):
            load(tmp_path, text, RequestOverrides.in_folder(outside))
    load(tmp_path, FENCE, RequestOverrides.in_folder("/"))  # a folder in which nothing can be written


STARTING = (
    'notify mcp_servers.e "notify" approval_policy sandbox_mode profile profiles.p.model projects hooks'
)
GRANTING = "sandbox_workspace_write.writable_roots model_providers.x.base_url features.x"


@pytest.mark.parametrize("key", f"{STARTING} {GRANTING}".split())
def test_a_client_writes_no_setting_that_starts_or_grants_something(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.toml").write_text(FENCE)
    place = SettingsSource(home=tmp_path, cwd=tmp_path, cli=CliOverrides(), environment={})
    for value in (["touch", "x"], None):
        with pytest.raises(InvalidSettings, match="only the user changes"):
            write_settings(place, [setting_edit(key, value, merge=False)])
    with pytest.raises(InvalidSettings, match="only the user changes"):
        write_settings(place, [setting_edit("model", "m", merge=False), setting_edit(key, "x", merge=False)])
    assert (tmp_path / "config.toml").read_text() == FENCE
    write_settings(place, [setting_edit("model_verbosity", "low", merge=False)])
    assert 'model_verbosity = "low"' in (tmp_path / "config.toml").read_text()


def brought(
    *settings: tuple[str, str], server: CliOverrides | None = None, profile: str | None = None
) -> CliOverrides:
    """Return the options of a client of a shared server."""
    return CliOverrides(settings=settings, above=server or CliOverrides(), profile=profile)


@pytest.mark.parametrize(
    "options",
    [
        (("mcp_servers.e.command", "touch"),),
        (("notify", '["touch", "x"]'),),
        (("model_providers.m.base_url", "http://elsewhere"),),
        (("sandbox_mode", "danger-full-access"),),
        (("approval_policy", "never"),),
    ],
    ids=str,
)
@pytest.mark.parametrize("by", ["the file", "the command line"])
def test_what_a_client_brings_to_a_shared_server_is_judged_as_a_request(
    tmp_path: Path, options: tuple[tuple[str, str], ...], by: str
) -> None:
    own = CliOverrides(settings=(("app_server.client_rights", "false"),))
    file, server = (FENCE, None) if by == "the file" else ("", own)
    with pytest.raises(BeyondClientRights):
        load(tmp_path, file, cli=brought(*options, server=server))


def test_a_client_of_a_shared_server_cannot_lift_the_fence(tmp_path: Path) -> None:
    text = f"{FENCE}[profiles.p]\napp_server.client_rights = true\n"
    for cli in (brought(("app_server.client_rights", "true")), brought(profile="p")):
        config = load(tmp_path, text, cli=cli)
        assert (config.fence is None, config.permissions.client_rights) == (False, False)


def test_a_client_may_take_its_own_rights(tmp_path: Path) -> None:
    config = load(tmp_path, "", cli=brought(("app_server.client_rights", "false")))
    assert (config.fence is None, config.permissions.client_rights) == (False, False)


def test_the_folder_of_a_client_is_none_that_the_user_chose(tmp_path: Path) -> None:
    text = f'sandbox_mode = "workspace-write"\n{FENCE}'
    (tmp_path / "config.toml").write_text(text)
    place = SettingsSource(home=tmp_path, cwd=tmp_path / "client", cli=brought())
    with pytest.raises(BeyondClientRights, match="writing in"):
        load_config(place)
    assert load_config(replace(place, own_folder=tmp_path)).fence is not None


def test_a_temporary_folder_that_a_fence_does_not_have_is_none() -> None:
    fence = ClientFence(settings(), ("/ws",))
    assert temporary_folder(None, {"TMPDIR": "/etc"}) == "/etc"
    assert temporary_folder(fence, {"TMPDIR": "/etc"}) is None
    assert temporary_folder(fence, {"TMPDIR": "/ws/tmp"}) == "/ws/tmp"
    assert temporary_folder(fence, {}) is None
