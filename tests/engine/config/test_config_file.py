"""Contents of config.toml, and its errors with line and column."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tomli
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.config.config_values import CliOverrides, Config, RequestOverrides
from app_server.engine.config.safe_file import UnreadableFileError, read_regular_file, write_file_atomically
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.config.toml_file import MAX_CHARACTERS, Key, find_keys, read_config_file
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from tests.engine.config.homes import load


def test_a_missing_file_and_a_missing_home_say_nothing(tmp_path: Path) -> None:
    assert read_config_file(tmp_path) == {}
    assert read_config_file(tmp_path / "gone") == {}


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b'model = "x"\nmodel = [\n', "config.toml:"),
        (b'model = "x"\nmodel = "y"\n', "config.toml:2:"),
        (b'model = "x"\nname = "\xff"\n', "config.toml:2:9: the text is not valid UTF-8"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"a = " + b"1" * 5000, "out of range"),
        (b"\xff\xfea\x00", "config.toml:1:2:"),
    ],
)
def test_an_error_says_where(tmp_path: Path, content: bytes, where: str) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config_file(tmp_path)
    assert str(caught.value).startswith(f"failed to load configuration: {tmp_path}/config.toml")
    assert where in str(caught.value)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b'\xef\xbb\xbfmodel = "x"\r\n')
    assert read_config_file(tmp_path) == {"model": "x"}


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for kind in ("folder", "fifo", "dangling"):
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / "gone")
        with pytest.raises(
            ConfigError, match=r"^failed to load configuration: .*config\.toml cannot be read: "
        ):
            read_config_file(tmp_path)
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_device_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_config_file(tmp_path)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text('model = "x"')
    (tmp_path / "config.toml").symlink_to("real")
    assert read_config_file(tmp_path) == {"model": "x"}


def test_a_file_may_have_the_limit_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    assert read_regular_file(path, 100) == b"x" * 100
    with pytest.raises(UnreadableFileError, match="larger than 99 bytes"):
        read_regular_file(path, 99)


def test_an_edit_of_the_same_length_in_the_same_instant_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('model = "a"')
    before = path.stat()
    assert read_config_file(tmp_path)["model"] == "a"
    path.write_text('model = "b"')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_config_file(tmp_path)["model"] == "b"


def test_an_unchanged_file_is_parsed_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "a"')
    assert read_config_file(tmp_path) is read_config_file(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "d"
    target.mkdir()
    (target / "keep").write_text("x")
    with pytest.raises(OSError, match="d"):
        write_file_atomically(target, b"new", 0o600)
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOWN_KEYS = """
    model model_provider model_providers model_context_window approval_policy sandbox_mode notify profile
    sandbox_workspace_write sandbox_workspace_write.writable_roots shell_environment_policy mcp_servers
    profiles mcp_servers.x mcp_servers.x.command mcp_servers.x.startup_timeout_sec features features.x tools
    history otel tools.web_search otel.exporter projects experimental_instructions_file
    project_doc_fallback_filenames
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KNOWN_KEYS.split()) | st.text(max_size=12), JSON, max_size=4))
def test_any_config_map_gives_a_config_or_a_config_error(tmp_path: Path, config_map: dict[str, Json]) -> None:
    problem = ""
    try:
        assert isinstance(load(tmp_path, request=RequestOverrides(settings=config_map)), Config)
    except ConfigError as error:
        problem = str(error)
    assert not problem or problem.startswith(("failed to load configuration: ", "error deriving config: "))
    assert "\n" not in problem


WRITER = """
import os, signal, sys
from pathlib import Path
from app_server.engine.config.safe_file import write_file_atomically
sync = os.fsync
def end_or_stop(descriptor):
    os.fsync = sync
    os.kill(os.getpid(), int(sys.argv[2]))
os.fsync = end_or_stop
write_file_atomically(Path(sys.argv[1]), b"of the other", 0o600)
"""


