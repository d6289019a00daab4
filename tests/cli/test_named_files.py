"""Files that a command line names. A command may have replaced them."""

import os
from pathlib import Path

import pytest

from app_server.cli.named_files import NamedOutput, new_private_file, read_input
from app_server.engine.support.rooted_fs import RefusedName, TooLarge


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.mark.parametrize("private", [True, False])
def test_a_link_in_the_place_of_an_output_is_replaced(tmp_path: Path, private: bool) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out").symlink_to("victim")
    NamedOutput(tmp_path / "out", private=private).write("text\ud800")
    assert ((tmp_path / "victim").read_text(), (tmp_path / "out").read_text()) == ("mine", "text\\ud800")
    assert not (tmp_path / "out").is_symlink()


def test_an_output_is_the_users_alone_or_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    (tmp_path / "out").chmod(0o666)
    NamedOutput(tmp_path / "out").write("x")
    assert mode(tmp_path / "out") == 0o666
    NamedOutput(tmp_path / "out", private=True).write("x")
    assert mode(tmp_path / "out") == 0o600


def test_a_folder_that_becomes_a_link_leads_an_output_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    out = NamedOutput(tmp_path / "a" / "out")
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "a").symlink_to("b")
    out.write("x")
    assert (os.listdir(tmp_path / "b"), os.listdir(tmp_path / "c")) == ([], ["out"])


def test_nothing_is_written_to_a_pipe_in_the_place_of_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedName):
        NamedOutput(tmp_path / "pipe")
    with pytest.raises(RefusedName):
        new_private_file(str(tmp_path / "pipe"))


def test_devices_are_used_as_they_are(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    NamedOutput(Path(f"/dev/fd/{writing}")).write("through a pipe")
    os.close(writing)
    assert read_input(Path(f"/dev/fd/{reading}")) == b"through a pipe"
    os.close(reading)


def test_an_input_is_bounded_and_no_credential_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("secret")
    (tmp_path / "link").symlink_to("auth.json")
    (tmp_path / "long").write_bytes(b"x" * 11)
    with pytest.raises(RefusedName):
        read_input(tmp_path / "link", home=tmp_path)
    with pytest.raises(TooLarge):
        read_input(tmp_path / "long", most=10)
    assert read_input(tmp_path / "long", most=11) == b"x" * 11
