"""What may lie at config.toml, and what is said about it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.core.config.load import load_config
from app_server.core.config.safe_file import UnreadableFileError, read_regular_file, write_file_atomically
from app_server.core.config.toml_file import read_config_file
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.errors import ConfigError
from protocol.base import Json


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
        (b"\xff\xfea\x00", "config.toml:1:1:"),
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


def load(home: Path, config_map: dict[str, Json] | None = None) -> Config:
    request = RequestOverrides(settings=config_map or {})
    return load_config(home, cwd=home, cli=CliOverrides(), request=request, env={})


def assert_config_or_error(home: Path, config_map: dict[str, Json]) -> None:
    problem = ""
    try:
        assert isinstance(load(home, config_map), Config)
    except ConfigError as error:
        problem = str(error)
    assert not problem or problem.startswith(("failed to load configuration: ", "error deriving config: "))
    assert "\n" not in problem


TOML_WORDS = rb"""
    model profile profiles mcp_servers features projects tools otel exporter sandbox_mode notify history
    [ ] [[ ]] { } = . , " ' # 1 -1 true nan inf 1979-05-27 command x \u0000
"""
WORDS = [*TOML_WORDS.split(), b"\n", b" ", b"\xc3"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(WORDS), max_size=40).map(b"".join)))
def test_any_bytes_give_a_config_or_a_config_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    assert_config_or_error(tmp_path, {})


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
    assert_config_or_error(tmp_path, config_map)


WRITER = """
import os, signal, sys
from pathlib import Path
from app_server.core.config.safe_file import write_file_atomically
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
