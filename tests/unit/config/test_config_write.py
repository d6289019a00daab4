"""Settings that a client writes: versions, checks, other writers, other layers."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli

from app_server.core.config import write as config_file
from app_server.core.config.edit import setting_edit
from app_server.core.config.effective import LayerKind, settings_version
from app_server.core.config.types import CliOverrides
from app_server.core.config.write import SettingsPlace, WriteOutcome, rewrite_config, write_settings
from app_server.core.errors import ConfigError, InvalidSettings, VersionConflict
from protocol.base import Json

FILE = '# mine\nmodel = "m"\n\n[profiles.p]\nmodel = "of-p"\n'


def home(folder: Path, text: str = FILE) -> SettingsPlace:
    (folder / "config.toml").write_text(text)
    return SettingsPlace(folder, folder, CliOverrides(), {})


def write(place: SettingsPlace, key: str, value: Json, version: str | None = None) -> WriteOutcome:
    return write_settings(place, [setting_edit(key, value, merge=False)], version)


def text(place: SettingsPlace) -> str:
    return (place.home / "config.toml").read_text()


def test_each_write_has_the_version_that_the_next_may_expect(tmp_path: Path) -> None:
    place = home(tmp_path)
    first = write(place, "model", "n", settings_version(tomli.loads(FILE)))
    second = write(place, "model", "o", first.version)
    assert second.version == settings_version(tomli.loads(text(place)))
    with pytest.raises(VersionConflict):
        write(place, "model", "p", first.version)
    assert tomli.loads(text(place))["model"] == "o"


def test_what_changes_no_setting_changes_no_version(tmp_path: Path) -> None:
    place = home(tmp_path)
    version = write(place, "model", "n").version
    (tmp_path / "config.toml").write_text(text(place) + "# another remark\n")
    write(place, "model", "o", version)
    assert text(place).endswith("# another remark\n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sandbox_mode", "zzz"),
        ("approval_policy", 5),
        ("model", {"a": 1}),
        ("model_provider", "none"),
        ("mcp_servers.x", {"command": 5}),
        ("mcp_servers.x", {}),
        ("model_providers", "none"),
        ("profiles.p.sandbox_mode", "zzz"),
        ("profile", "missing"),
    ],
)
def test_settings_with_which_no_thread_could_begin_are_not_written(
    tmp_path: Path, key: str, value: Json
) -> None:
    place = home(tmp_path)
    with pytest.raises(InvalidSettings, match="Invalid configuration: "):
        write(place, key, value)
    assert text(place) == FILE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("app_server.client_rights", True),
        ("app_server", {"client_rights": True}),
        ("app_server", None),
        ("profiles.p.app_server.client_rights", True),
        ("profiles.q", {"app_server": {"client_rights": True}}),
    ],
)
def test_what_clients_may_do_is_not_written_for_them(tmp_path: Path, key: str, value: Json) -> None:
    place = home(tmp_path, f"[app_server]\nclient_rights = false\n{FILE.removeprefix('# mine')}")
    before = text(place)
    with pytest.raises(InvalidSettings, match="only the user changes it"):
        write(place, key, value)
    assert text(place) == before


def test_settings_of_other_programs_are_written(tmp_path: Path) -> None:
    place = home(tmp_path)
    write(place, "unknown.setting", [1, {"a": True}])
    assert tomli.loads(text(place))["unknown"] == {"setting": [1, {"a": True}]}


def test_a_mistake_that_is_there_already_can_be_corrected(tmp_path: Path) -> None:
    place = home(tmp_path, 'sandbox_mode = "zzz"\n')
    with pytest.raises(InvalidSettings, match="sandbox_mode"):
        write(place, "model", "n")
    write(place, "sandbox_mode", "read-only")
    assert text(place) == 'sandbox_mode = "read-only"\n'


def test_what_is_only_right_with_the_command_line_can_be_edited(tmp_path: Path) -> None:
    home(tmp_path, 'model_provider = "local"\n')
    cli = CliOverrides(settings=(("model_providers.local", '{ name = "L" }'),))
    place = SettingsPlace(tmp_path, tmp_path, cli, {})
    write(place, "model", "n")
    assert tomli.loads(text(place))["model"] == "n"


def test_a_batch_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    place = home(tmp_path)
    edits = [setting_edit("model", "half", merge=False), setting_edit("sandbox_mode", "zzz", merge=False)]
    with pytest.raises(InvalidSettings):
        write_settings(place, edits)
    assert text(place) == FILE


@pytest.mark.parametrize(
    ("cli", "kind", "value"),
    [
        (CliOverrides(model="cli"), LayerKind.COMMAND_LINE, "cli"),
        (CliOverrides(profile="p"), LayerKind.PROFILE, "of-p"),
    ],
)
def test_the_overriding_layer_is_named(
    tmp_path: Path, cli: CliOverrides, kind: LayerKind, value: str
) -> None:
    home(tmp_path)
    outcome = write(SettingsPlace(tmp_path, tmp_path, cli, {}), "model", "n")
    assert outcome.overridden is not None
    assert (outcome.overridden.layer.kind, outcome.overridden.value) == (kind, value)
    assert write(SettingsPlace(tmp_path, tmp_path, cli, {}), "review_model", "n").overridden is None


def test_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    place = home(tmp_path, "model = [")
    with pytest.raises(ConfigError, match=r"config\.toml:1:"):
        write(place, "model", "n")
    assert text(place) == "model = ["


def test_nothing_that_is_written_at_once_is_lost(tmp_path: Path) -> None:
    place = home(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: write(place, f"names.n{n}", n), range(24)))
    assert tomli.loads(text(place))["names"] == {f"n{n}": n for n in range(24)}


def test_servers_write_one_after_another(tmp_path: Path) -> None:
    place = home(tmp_path)
    program = (
        "import sys; from pathlib import Path\n"
        "from app_server.core.config.write import rewrite_config\n"
        "for n in range(10):\n"
        "    rewrite_config(Path(sys.argv[1]), lambda s: {**s, f'{sys.argv[2]}{n}': n})\n"
    )
    commands = [[sys.executable, "-c", program, str(tmp_path), name] for name in ("a", "b")]
    running = [subprocess.Popen(command) for command in commands]
    assert [each.wait() for each in running] == [0, 0]
    written = tomli.loads(text(place))
    assert {f"{name}{n}" for name in "ab" for n in range(10)} <= set(written)


def test_a_lock_that_is_held_for_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    monkeypatch.setattr(config_file, "LOCK_SECONDS", 0.0)
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another server is changing it"):
            write(place, "model", "n")
    finally:
        os.close(held)
    write(place, "model", "n")


def test_what_another_program_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    place = home(tmp_path, 'model = "m"\n')
    path = tmp_path / "config.toml"
    calls: list[Mapping[str, Json]] = []

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        calls.append(settings)
        if len(calls) == 1:
            path.write_text('model = "m"\nreview_model = "theirs"\n')
        return {**settings, "model": "ours"}

    rewrite_config(place.home, change)
    assert tomli.loads(path.read_text()) == {"model": "ours", "review_model": "theirs"}
    assert len(calls) == 2


def test_a_file_that_never_rests_is_left_to_the_other(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("n = 0\n")

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        path.write_text(f"n = {settings['n'] + 1}\n")
        return {**settings, "ours": True}

    with pytest.raises(ConfigError, match="another program keeps changing it"):
        rewrite_config(tmp_path, change)
    assert "ours" not in path.read_text()


def test_a_file_does_not_grow_beyond_what_can_be_edited(tmp_path: Path) -> None:
    place = home(tmp_path)
    with pytest.raises(ConfigError, match="too large"):
        write(place, "notice.text", "v" * 2_000_000)
    assert text(place) == FILE
