"""An MCP server on loopback that requires a login, and the authorization server that it names. Both record their
requests. They run in threads of their own.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from app_server_protocol.encoding import Json
from tests.support.http_server import HttpHandler, http_server

Answer = tuple[int, Json]


class ProtectedMcpServer:
    def __init__(self) -> None:
        self.url = ""
        """URL of the server on this machine, without a path."""
        self.requests: list[tuple[str, Json]] = []
        self.good_tokens: set[str] = set()
        self.refresh_tokens: dict[str, str] = {}
        self.expires_in: Json = 3600
        self.count = 0
        self.resource_metadata: Json = None
        """Value that replaces the resource metadata. None if the correct metadata is sent."""
        self.server_metadata: dict[str, Json] = {}
        """Fields that replace those of the correct server metadata. A None removes the field."""
        self.tells_metadata = True
        """Whether the challenge of a 401 names the metadata."""
        self.challenge = ""
        """PKCE challenge that the browser sent."""
        self.own_resource = ""
        """Resource that the user names; empty if it is the server's."""
        self.client: tuple[str, str | None] = ("client-1", None)
        """Id and secret of the client that gets tokens; the secret is None for a client without one."""
        self.needs = ""
        """Value of `WWW-Authenticate` with which calls of tools are refused; empty if they are not."""
        self.overrides: dict[str, Callable[[Json], Answer]] = {}
        """Functions of a test that answer the requests to a path."""

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    def asked(self, path: str) -> list[Json]:
        return [fields for asked, fields in self.requests if asked == path]

    def browser(self, authorization_url: str, **over: str) -> str:
        """Return the URL to which a user who agrees is redirected."""
        parts = urlsplit(authorization_url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        self.challenge = query["code_challenge"]
        back = {"code": "the-code", "state": query["state"], "iss": self.url} | over
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def answer(self, method: str, path: str, fields: Json, bearer: str) -> Answer:
        self.requests.append((path, fields))
        if path in self.overrides:
            return self.overrides[path](fields)
        match path:
            case "/mcp" if self.needs and fields.get("method") == "tools/call":
                return 403, {}
            case "/mcp":
                return self._mcp(method, fields) if bearer in self.good_tokens else (401, {})
            case "/.well-known/oauth-protected-resource/mcp" | "/.well-known/oauth-protected-resource":
                right = {
                    "resource": self.mcp_url,
                    "authorization_servers": [self.url],
                    "scopes_supported": ["read"],
                }
                return 200, self.resource_metadata if self.resource_metadata is not None else right
            case "/.well-known/oauth-authorization-server":
                return 200, {
                    key: value for key, value in (self._server() | self.server_metadata).items() if value
                }
            case "/register":
                return 201, {"client_id": "client-1", **fields}
            case "/token":
                return self._token(fields)
            case _:
                return 404, {}

    def _server(self) -> dict[str, Json]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
        }

    def _token(self, fields: Json) -> Answer:
        client = fields.get("client_id"), fields.get("client_secret")
        if fields.get("basic"):
            client = tuple(map(unquote, base64.b64decode(fields["basic"]).decode().split(":")))  # type: ignore[assignment]
        if fields.get("resource") != (self.own_resource or self.mcp_url) or client != self.client:
            return 400, {"error": "invalid_target"}
        if fields["grant_type"] == "authorization_code":
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != self.challenge:
                return 400, {"error": "invalid_grant"}
        elif self.refresh_tokens.pop(fields["refresh_token"], None) is None:
            return 400, {"error": "invalid_grant"}
        self.count += 1
        access, refresh = f"secret-access-{self.count}", f"secret-refresh-{self.count}"
        self.good_tokens = {access}
        self.refresh_tokens[refresh] = access
        return 200, {
            "access_token": access,
            "token_type": "Bearer",
            "refresh_token": refresh,
            "expires_in": self.expires_in,
        }

    def _mcp(self, method: str, message: Json) -> Answer:
        if method != "POST" or "id" not in message:
            return 202 if method == "POST" else 405, None
        results: dict[str, Json] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "called"}]},
        }
        result = results.get(message["method"], {})
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}


@contextmanager
def protected_mcp_server() -> Iterator[ProtectedMcpServer]:
    played = ProtectedMcpServer()

    class Handler(HttpHandler):
        def serve(self) -> None:
            body = self.body().decode()
            is_json = "json" in (self.headers.get("Content-Type") or "")
            fields = (json.loads(body) if is_json else dict(parse_qsl(body))) if body else {}
            if (basic := self.headers.get("Authorization") or "").startswith("Basic "):
                fields["basic"] = basic.removeprefix("Basic ")
            bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            status, answer = played.answer(self.command, self.path.partition("?")[0], fields, bearer)
            headers = {"Content_Type": "application/json"}
            if status == 401:
                place = f"{played.url}/.well-known/oauth-protected-resource/mcp"
                told = f' resource_metadata="{place}"' if played.tells_metadata else ""
                headers["WWW_Authenticate"] = f"Bearer{told}"
            if status == 403:
                headers["WWW_Authenticate"] = played.needs
            self.reply(status, b"" if answer is None else json.dumps(answer).encode(), **headers)

    with http_server(Handler) as played.url:
        yield played
