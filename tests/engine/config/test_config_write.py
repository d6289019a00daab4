"""Settings that a client writes: the result of edits, versions, checks, other writers."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.config import settings_file
from app_server.engine.config.config_values import CliOverrides, SettingsSource
from app_server.engine.config.effective import (
    LayerKind,
    SettingEdit,
    WriteOutcome,
    edited,
    setting_edit,
    settings_version,
)
from app_server.engine.config.settings_file import rewrite_config, write_settings
from app_server.engine.config.toml_text import edited_text
from app_server.engine.support.engine_errors import ConfigError, InvalidSettings, VersionConflict
from app_server_protocol.encoding import Json

WITH_PROFILE = '# mine\nmodel = "m"\n\n[profiles.p]\nmodel = "of-p"\n'


def home(folder: Path, text: str = WITH_PROFILE, cli: CliOverrides | None = None) -> SettingsSource:
    (folder / "config.toml").write_text(text)
    return SettingsSource(home=folder, cwd=folder, cli=cli or CliOverrides(), environment={})


def edit(key: str, value: Json, *, merge: bool = False) -> SettingEdit:
    return setting_edit(key, value, merge=merge)


def write(place: SettingsSource, key: str, value: Json, version: str | None = None) -> WriteOutcome:
    return write_settings(place, [edit(key, value)], version)


def text(place: SettingsSource) -> str:
    return (place.home / "config.toml").read_text()


def test_each_write_has_the_version_that_the_next_may_expect(tmp_path: Path) -> None:
    place = home(tmp_path)
    first = write(place, "model", "n", settings_version(tomli.loads(WITH_PROFILE)))
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
    assert text(place) == WITH_PROFILE


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
    place = home(tmp_path, f"[app_server]\nclient_rights = false\n{WITH_PROFILE.removeprefix('# mine')}")
    before = text(place)
    with pytest.raises(InvalidSettings, match="only the user changes it"):
        write(place, key, value)
    assert text(place) == before


def test_settings_of_other_programs_are_written(tmp_path: Path) -> None:
    place = home(tmp_path)
    write(place, "unknown.setting", [1, {"a": True}])
    assert tomli.loads(text(place))["unknown"] == {"setting": [1, {"a": True}]}


def test_a_wrong_entry_that_is_there_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("model_context_window = 'big'\n")
    place = SettingsSource(home=tmp_path, cwd=tmp_path)
    write(place, "model", "m")
    assert text(place) == "model_context_window = 'big'\nmodel = \"m\"\n"
    with pytest.raises(InvalidSettings, match="`project_doc_max_bytes` must be an integer"):
        write(place, "project_doc_max_bytes", "big")
    write(place, "model_context_window", 5)


def test_a_mistake_that_is_there_already_can_be_corrected(tmp_path: Path) -> None:
    place = home(tmp_path, 'sandbox_mode = "zzz"\n')
    with pytest.raises(InvalidSettings, match="sandbox_mode"):
        write(place, "model", "n")
    write(place, "sandbox_mode", "read-only")
    assert text(place) == 'sandbox_mode = "read-only"\n'


def test_what_is_only_right_with_the_command_line_can_be_edited(tmp_path: Path) -> None:
    cli = CliOverrides(settings=(("model_providers.local", '{ name = "L" }'),))
    place = home(tmp_path, 'model_provider = "local"\n', cli)
    write(place, "model", "n")
    assert tomli.loads(text(place))["model"] == "n"


def test_a_batch_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    place = home(tmp_path)
    with pytest.raises(InvalidSettings):
        write_settings(place, [edit("model", "half"), edit("sandbox_mode", "zzz")])
    assert text(place) == WITH_PROFILE


@pytest.mark.parametrize(
    ("cli", "kind", "value"),
    [
        (CliOverrides(settings=(("model", "cli"),)), LayerKind.COMMAND_LINE, "cli"),
        (CliOverrides(profile="p"), LayerKind.PROFILE, "of-p"),
    ],
)
def test_the_overriding_layer_is_named(
    tmp_path: Path, cli: CliOverrides, kind: LayerKind, value: str
) -> None:
    place = home(tmp_path, cli=cli)
    found = write(place, "model", "n").overridden
    assert found is not None
    assert (found.layer.kind, found.value) == (kind, value)
    assert write(place, "review_model", "n").overridden is None


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
        "from app_server.engine.config.settings_file import rewrite_config\n"
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
    monkeypatch.setattr(settings_file, "LOCK_SECONDS", 0.0)
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
    assert text(place) == WITH_PROFILE


FILE = """\
# at the top
model = "m"  # the model

