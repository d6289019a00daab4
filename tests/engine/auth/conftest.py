"""Fixtures of the credential tests: an issuer on loopback, a clock that stands still, a home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.issuer import Issuer
from app_server.engine.support.lazy import Lazy
from tests.engine.auth.oauth_issuer import NOW, ScriptedIssuer, scripted_issuer


@pytest.fixture
def issuer() -> Iterator[ScriptedIssuer]:
    with scripted_issuer() as server:
        yield server


@pytest.fixture
def auth(tmp_path: Path, issuer: ScriptedIssuer) -> AuthManager:
    client = Issuer(issuer.url, {})
    return AuthManager(tmp_path, clock=lambda: NOW, issuer=Lazy(lambda: client))
