"""An OAuth issuer on loopback that records its requests. It runs in a thread of its own."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread

from app_server.engine.auth.browser import code_challenge
from app_server_protocol.encoding import Json
from tests.support.http_server import HttpHandler, http_server

NOW = 1_800_000_000.0
"""Fixed time of the clock in these tests, in seconds since 1970."""


def jwt(**claims: Json) -> str:
    """Return an unsigned token with these claims."""
    return ".".join((_part({"alg": "none"}), _part(claims), "c2ln"))


def id_token(email: str = "user@example.com", account: str = "acct-1", plan: str = "pro") -> str:
    auth = {"chatgpt_plan_type": plan, "chatgpt_account_id": account}
    return jwt(**{"email": email, "https://api.openai.com/auth": auth})


def _part(value: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class ScriptedIssuer:
    """Issuer that answers token requests, and records each request as its path and its fields."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.login: tuple[int, Json] = (
            200,
            {"id_token": id_token(), "access_token": "access-1", "refresh_token": "refresh-1"},
        )
        self.api_key: tuple[int, Json] = (403, {"error": {"code": "no_organization"}})
        self.renewal: tuple[int, Json] = (
            200,
            {"id_token": id_token(), "access_token": "access-2", "refresh_token": "refresh-2"},
        )
        self.usage: tuple[int, Json] = (
            200,
            {"rate_limit": {"primary_window": {"used_percent": 42, "limit_window_seconds": 18000}}},
        )
        """Answer of the account service, which has another address in reality."""
        self.device: tuple[int, Json] = (
            200,
            {"device_auth_id": "device-1", "user_code": "ABCD-1234", "interval": "0.01"},
        )
        self.device_polls: list[tuple[int, Json]] = []
        """Answers to the first device polls. After them the user has agreed."""
        self.gate = Event()
        """Gate that token answers wait for. It is open unless a test closes it."""
        self.gate.set()
        self.asked = Event()
        """Event that is set when the first request has arrived, before it is answered."""
        self.challenge = ""
        """PKCE challenge. If it is set, a login code is only accepted with the matching verifier."""

    def fields(self, grant_type: str) -> list[dict[str, str]]:
        return [fields for _, fields in self.requests if fields.get("grant_type", "").endswith(grant_type)]

    async def until_asked(self) -> None:
        assert await anyio.to_thread.run_sync(self.asked.wait, 5)

    def answer(self, path: str, fields: dict[str, str]) -> tuple[int, Json]:
        self.requests.append((path, fields))
        self.asked.set()
        self.gate.wait(10)
        if path == "/backend-api/wham/usage":
            return self.usage
        if path == "/oauth/revoke":
            return 200, {}
        if path.endswith("/deviceauth/usercode"):
            return self.device
        if path.endswith("/deviceauth/token"):
            if self.device_polls:
                return self.device_polls.pop(0)
            self.challenge = self.challenge or code_challenge("the-verifier")
            granted = {"authorization_code": "the-code", "code_verifier": "the-verifier"}
            return 200, {**granted, "code_challenge": self.challenge}
        match fields.get("grant_type"):
            case "authorization_code":
                digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
                proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if self.challenge not in ("", proof):
                    return 400, {"error": "invalid_grant"}
                return self.login
            case "refresh_token":
                return self.renewal
            case _:
                return self.api_key


@contextmanager
def scripted_issuer() -> Iterator[ScriptedIssuer]:
    issuer = ScriptedIssuer()

    class Handler(HttpHandler):
        def serve(self) -> None:
            body = self.body().decode()
            is_json = "json" in (self.headers["Content-Type"] or "")
            status, answer = issuer.answer(self.path, json.loads(body) if is_json else dict(parse_qsl(body)))
            self.reply(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with http_server(Handler) as issuer.url:
        try:
            yield issuer
        finally:
            issuer.gate.set()
