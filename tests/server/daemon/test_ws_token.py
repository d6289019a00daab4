"""The token of WebSocket clients is made once, kept private, and refused if others could know it."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from app_server.server.daemon.addresses import BadOption
from app_server.server.daemon.listeners import token_digest


def digest(folder: Path, file: Path | None = None, sha256: str | None = None) -> bytes:
    return token_digest(folder, file, sha256, os.urandom)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def private(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_token_is_made_of_32_random_bytes_for_the_user_alone(tmp_path: Path) -> None:
    made = token_digest(tmp_path, None, None, lambda count: bytes([7] * count))
    [file] = tmp_path.iterdir()
    assert file.name == "ws-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert text.strip() == "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
    assert made == sha256(text.strip().encode())


def test_the_next_server_takes_the_same_token(tmp_path: Path) -> None:
    assert digest(tmp_path) == digest(tmp_path)


def test_two_servers_that_start_at_once_agree(tmp_path: Path) -> None:
    """The other server makes its token between the check and the creation of this one."""
    others = []

    def random(count: int) -> bytes:
        others.append(digest(tmp_path))
        return os.urandom(count)

    assert [token_digest(tmp_path, None, None, random)] == others
    assert [each.name for each in tmp_path.iterdir()] == ["ws-token"]


def test_a_named_file_is_taken_instead(tmp_path: Path) -> None:
    file = private(tmp_path / "mine", b" a-token-of-the-user\n")
    assert digest(tmp_path, file) == sha256(b"a-token-of-the-user")
    assert not (tmp_path / "ws-token").exists()


def test_a_sha256_is_taken_as_given(tmp_path: Path) -> None:
    assert digest(tmp_path, sha256=sha256(b"a-token-of-the-user").hex().upper()) == sha256(
        b"a-token-of-the-user"
    )


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "a" * 63, "a" * 65, "a " * 32, "ä" * 64])
def test_what_is_no_sha256_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadOption, match="64 hexadecimal digits"):
        digest(tmp_path, sha256=text)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620, 0o601])
def test_a_file_that_others_have_rights_to_is_refused_and_not_mended(tmp_path: Path, mode: int) -> None:
    for file, named in ((tmp_path / "named", True), (tmp_path / "ws-token", False)):
        private(file, b"a-token", mode)
        with pytest.raises(BadOption, match=f"others have rights to it .*{mode & 0o77:03o}"):
            digest(tmp_path, file if named else None)
        assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = private(tmp_path / "ws-token", b"a-token")
    os.chown(file, 12345, -1)
    with pytest.raises(BadOption, match="belongs to another user"):
        digest(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\nb", "tökén".encode(), b"x" * 5000])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadOption):
        digest(tmp_path, private(tmp_path / "mine", content))


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="does not exist"):
        digest(tmp_path, tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine", 0o600)
    with pytest.raises(BadOption, match="a FIFO"):
        digest(tmp_path, tmp_path / "mine")


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot be written"):
        digest(tmp_path / "nowhere")


def test_a_file_and_a_sha256_are_too_much(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="got both"):
        digest(tmp_path, tmp_path / "mine", "a" * 64)


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="at least 16 characters"):
        digest(tmp_path, private(tmp_path / "mine", b"x\n"))