def test_what_a_kill_left_beside_a_file_is_removed_by_the_next_write(tmp_path: Path) -> None:
    path, other = tmp_path / "config.toml", tmp_path / ".config.toml.swp"
    other.touch()
    killed = subprocess.run((sys.executable, "-c", WRITER, str(path), str(int(signal.SIGKILL))), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    write_file_atomically(path, b"mine", 0o600)
    assert {each.name for each in tmp_path.iterdir()} == {"config.toml", other.name}
    assert path.read_bytes() == b"mine"


def test_the_next_write_leaves_a_writer_alone_that_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    writer = subprocess.Popen((sys.executable, "-c", WRITER, str(path), str(int(signal.SIGSTOP))))
    try:
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        write_file_atomically(path, b"mine", 0o600)
        assert len(list(tmp_path.iterdir())) == 2
        writer.send_signal(signal.SIGCONT)
        assert writer.wait(60) == 0
    finally:
        writer.kill()
        writer.wait()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"config.toml": b"of the other"}


ODD = '''\
# model = 0
note = """
model = 1 ["{
""" # not here
'a.b' . c = [ "]", # ]
  { d = 1, "e" = { f = 2 } }, { d = 3 },
]
when = 1979-05-27 07:32:00
model = 5

[ tables . "with dot." ]
"\\u006dodel" = 1
x = { model.y = '}' }
[[many]]
last = 1
'''


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (("note",), (2, 1)),
        (("a.b", "c"), (5, 1)),
        (("a.b", "c", "d"), (6, 5)),
        (("a.b", "c", "e", "f"), (6, 20)),
        (("model",), (9, 1)),
        (("tables", "with dot."), (11, 3)),
        (("tables", "with dot.", "model"), (12, 1)),
        (("tables", "with dot.", "x", "model", "y"), (13, 7)),
        (("many", "last"), (15, 1)),
        (("last",), None),
        (("d",), None),
    ],
)
def test_a_key_is_found_where_it_is_written(key: Key, place: tuple[int, int] | None) -> None:
    tomli.loads(ODD)
    assert find_keys(ODD, [key]).get(key) == place


def test_in_a_file_that_nobody_wrote_by_hand_nothing_is_looked_for() -> None:
    assert find_keys("a = 1\n" + "#" * MAX_CHARACTERS, [("a",)]) == {}


VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def keys_of(table: Mapping[str, Json], above: Key = ()) -> Iterator[Key]:
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from keys_of(value, (*above, name))


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_every_key_of_every_text_is_found(table: dict[str, Json]) -> None:
    text = tomlkit.dumps(table)
    try:
        written = tomli.loads(text)
    except ValueError:
        return  # these are the writer's own errors
    for key in keys_of(written):
        assert find_keys(text, [key]), (key, text)


def problem(home: Path, text: str, cli: CliOverrides | None = None, **request: Json) -> str:
    with pytest.raises(ConfigError) as caught:
        load(home, text, cli, RequestOverrides(settings=request))
    return str(caught.value).replace(str(home), "HOME")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("approval_policy = 5\n", "HOME/config.toml:1:1: `approval_policy` must be a string, not an integer"),
        (
            "\ufeff# é\n  sandbox_mode = 'none'\n",
            "HOME/config.toml:2:3: `sandbox_mode` must be one of `read-only`, `workspace-write`, "
            "`danger-full-access`, not 'none'",
        ),
        (
            "profile = 'p'\nmodel = 'm'\n[profiles.p]\nsandbox_mode = 3\n",
            "HOME/config.toml:4:1: `sandbox_mode` must be a string, not an integer",
        ),
        ("profile = 3\n", "HOME/config.toml:1:1: `profile` must be a string"),
    ],
)
def test_a_config_error_names_file_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text) == f"error deriving config: {said}"


def test_what_another_layer_says_has_no_place(tmp_path: Path) -> None:
    wrong = "error deriving config: `model` must be a string, not an integer"
    assert problem(tmp_path, "model = 1\n", model=3) == wrong
    assert problem(tmp_path, "", CliOverrides(settings=(("model", "3"),))) == wrong
    not_a_key = problem(tmp_path, "model = 1\n", CliOverrides(settings=(("..", "3"),)))
    assert not_a_key == "error deriving config: '..' is not a key that settings can have"


def test_saved_settings_have_places_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("\n[history]\npersistence = 'x'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml:3:1: `history\.persistence` must be"):
        UserSettings(home=tmp_path, cwd=tmp_path).file.saved()