[mcp_servers.x] # a server
command = "c"
args = ["a",  # first
        "b"]
env = { A = "1" }
"""


def written(text: str, *edits: SettingEdit) -> str:
    before = tomli.loads(text)
    after = edited(before, edits)
    new = edited_text(text, before, after)
    assert tomli.loads(new) == after
    return new


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (edit("model", "n"), {"model": "n"}),
        (edit("model", None), {"model": None}),
        (edit("a.b.c", 1), {"a": {"b": {"c": 1}}}),
        (edit('projects."/a.b".trust_level', "trusted"), {"projects": {"/a.b": {"trust_level": "trusted"}}}),
        (edit("nothing.at.all", None), {"nothing": None}),
        (edit("mcp_servers.x", {"url": "u"}), {"mcp_servers": {"x": {"url": "u"}}}),
        (edit("mcp_servers.y", {"url": "u"}, merge=True), {}),
        (edit("mcp_servers", {"x": {"env": {"B": "2"}}}, merge=True), {}),
    ],
)
def test_an_edit_makes_its_setting(change: SettingEdit, after: dict[str, Json]) -> None:
    found = tomli.loads(written(FILE, change))
    assert {key: found.get(key) for key in after} == after


def test_a_merged_table_keeps_what_it_had() -> None:
    found = tomli.loads(written(FILE, edit("mcp_servers.x", {"env": {"B": "2"}}, merge=True)))
    assert found["mcp_servers"]["x"] == {"command": "c", "args": ["a", "b"], "env": {"A": "1", "B": "2"}}


def test_comments_and_order_stay() -> None:
    text = written(FILE, edit("mcp_servers.x.command", "d"), edit("model", "n"), edit("review_model", "r"))
    assert [line for line in FILE.splitlines() if line not in text.splitlines()] == [
        'model = "m"  # the model',
        'command = "c"',
    ]
    assert 'model = "n"  # the model' in text
    assert text.index("review_model") < text.index("[mcp_servers.x]")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[mcp_servers.x]\ncommand = "c"\n', "mcp_servers.x"),
        ("[a.b.c]\nx = 1\n", "a.b.c"),
        ('model = "m"\ntools.web_search = true\n', "tools.web_search"),
        ("[tools] # kept\n# this too\nweb_search = true\n", "tools.web_search"),
        ("a = {b = 1}\n", "a.b"),
        ("[a.b]\nx = 1\n[c]\ny = 1\n[a.d]\nz = 1\n", "a.b"),
        ("[a.b]\nx = 1\n[a.b.c]\ny = 1\n", "a.b"),
    ],
)
def test_the_last_setting_of_a_table_can_be_removed(text: str, key: str) -> None:
    assert all(line in written(text, edit(key, None)) for line in text.splitlines() if "#" in line)


def table(n: int, level: str = "trusted") -> str:
    return f'[projects."/p{n}"] # {n}\ntrust_level = "{level}"\n'


MANY = 'model = "m" # kept\n\n' + "\n".join(map(table, range(200)))


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (edit("model", "n"), 'model = "m" # kept', 'model = "n" # kept'),
        (edit("review_model", "n"), "# kept\n", '# kept\nreview_model = "n"\n'),
        (edit("model", None), 'model = "m" # kept\n', ""),
        (edit('projects."/p7".trust_level', "untrusted"), table(7), table(7, "untrusted")),
        (edit('projects."/p9".new', 1), table(9), table(9) + "new = 1\n"),
        (edit('projects."/p199".new', 1), table(199), table(199) + "new = 1\n"),
    ],
)
def test_an_edit_of_one_table_changes_no_other(change: SettingEdit, before: str, after: str) -> None:
    assert written(MANY, change) == MANY.replace(before, after)


@pytest.mark.parametrize(
    "text",
    [
        "a = [\n  [1],\n  [2],\n]\nx = 1 # kept\n[t]\ny = 1\n",
        'a = """\n[t]\nx = 5\n"""\nx = 1 # kept\n[t]\ny = 1\n',
        't.y = 1\nx = 1 # kept\n[u]\n"[t]" = 1\n',
        '[u]\na = """\n[t]\ny = 1\n"""\n[t] # kept\ny = 1\n',
    ],
)
def test_what_only_looks_like_a_header_is_none(text: str) -> None:
    assert "# kept" in written(text, edit("x", 2))
    changed = written(text, edit("t.y", 2))
    assert "# kept" in changed
    assert changed == text[::-1].replace("y = 1"[::-1], "y = 2"[::-1], 1)[::-1]


def test_a_new_table_has_a_header_of_its_own() -> None:
    text = written("", edit("model_providers.p", {"name": "P", "http_headers": {"a": "b"}}))
    assert text.splitlines()[0] == "[model_providers.p]"


def test_edits_are_made_in_their_order() -> None:
    assert tomli.loads(written("", edit("a", 1), edit("a", None), edit("a.b", 2))) == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("", 1, "keyPath must not be empty"),
        ("  ", 1, "keyPath must not be empty"),
        ("a..b", 1, "keyPath segments must not be empty"),
        (".", 1, "keyPath segments must not be empty"),
        ('a."b', 1, "keyPath is not a key"),
        ('model"]\n[mcp_servers.evil]\ncommand', 1, "keyPath is not a key"),
        ("a", [1, None], "invalid value"),
        ("a", {"b": {"c": None}}, "invalid value"),
        ("a", {"": 1}, "invalid value"),
        ("a", 2**63, "invalid value"),
        (".".join("a" * 33), 1, "keyPath is not a key"),
    ],
)
def test_what_no_setting_can_be_is_refused(key: str, value: Json, problem: str) -> None:
    with pytest.raises(InvalidSettings, match=problem):
        edit(key, value)


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: Json = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(InvalidSettings, match="nested too deeply"):
        edit("a", value)


def test_a_setting_below_a_value_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="cannot set value on non-table parent"):
        edited({"model": "m"}, [edit("model.x", 1)])


def test_the_settings_before_are_left_alone() -> None:
    before = tomli.loads(FILE)
    edited(before, [edit("mcp_servers.x.env.A", "2"), edit("mcp_servers.x", {"args": []}, merge=True)])
    assert before == tomli.loads(FILE)


NAMES = st.sampled_from(["model", "a", "b c", "d.e", "f\ng", "ü", "tools", ""])
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
EDITS = st.lists(
    st.builds(
        SettingEdit, st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.none() | VALUES, st.booleans()
    ),
    max_size=4,
)
LINES = st.sampled_from(
    [
        *("# a remark", "", "[tools]", "[a]", "[a.tools]", "[[tools]]", "[[a.b]]", "['b c'.a]"),
        *("model = 'x' # why", "a = 1", "a.tools = 2", "tools = { a = 1, model = 'y' }", "a = [ 1,", "2 ]"),
        *("model = 2020-01-01", "'d.e' = 1.5", "a = { b = [ { a = 1 } ] }"),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(st.lists(LINES, max_size=12).map("\n".join), EDITS)
def test_any_edit_of_any_file_says_what_was_asked_or_changes_nothing(
    tmp_path: Path, content: str, edits: list[SettingEdit]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    try:
        after = edited(tomli.loads(content), edits)
        rewrite_config(tmp_path, lambda settings: edited(settings, edits))
    except (ConfigError, tomli.TOMLDecodeError):
        assert path.read_text() == content
    else:
        assert tomli.loads(path.read_text()) == after
