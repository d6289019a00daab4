"""Which files define the hooks of a thread, and what the user's settings say about them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.config.config_values import CliOverrides, Config, RequestOverrides, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.hooks.hook_definitions import HookTrust, LoadedHooks, MayApprove, OnFailure
from app_server.engine.hooks.hook_files import HookFiles
from app_server.engine.hooks.hook_notice import hooks_notice
from app_server.engine.hooks.hook_presence import may_have_hooks
from app_server.engine.support.engine_errors import BeyondClientRights, ConfigError
from app_server_protocol.engine.hook_events import HookEvent, HookSource


def hooks_json(command: str, event: str = "PreToolUse", **more: Any) -> str:
    return json.dumps({"hooks": {event: [{"hooks": [{"type": "command", "command": command, **more}]}]}})


class Place:
    """A home, and a trusted repository with a folder `inner`."""

    def __init__(self, folder: Path) -> None:
        self.home, self.top = folder / "home", folder / "project"
        self.cwd = self.top / "inner"
        for each in (self.home, self.cwd, self.top / ".git"):
            each.mkdir(parents=True)
        (self.top / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
        self.configure("")

    def configure(self, settings: str, *, trusted: bool = True) -> None:
        level = f'[projects."{self.top}"]\ntrust_level = "trusted"\n' if trusted else ""
        (self.home / "config.toml").write_text(f"{level}{settings}", encoding="utf-8")

    def write(self, path: Path, text: str) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def files(self, settings: Mapping[str, Any] | None = None, cli: CliOverrides | None = None) -> HookFiles:
        return HookFiles(self.config(settings, cli), self.source(cli))

    def source(self, cli: CliOverrides | None = None) -> SettingsSource:
        return SettingsSource(home=self.home, cwd=self.cwd, cli=cli or CliOverrides(), environment={})

    def config(self, settings: Mapping[str, Any] | None = None, cli: CliOverrides | None = None) -> Config:
        return load_config(self.source(cli), RequestOverrides(settings=settings or {}))

    def load(self, settings: Mapping[str, Any] | None = None, cli: CliOverrides | None = None) -> LoadedHooks:
        return self.files(settings, cli).load(str(self.cwd))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(Path(os.path.realpath(tmp_path)))


def shown(hooks: LoadedHooks) -> list[tuple[str, str]]:
    return [(each.definition.command, each.source_path) for each in hooks.handlers()]


def state(hooks: LoadedHooks, **more: Any) -> dict[str, Any]:
    return {each.key: {"trusted_hash": each.digest, **more} for each in hooks.handlers()}


def test_files_count_from_the_home_and_then_from_the_root_to_the_folder(place: Place) -> None:
    home = place.write(place.home / "hooks.json", hooks_json("home"))
    top = place.write(place.top / ".codex/hooks.json", hooks_json("top"))
    inner = place.write(
        place.cwd / ".codex/config.toml", '[[hooks.PreToolUse]]\nhooks = [{type="command",command="inner"}]'
    )
    place.configure('[[hooks.PreToolUse]]\nhooks = [{type = "command", command = "inline"}]\n')
    hooks = place.load()
    assert shown(hooks) == [
        ("home", home),
        ("inline", str(place.home / "config.toml")),
        ("top", top),
        ("inner", inner),
    ]
    assert [each.source for each in hooks.handlers()] == [HookSource.USER] * 2 + [HookSource.PROJECT] * 2
    assert [each.display_order for each in hooks.handlers()] == [0, 1, 2, 3]
    assert hooks.handlers()[2].key == f"{top}:pre_tool_use:0:0"
    [warning] = hooks.warnings
    assert "both" in warning
    assert hooks.project_root == str(place.top)


def test_a_project_that_is_not_trusted_brings_no_hooks(place: Place) -> None:
    place.write(place.top / ".codex/hooks.json", hooks_json("top"))
    place.configure("", trusted=False)
    assert place.load().handlers() == ()
    # Nor does the project's own file make it trusted.
    place.write(place.top / ".codex/config.toml", f'[projects."{place.top}"]\ntrust_level = "trusted"\n')
    assert place.load().handlers() == ()


def test_consent_comes_from_the_users_file_a_command_line_and_a_request(place: Place) -> None:
    place.write(place.home / "hooks.json", hooks_json("guard"))
    [handler] = place.load().handlers()
    assert handler.trust is HookTrust.UNTRUSTED
    assert place.load().runnable(HookEvent.PRE_TOOL_USE) == ()

    consent = f'[hooks.state."{handler.key}"]\ntrusted_hash = "{handler.digest}"\n'
    for hooks in (
        place.load({"hooks.state": {handler.key: {"trusted_hash": handler.digest}}}),
        place.load({"hooks": {"state": {handler.key: {"trusted_hash": handler.digest}}}}),
        place.load(
            cli=CliOverrides(settings=((f'hooks.state."{handler.key}".trusted_hash', f'"{handler.digest}"'),))
        ),
    ):
        assert [each.key for each in hooks.runnable(HookEvent.PRE_TOOL_USE)] == [handler.key]
    place.configure(consent)
    assert len(place.load().runnable(HookEvent.PRE_TOOL_USE, "Bash")) == 1
    place.configure(f"{consent}enabled = false\n")
    assert place.load().runnable(HookEvent.PRE_TOOL_USE) == ()


def test_a_projects_file_gives_no_consent_and_changes_no_setting(place: Place) -> None:
    path = place.write(place.top / ".codex/hooks.json", hooks_json("top"))
    key, digest = f"{path}:pre_tool_use:0:0", place.load().handlers()[0].digest
    place.write(
        place.top / ".codex/config.toml",
        f'[features]\nhooks = false\n[hooks]\non_failure = "allow"\n'
        f'[hooks.state."{key}"]\ntrusted_hash = "{digest}"\n',
    )
    hooks = place.load()
    assert hooks.runnable(HookEvent.PRE_TOOL_USE) == ()
    assert hooks.settings.on_failure is OnFailure.ASK
    assert not hooks.switched_off
    assert "has no effect" in hooks.warnings[0]


def test_settings_are_read_again_and_wrong_ones_are_errors(place: Place) -> None:
    files = place.files()
    assert files.load(str(place.cwd)).settings.may_approve is MayApprove.USER
    place.configure(
        '[hooks]\nmay_approve = "none"\nmax_stop_blocks = 1\non_failure = "block"\nproject_sandbox = false\n'
    )
    settings = files.load(str(place.cwd)).settings
    assert (settings.may_approve, settings.max_stop_blocks) == (MayApprove.NONE, 1)
    assert (settings.on_failure, settings.project_sandbox) == (OnFailure.BLOCK, False)
    place.configure('[hooks]\non_failure = "blokc"\n')
    # The guards of the turn before stay, rather than none.
    broken = files.load(str(place.cwd))
    assert broken.settings == settings
    assert "on_failure" in broken.warnings[-1]
    with pytest.raises(ConfigError, match="on_failure"):
        files.load(str(place.top))


def test_a_switch_turns_all_off_and_says_so(place: Place) -> None:
    place.write(place.home / "hooks.json", hooks_json("guard"))
    consent = {"hooks.state": state(place.load())}
    place.configure("[features]\nhooks = false\n")
    hooks = place.load(consent)
    assert hooks.runnable(HookEvent.PRE_TOOL_USE) == ()
    assert "1 hook does not run, because `[features] hooks = false`" in (hooks_notice(hooks) or "")
    # Without a hook that would run there is nothing to say.
    assert hooks_notice(place.load()) is None


def test_a_request_switches_no_hooks_off_and_trusts_no_project(place: Place) -> None:
    place.write(place.home / "hooks.json", hooks_json("guard"))
    place.write(place.top / ".codex/hooks.json", hooks_json("top"))
    place.configure("", trusted=False)
    hooks = place.load({"features.hooks": False, "projects": {str(place.top): {"trust_level": "trusted"}}})
    assert not hooks.switched_off
    assert len(hooks.handlers()) == 1


def test_a_client_without_the_users_rights_gives_no_consent(place: Place) -> None:
    place.configure("[app_server]\nclient_rights = false\n")
    with pytest.raises(BeyondClientRights, match="hooks"):
        place.files({"hooks.state": {"k": {"trusted_hash": "x"}}})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be an object"),
        ('{"Stop": []}', "`Stop` must stand in"),
        ("\xff", "JSON"),
    ],
)
def test_a_damaged_file_costs_itself(place: Place, text: str, part: str) -> None:
    place.write(place.home / "hooks.json", hooks_json("home"))
    path = place.top / ".codex/hooks.json"
    place.write(path, "")
    path.write_bytes(text.encode("latin-1"))
    hooks = place.load()
    assert [command for command, _ in shown(hooks)] == ["home"]
    [problem] = hooks.problems
    assert problem.path == str(path)
    assert part in problem.message
    assert str(path) in (hooks_notice(hooks) or "")


@pytest.mark.parametrize("kind", ["fifo", "large", "outward link", "folder"])
def test_what_is_no_plain_file_of_the_project_is_not_read(place: Place, kind: str) -> None:
    path = place.top / ".codex/hooks.json"
    path.parent.mkdir()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "large":
            path.write_text(" " * ((1 << 20) + 1), encoding="utf-8")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(place.write(place.home.parent / "outside.json", hooks_json("outside")))
    hooks = place.load()
    assert hooks.handlers() == ()
    assert len(hooks.problems) == 1


def test_settings_of_claude_code_count_where_the_user_says_so(place: Place) -> None:
    path = place.write(place.top / ".claude/settings.json", hooks_json("claude"))
    assert place.load().handlers() == ()
    place.configure("[hooks]\nclaude_settings = true\n")
    assert shown(place.load()) == [("claude", path)]
    place.write(Path(path), json.dumps({"disableAllHooks": True, **json.loads(hooks_json("claude"))}))
    assert place.load().handlers() == ()


def test_a_home_inside_the_project_is_read_once(tmp_path: Path) -> None:
    place = Place(Path(os.path.realpath(tmp_path)))
    place.home = place.top / ".codex"
    place.home.mkdir()
    place.configure("")
    place.write(place.home / "hooks.json", hooks_json("home"))
    assert [each.source for each in place.load().handlers()] == [HookSource.USER]


def test_the_notice_counts_what_does_not_run_and_names_the_way(place: Place) -> None:
    assert hooks_notice(place.load()) is None
    path = place.write(place.home / "hooks.json", hooks_json("guard"))
    text = hooks_notice(place.load()) or ""
    assert text.startswith("1 hook does not run (you have not agreed to it yet)")
    assert path in text
    assert "`/hooks`" in text
    assert "`hooks/list`" in text
    assert hooks_notice(place.load({"hooks.state": state(place.load())})) is None


def test_presence_is_seen_without_reading_hooks(place: Place) -> None:
    def present() -> bool:
        return may_have_hooks(config, str(place.cwd))

    config = place.config()

    assert not present()
    for path in (
        place.home / "hooks.json",
        place.top / ".codex/hooks.json",
        place.cwd / ".codex/config.toml",
    ):
        place.write(path, "{}")
        assert present()
        path.unlink()
    place.configure("[hooks]\n")
    assert present()
    place.configure("=")
    assert present()


def test_the_command_line_and_a_request_may_give_hooks(place: Place) -> None:
    """Their keys, digests and order are those of codex 0.171."""
    place.write(place.top / ".codex/hooks.json", hooks_json("project"))
    command = '[{hooks=[{type="command",command="/bin/true",timeout=5}],matcher="Bash"}]'
    cli = CliOverrides(settings=(("hooks.PreToolUse", command),))
    given = place.load(cli=cli)
    assert [each.source for each in given.handlers()] == [HookSource.PROJECT, HookSource.SESSION]
    handler = given.handlers()[1]
    assert handler.key == "/<session-flags>/config.toml:pre_tool_use:0:0"
    assert handler.digest == "sha256:327d4d5c8268c5ed60e372c070095b2a02d849e830d70fa1f34916ff1c7cf3bd"
    assert handler.trust is HookTrust.UNTRUSTED
    assert "/<session-flags>/config.toml" in (hooks_notice(given) or "")
    asked = {**json.loads(hooks_json("asked", "Stop")), "hooks.state": state(given)}
    assert [each.trust for each in place.load(asked, cli).handlers()] == [
        HookTrust.TRUSTED,
        HookTrust.TRUSTED,
        HookTrust.UNTRUSTED,
    ]


def test_presence_counts_what_the_command_line_and_a_request_give(place: Place) -> None:
    def present(settings: dict[str, Any], cli: CliOverrides | None = None) -> bool:
        return may_have_hooks(place.config(settings, cli), str(place.cwd))

    assert not present({"hooks.state": {"some key": {"enabled": False}}})
    assert present({"hooks.claude_settings": True})
    assert present(json.loads(hooks_json("asked")))
    assert present({}, CliOverrides(settings=(("hooks.Stop", "[]"),)))
