"""auth.json: its form, its mode, and the handling of another object in its place."""

import json
import logging
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.auth.credentials import (
    IdClaims,
    StoredAuth,
    Tokens,
    delete_auth,
    expires_at,
    read_auth,
    read_id_token,
    write_auth,
)
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from tests.engine.auth.oauth_issuer import id_token, jwt

LOGIN = StoredAuth(
    tokens=Tokens(id_token="id", access_token="access", refresh_token="refresh", account_id="acct"),
    last_refresh=datetime(2026, 1, 2, 3, 4, 5, 600, UTC),
)


def test_an_api_key_is_stored_alone_and_private(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{}")
    (tmp_path / "auth.json").chmod(0o644)
    write_auth(tmp_path, StoredAuth(api_key="sk"))
    assert json.loads((tmp_path / "auth.json").read_text()) == {"OPENAI_API_KEY": "sk"}
    assert stat.S_IMODE((tmp_path / "auth.json").stat().st_mode) == 0o600


def test_a_login_has_the_form_that_others_read(tmp_path: Path) -> None:
    write_auth(tmp_path, LOGIN)
    assert json.loads((tmp_path / "auth.json").read_text()) == {
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": "id",
            "access_token": "access",
            "refresh_token": "refresh",
            "account_id": "acct",
        },
        "last_refresh": "2026-01-02T03:04:05.000600Z",
    }
    assert read_auth(tmp_path) == LOGIN


def test_a_time_with_nanoseconds_is_read(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text(
        '{"OPENAI_API_KEY": "k", "last_refresh": "2025-11-20T10:11:12.123456789Z"}'
    )
    stored = read_auth(tmp_path)
    assert stored is not None
    assert stored.last_refresh == datetime(2025, 11, 20, 10, 11, 12, 123457, UTC)


def test_credentials_are_never_written_through_a_link(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere").write_text("x")
    (home / "auth.json").symlink_to(tmp_path / "elsewhere")
    write_auth(home, LOGIN)
    assert (tmp_path / "elsewhere").read_text() == "x"
    assert not (home / "auth.json").is_symlink()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"OPENAI_API_KEY": 7}',
        b'{"tokens": []}',
        b'{"tokens": {"access_token": 1}}',
        b'{"tokens": {}}',
        b'{"last_refresh": "yesterday"}',
        b'{"last_refresh": 1}',
    ],
)
def test_a_damaged_file_is_nobody_logged_in(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "auth.json").write_bytes(content)
    with caplog.at_level(logging.DEBUG):
        assert read_auth(tmp_path) is None
    assert "auth.json cannot be used" in caplog.text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(st.binary(max_size=50) | st.text(alphabet='{}[]":,OPENAI_API_KEYtokens1', max_size=60).map(str.encode))
def test_any_bytes_are_read_without_an_exception(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "auth.json").write_bytes(content)
    assert isinstance(read_auth(tmp_path), StoredAuth | None)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "auth.json")
    assert read_auth(tmp_path) is None


def test_a_home_that_cannot_be_written_is_an_error_without_the_secret(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(AuthError) as caught:
        write_auth(tmp_path / "home", StoredAuth(api_key="hunter2"))
    assert "hunter2" not in str(caught.value)


def test_forgetting(tmp_path: Path) -> None:
    write_auth(tmp_path, LOGIN)
    assert delete_auth(tmp_path) is True
    assert delete_auth(tmp_path) is False


def test_nothing_secret_is_printed() -> None:
    shown = repr(LOGIN) + repr(StoredAuth(api_key="hunter2"))
    for secret in ("access'", "refresh'", "'id'", "hunter2"):
        assert secret not in shown


def test_claims_of_an_id_token() -> None:
    assert read_id_token(id_token()) == IdClaims("user@example.com", "pro", "acct-1")
    profile = {"email": "other@example.com"}
    assert read_id_token(jwt(**{"https://api.openai.com/profile": profile})).email == "other@example.com"


@pytest.mark.parametrize(
    "token", ["", "a", "a.b", "a.b.c", "..", "a.e30.c", "a.W10.c", "a.é.c", "a." + "x" * 99999 + ".c"]
)
def test_what_is_no_token_has_no_claims(token: str) -> None:
    assert read_id_token(token) == IdClaims()
    assert expires_at(token) is None


@pytest.mark.parametrize(
    ("exp", "end"),
    [(5, 5.0), (5.5, 5.5), ("5", None), (True, None), (None, None), (1e300, None), (float("nan"), None)],
)
def test_the_expiry_of_a_token_is_read_from_its_claims(exp: Json, end: float | None) -> None:
    assert expires_at(jwt(exp=exp)) == end
