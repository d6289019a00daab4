"""The client's view of the saved settings, without credentials, and changes of the model."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.effective import shown_value, with_credentials, without_credentials
from app_server.engine.config.settings_file import set_default_model
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.support.engine_errors import ConfigError, InvalidSettings
from app_server.engine.support.redaction import MASK
from app_server_protocol.encoding import Json
from app_server_protocol.policy import (
    AskForApproval,
    ReasoningEffort,
    ReasoningSummary,
    SandboxMode,
    Verbosity,
)


def load_saved_config(home: Path) -> Mapping[str, Json]:
    return UserSettings(home=home, cwd=home).file.saved()


def test_nothing_saved(tmp_path: Path) -> None:
    saved = load_saved_config(tmp_path)
    assert saved["profiles"] == {}
    assert {value for name, value in saved.items() if name != "profiles"} == {None}


def test_what_is_saved_is_shown_as_written(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'model = "m"\nmodel_reasoning_effort = "high"\n'
        'model_reasoning_summary = "detailed"\nprofile = "work"\n'
        'model_verbosity = "low"\napproval_policy = "never"\nsandbox_mode = "read-only"\n'
        'forced_login_method = "api"\nforced_chatgpt_workspace_id = "w"\n'
        "[tools]\nweb_search = true\nview_image = false\n"
        '[sandbox_workspace_write]\nwritable_roots = ["/tmp/x"]\nnetwork_access = true\n'
        '[profiles.work]\nmodel = "work-model"\napproval_policy = "on-failure"\n'
    )
    assert load_saved_config(tmp_path) == {
        "model": "m",
        "profile": "work",
        "model_reasoning_effort": ReasoningEffort.HIGH,
        "model_reasoning_summary": ReasoningSummary.DETAILED,
        "model_verbosity": Verbosity.LOW,
        "approval_policy": AskForApproval.NEVER,
        "sandbox_mode": SandboxMode.READ_ONLY,
        "forced_login_method": "api",
        "forced_chatgpt_workspace_id": "w",
        "tools": {"web_search": True, "view_image": False},
        "sandbox_settings": {
            "writable_roots": ("/tmp/x",),
            "network_access": True,
            "exclude_tmpdir_env_var": False,
            "exclude_slash_tmp": False,
        },
        "profiles": {
            "work": {
                "model": "work-model",
                "model_provider": None,
                "approval_policy": AskForApproval.ON_FAILURE,
                "model_reasoning_effort": None,
                "model_reasoning_summary": None,
                "model_verbosity": None,
                "chatgpt_base_url": None,
            }
        },
    }


@pytest.mark.parametrize("text", ["model = [", "approval_policy = 'z'", "profiles = 1"])
def test_an_unusable_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError):
        load_saved_config(tmp_path)


def test_a_wrong_entry_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("model = 'm'\n[tools]\nweb_search = 'a'\nview_image = true\n")
    saved = load_saved_config(tmp_path)
    assert (saved["model"], saved["tools"]) == ("m", {"web_search": None, "view_image": True})


def test_the_chosen_profile_is_the_place(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('profile = "p"\nmodel = "top"\n\n[profiles.p]\nmodel = "x" # here\n')
    set_default_model(tmp_path, "m", None)
    assert path.read_text() == 'profile = "p"\nmodel = "top"\n\n[profiles.p]\nmodel = "m" # here\n'


def test_a_profile_that_does_not_exist_yet_is_made(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('profile = "p"\n')
    set_default_model(tmp_path, None, None)
    assert path.read_text() == 'profile = "p"\n'
    set_default_model(tmp_path, "m", ReasoningEffort.HIGH)
    assert tomli.loads(path.read_text()) == {
        "profile": "p",
        "profiles": {"p": {"model": "m", "model_reasoning_effort": "high"}},
    }


def test_a_new_file_is_private(tmp_path: Path) -> None:
    home = tmp_path / "not" / "yet"
    set_default_model(home, "m", None)
    assert (home / "config.toml").read_text() == 'model = "m"\n'
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_nothing_is_written_when_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('model = "m"\n')
    before = path.stat()
    set_default_model(tmp_path, "m", None)
    assert path.stat().st_ino == before.st_ino


def test_a_linked_file_stays_linked(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "codex.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    (tmp_path / "config.toml").symlink_to(real)
    set_default_model(tmp_path, "m", None)
    assert (tmp_path / "config.toml").is_symlink()
    assert real.read_text() == '# mine\nmodel = "m"\n'


@pytest.mark.parametrize("kind", ["dangling", "loop", "folder", "fifo", "device", "broken", "not a table"])
def test_what_cannot_be_edited_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.toml"
    match kind:
        case "dangling":
            path.symlink_to(tmp_path / "gone")
        case "loop":
            path.symlink_to(path)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/null")
        case "broken":
            path.write_text("model = [")
        case _:
            path.write_text("profile = 'p'\nprofiles = 'x'\n")
    before = path.lstat()[: stat.ST_ATIME]
    with pytest.raises(ConfigError, match=r"config\.toml|/dev/null"):
        set_default_model(tmp_path, "m", None)
    assert path.lstat()[: stat.ST_ATIME] == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


SECRET = "s3cr3t"

SETTINGS: dict[str, Json] = {
    "model": "m",
    "model_auto_compact_token_limit": 5,
    "tool_output_token_limit": 6,
    "cli_auth_credentials_store": "file",
    "openai_base_url": f"https://me:{SECRET}@host/v1?a=b",
    "model_providers": {
        "p": {
            "base_url": f"https://host/v1?api_key={SECRET}&b=c",
            "env_key": "VARIABLE",
            "experimental_bearer_token": SECRET,
            "http_headers": {"X-Team": SECRET},
            "query_params": {"key": SECRET},
            "env_http_headers": {"Authorization": "VARIABLE"},
        }
    },
    "mcp_servers": {
        "env": {"command": "c", "args": ["run", f"--token={SECRET}", "--api-key", SECRET, "--quiet"]},
        "web": {"url": "https://host/", "bearer_token_env_var": "VARIABLE", "env": {"A": SECRET, "B": ""}},
    },
    "shell_environment_policy": {"set": {"PASSWORD": SECRET}, "inherit": "all"},
    "otel": {"exporter": {"otlp-http": {"endpoint": "https://host", "headers": {"k": SECRET}}}},
    "notify": ["program", f"--password={SECRET}"],
    "unknown": {"my_secret": SECRET, "numbers": {"token": 17}, "list_of_tokens": 1},
    "features": {"token": True},
}


def test_no_credential_is_shown_and_all_else_is() -> None:
    shown = without_credentials(SETTINGS)
    assert SECRET not in json.dumps(shown)
    assert shown["openai_base_url"] == f"https://{MASK}@host/v1?a=b"
    provider = shown["model_providers"]["p"]
    assert provider["base_url"] == f"https://host/v1?api_key={MASK}&b=c"
    assert (provider["env_key"], provider["env_http_headers"]) == ("VARIABLE", {"Authorization": "VARIABLE"})
    assert provider["http_headers"] == {"X-Team": MASK}
    servers = shown["mcp_servers"]
    assert servers["env"]["command"] == "c"
    assert servers["env"]["args"] == ["run", f"--token={MASK}", "--api-key", MASK, "--quiet"]
    assert servers["web"] == {
        "url": "https://host/",
        "bearer_token_env_var": "VARIABLE",
        "env": {"A": MASK, "B": ""},
    }
    assert shown["unknown"]["numbers"] == {"token": MASK}
    assert shown["features"] == {"token": True}
    same = (
        "model",
        "model_auto_compact_token_limit",
        "tool_output_token_limit",
        "cli_auth_credentials_store",
    )
    assert [shown[key] for key in same] == [SETTINGS[key] for key in same]


@pytest.mark.parametrize(
    "key", [("model_providers", "p"), ("mcp_servers",), ("notify",), ("openai_base_url",)]
)
def test_what_is_written_back_as_it_was_shown_stays(key: tuple[str, ...]) -> None:
    present: Json = SETTINGS
    for part in key:
        present = present[part]
    assert with_credentials(shown_value(present, key), present, key) == present


def test_a_list_may_be_rearranged() -> None:
    present = ["--token=a", "--password=b", "c"]
    written = ["c", f"--password={MASK}", f"--token={MASK}", "new"]
    assert with_credentials(written, present, ("notify",)) == ["c", "--password=b", "--token=a", "new"]


@pytest.mark.parametrize(
    ("value", "present"),
    [(MASK, None), ({"env": {"NEW": MASK}}, {"env": {"A": "x"}}), ([MASK], ["x"]), (f"a{MASK}", "x")],
)
def test_a_hidden_value_with_nothing_behind_it_is_refused(value: Json, present: Json) -> None:
    with pytest.raises(InvalidSettings, match="stands for a value that is not there"):
        with_credentials(value, present, ("mcp_servers", "x"))


def test_a_new_credential_is_taken() -> None:
    assert with_credentials("new", "old", ("model_providers", "p", "experimental_bearer_token")) == "new"


@given(st.recursive(st.text("ab:/?=&@*-key", max_size=12), lambda inner: st.lists(inner, max_size=3)))
def test_showing_and_writing_back_is_lossless(value: Json) -> None:
    for key in (("notify",), ("model_providers", "p", "http_headers", "x")):
        shown = shown_value(value, key)
        assert shown_value(shown, key) == shown
        if MASK in repr(value):
            continue
        back = with_credentials(shown, value, key)
        assert shown_value(back, key) == shown
