"""Usage of a ChatGPT account: the request to its service, and the parsing of the answer."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app_server.engine.auth import credentials
from app_server.engine.auth.account_usage import ask_usage
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import StoredAuth, Tokens
from app_server.engine.auth.usage_limits import AccountUsage, Credits, Limit, UsageWindow, read_usage
from app_server.engine.config.config_values import LoginSettings
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace
from tests.engine.auth.oauth_issuer import NOW, id_token
from tests.support.http_server import HttpHandler, http_server

ANSWER: Json = {
    "plan_type": "pro",
    "rate_limit": {
        "allowed": True,
        "primary_window": {"used_percent": 42, "limit_window_seconds": 18000, "reset_at": 1893456000},
        "secondary_window": None,
    },
    "credits": {"has_credits": True, "unlimited": False, "balance": "9.99"},
    "additional_rate_limits": [
        {
            "limit_name": "Others",
            "metered_feature": "codex_other",
            "rate_limit": {"secondary_window": {"used_percent": 7.6, "limit_window_seconds": 61}},
        },
        {"metered_feature": 5},
        "nothing",
    ],
}


class Service:
    """Account service with its answer, and the headers of its requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[tuple[int, Json]] = [(200, ANSWER)]
        self.asked: list[tuple[str, str | None, str | None]] = []


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()

    class Handler(HttpHandler):
        def serve(self) -> None:
            sent = self.headers
            made.asked.append((self.path, sent["Authorization"], sent["ChatGPT-Account-Id"]))
            status, answer = made.answers.pop(0)
            self.reply(status, json.dumps(answer).encode())

    with http_server(Handler) as made.url:
        yield made


@pytest.fixture
def logged_in(auth: AuthManager, service: Service, tmp_path: Path) -> AuthManager:
    tokens = Tokens(id_token=id_token(), access_token="access-0", refresh_token="r", account_id="acct-1")
    credentials.write_auth(tmp_path, StoredAuth(tokens=tokens, last_refresh=datetime.fromtimestamp(NOW, UTC)))
    auth.settings = replace(LoginSettings(), chatgpt_url=f"{service.url}/backend-api/")
    return auth


async def test_the_usage_is_asked_with_the_login(logged_in: AuthManager, service: Service) -> None:
    usage = await ask_usage(logged_in, {})
    assert service.asked == [("/backend-api/wham/usage", "Bearer access-0", "acct-1")]
    assert usage == AccountUsage(
        plan="pro",
        limits=(
            Limit("codex", None, UsageWindow(42, 300, 1893456000), None),
            Limit("codex_other", "Others", None, UsageWindow(8, 2, None)),
        ),
        credits=Credits(has_credits=True, unlimited=False, balance="9.99"),
    )


async def test_a_login_that_is_refused_is_renewed_once(logged_in: AuthManager, service: Service) -> None:
    service.answers = [(401, {}), (200, ANSWER)]
    assert (await ask_usage(logged_in, {})).plan == "pro"
    assert [bearer for _, bearer, _ in service.asked] == ["Bearer access-0", "Bearer access-2"]


@pytest.mark.parametrize(("status", "answer"), [(500, ANSWER), (200, {"plan_type": "pro"}), (200, [1])])
async def test_a_service_that_does_not_say_it_is_an_error_without_its_words(
    logged_in: AuthManager, service: Service, status: int, answer: Json
) -> None:
    service.answers = [(status, answer)]
    with pytest.raises(AuthError, match="does not say how much is used up") as raised:
        await ask_usage(logged_in, {})
    assert "9.99" not in str(raised.value)


async def test_a_key_is_never_sent_there(auth: AuthManager, service: Service) -> None:
    auth.settings = LoginSettings(chatgpt_url=service.url)
    auth.login_with_api_key("sk-mine")
    with pytest.raises(AuthError, match="nobody is logged in with ChatGPT"):
        await ask_usage(auth, {})
    assert service.asked == []


@pytest.mark.parametrize(
    "window",
    [
        {},
        {"used_percent": "5"},
        {"used_percent": -1},
        {"used_percent": True},
        {"used_percent": float("nan")},
        [],
    ],
)
def test_a_window_that_cannot_be_read_is_none(window: Json) -> None:
    usage = read_usage({"rate_limit": {"primary_window": window}})
    assert usage is not None
    assert usage.limits[0].primary is None
