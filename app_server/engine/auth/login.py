"""ChatGPT logins, in the browser of this machine or with a code that the user types into a page on another device; and
logins at MCP servers in the browser, by MCP's specification of authorization.

Steps of a browser login: listen on a loopback port, return the URL, wait for the callback, exchange the code, store the
tokens. For an MCP server, the authorization server is found first, and this program is registered there. The owner
opens a flow, sends the URL or the code to the client, and runs the flow in a separate task: `run_login` always returns
an outcome. One flow is one attempt.
"""

from __future__ import annotations

import errno
import hmac
import logging
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream
from msgspec import Struct

from app_server.engine.auth import browser, oauth_client
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import AuthMethod, LoginOutcome, require_login_allowed
from app_server.engine.auth.issuer import DeviceCode, DeviceGrant
from app_server.engine.auth.mcp_tokens import McpTokens, tokens_of, write_mcp_tokens
from app_server.engine.auth.oauth_http import OAuthHttp
from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpLoginSettings
from app_server.engine.support.engine_errors import AuthError, IssuerUnreachable
from app_server.engine.support.worker_threads import run_in_thread

PORTS = (1455, 1457, 0)
"""Ports for the callback, in the order of attempts. The issuer knows the first two; 0 stands for any free port, for
issuers that accept it.
"""

CONNECTION_SECONDS = 10.0
"""Timeout of a connection to the port, in seconds. Browsers keep unused connections open, and these must not
accumulate.
"""

NOT_FINISHED = "the login was not finished in time"

logger = logging.getLogger(__name__)


class LoginAttempt:
    """One attempt to log in. Its owner runs it once, or closes it."""

    LIMIT_SECONDS: ClassVar[float]
    """Timeout of a login that the user does not finish, in seconds."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._outcome: LoginOutcome | None = None

    async def run_login(self, limit_seconds: float | None = None) -> LoginOutcome:
        """Wait until the login succeeds, fails, is cancelled or times out."""
        limit = self.LIMIT_SECONDS if limit_seconds is None else limit_seconds
        self._scope.deadline = anyio.current_time() + limit
        try:
            with self._scope:
                await self._run()
        finally:
            await self.close()
        return self._outcome or LoginOutcome(False, NOT_FINISHED)

    def cancel(self) -> None:
        """End the attempt without a login, from any task. A login that is already stored stays."""
        self._decide(LoginOutcome(False, browser.CANCELLED))
        self._scope.cancel()

    async def close(self) -> None:
        """Release the resources of an attempt that is never run; `run_login` releases them itself."""

    async def _run(self) -> None:
        raise NotImplementedError

    def _decide(self, outcome: LoginOutcome) -> None:
        """Record the outcome, unless there is one already."""
        if self._outcome is None:
            self._outcome = outcome


class LoginFlow(LoginAttempt):
    """A login in the browser of this machine."""

    LIMIT_SECONDS = 600.0

    def __init__(
        self,
        listener: Listener[SocketStream],
        port: int,
        state: str,
        auth_url: str,
        redeem: Callable[[browser.Granted], Awaitable[None]],
        path: str = browser.CALLBACK_PATH,
    ) -> None:
        """Begin a login. `redeem` exchanges the code from the browser for a login and stores it; it raises
        AuthError. `path` is that of the callback.
        """
        super().__init__()
        self.auth_url = auth_url
        self.port = port
        self._listener, self._state, self._redeem, self._path = listener, state, redeem, path
        self._ended = anyio.Event()
        self._claimed = False

    async def open_browser(self) -> bool:
        """Open the address in the user's browser; return False if there is no browser."""
        return await run_in_thread(webbrowser.open, self.auth_url, abandon_on_cancel=True)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._listener.aclose()

    async def _run(self) -> None:
        """Serve the callback until the login is decided."""
        async with anyio.create_task_group() as connections:
            connections.start_soon(self._listener.serve, self._serve)
            await self._ended.wait()
            connections.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(CONNECTION_SECONDS):
                    head = await _read_head(stream)
                response = await self._respond(head)
                with anyio.move_on_after(CONNECTION_SECONDS):
                    await stream.send(response)
            except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                logger.debug("a connection to the login port was given up")
        if self._outcome is not None:
            self._ended.set()

    async def _respond(self, head: bytes) -> bytes:
        """Return the response to one request. Records the outcome if the request decides the login."""
        match browser.read_callback(head, self._state, self._path):
            case browser.NotGranted(status, text, ends):
                if ends is not None:
                    self._decide(LoginOutcome(False, ends))
                return browser.page(status, text)
            case browser.Granted() as granted:
                return await self._finish(granted)

    async def _finish(self, granted: browser.Granted) -> bytes:
        if self._claimed:
            return browser.page(HTTPStatus.BAD_REQUEST, "This login is already being finished.")
        self._claimed = True
        try:
            await self._redeem(granted)
        except AuthError as error:
            self._decide(LoginOutcome(False, str(error)))
            return browser.page(HTTPStatus.BAD_GATEWAY, f"The login failed: {error}")
        self._decide(LoginOutcome(True))
        return browser.page(HTTPStatus.OK, "You are logged in. You may close this window.")


async def open_login(
    auth: AuthManager,
    *,
    random: Callable[[int], bytes],
    originator: str = browser.DEFAULT_ORIGINATOR,
    ports: tuple[int, ...] = PORTS,
) -> LoginFlow:
    """Open a port and make the URL for the browser. Raises AuthError, also if the settings forbid such logins."""
    require_login_allowed(auth.settings, AuthMethod.CHATGPT)
    issuer = auth.issuer.base_url
    listener, port = await listen_for_browser(ports)
    secrets = browser.new_login_secrets(random)
    more = {
        "scope": browser.SCOPE,
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "originator": originator,
    }
    if auth.settings.workspace_id is not None:
        more["allowed_workspace_id"] = auth.settings.workspace_id
    redirect = browser.redirect_uri(port)
    url = browser.authorize_url(f"{issuer}/oauth/authorize", browser.CLIENT_ID, redirect, secrets, more)

    async def redeem(granted: browser.Granted) -> None:
        tokens = await auth.issuer.exchange_code(granted.code, secrets.verifier, redirect)
        auth.store_login(tokens, await auth.issuer.exchange_api_key(tokens.id_token))

    return LoginFlow(listener, port, secrets.state, url, redeem)


async def listen_for_browser(
    ports: tuple[int, ...], host: str = "127.0.0.1"
) -> tuple[Listener[SocketStream], int]:
    """Listen on loopback, on the first free one of these ports. Raises AuthError."""
    host = "127.0.0.1" if host == "localhost" else host
    for port in ports:
        try:
            listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise AuthError(f"no port for the login can be opened: {error.strerror}") from error
        else:
            return listener, listener.extra(SocketAttribute.local_port)
    raise AuthError("no port for the login is free")


async def _read_head(stream: SocketStream) -> bytes:
    """Return the head of a request. A head that is too long is truncated, which makes it an invalid callback."""
    head = b""
    while browser.HEAD_END not in head and len(head) < browser.MAX_HEAD_BYTES:
        head += await stream.receive()
    return head


class DeviceLoginFlow(LoginAttempt):
    """A login with a code that the user types on another device. `open_device_login` creates it."""

    LIMIT_SECONDS = 900.0
    """Validity of the code at the issuer, in seconds."""

    def __init__(self, auth: AuthManager, code: DeviceCode) -> None:
        super().__init__()
        self.verification_url = auth.issuer.device_page
        self.user_code = code.user_code
        self._auth, self._code = auth, code

    async def _run(self) -> None:
        """Poll the issuer until the user has agreed."""
        try:
            await self._finish(await self._granted())
        except AuthError as error:
            self._decide(LoginOutcome(False, str(error)))
        self._decide(LoginOutcome(True))

    async def _granted(self) -> DeviceGrant:
        while True:
            await anyio.sleep(self._code.interval_seconds)
            try:
                grant = await self._auth.issuer.poll_device_code(self._code)
            except IssuerUnreachable as error:
                logger.info("a login with a device code waits: %s", error)
                continue
            if grant is not None:
                return grant

    async def _finish(self, grant: DeviceGrant) -> None:
        if not hmac.compare_digest(browser.code_challenge(grant.verifier).encode(), grant.challenge.encode()):
            raise AuthError("the login server's verifier does not belong to its code")
        issuer = self._auth.issuer
        tokens = await issuer.exchange_code(grant.code, grant.verifier, issuer.device_redirect)
        self._auth.store_login(tokens, None)


async def open_device_login(auth: AuthManager) -> DeviceLoginFlow:
    """Request a code from the issuer. Raises AuthError, also if the settings forbid such logins."""
    require_login_allowed(auth.settings, AuthMethod.CHATGPT)
    return DeviceLoginFlow(auth, await auth.issuer.request_device_code())


OPEN_SECONDS = 60.0
"""Timeout of all requests before the user opens the browser, in seconds."""


class McpLogins(Struct, frozen=True):
    """Logs in at MCP servers, for one home. `clock` returns seconds since 1970."""

    home: Path
    http: OAuthHttp
    clock: Callable[[], float]
    random: Callable[[int], bytes]

    async def open_login(
        self, server: str, transport: McpHttpTransport, scopes: Sequence[str] | None
    ) -> LoginFlow:
        """Return a flow whose `auth_url` the user has to open. `scopes` are the requested scopes; None for those that
        the server names. Raises AuthError.
        """
        if not browser.is_safe_url(transport.url):
            raise AuthError("a login needs a server with encryption, or one of this machine")
        callback = browser.CallbackAddress()
        if transport.login.callback_url is not None:
            try:
                callback = browser.parse_callback_url(transport.login.callback_url)
            except ValueError as error:
                raise AuthError(f"its `oauth.callback_url`: {error}") from None
        with anyio.move_on_after(OPEN_SECONDS):
            return await self._open(server, transport, callback, scopes)
        raise AuthError("who gives tokens for it was not found out in time")

    async def _open(
        self,
        server: str,
        transport: McpHttpTransport,
        callback: browser.CallbackAddress,
        scopes: Sequence[str] | None,
    ) -> LoginFlow:
        url = transport.url
        found = await oauth_client.find_resource(self.http, url)
        expected = transport.login.issuer
        if expected is not None and expected.rstrip("/") != found.issuer.rstrip("/"):
            raise AuthError("it names another authorization server than `oauth.authorization_server_issuer`")
        authorization = await oauth_client.find_authorization_server(self.http, found.issuer, url)
        resource = transport.oauth_resource or found.resource
        listener, port = await listen_for_browser((callback.port,), callback.host)
        try:
            redirect = callback.url(port)
            client = await self._client(transport.login, authorization, redirect)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
            raise
        secrets = browser.new_login_secrets(self.random)
        asked = authorization.with_offline_access(found.scopes if scopes is None else tuple(scopes))
        more = {"resource": resource} | ({"scope": " ".join(asked)} if asked else {})
        address = browser.authorize_url(
            authorization.authorization_endpoint, client.id, redirect, secrets, more
        )

        async def redeem(granted: browser.Granted) -> None:
            issuer = granted.issuer
            if (issuer is None and authorization.names_issuer) or issuer not in (None, authorization.issuer):
                raise AuthError("the answer comes from another authorization server")
            form = {
                "grant_type": "authorization_code",
                "code": granted.code,
                "redirect_uri": redirect,
                "code_verifier": secrets.verifier,
                "resource": resource,
            }
            answer = await oauth_client.exchange(self.http, authorization.token_endpoint, client, form)
            login = McpTokens(
                server=server,
                url=url,
                client_id=client.id,
                client_secret=client.secret,
                basic_auth=(client.secret is not None and client.in_header) or None,
                access_token="",
                scopes=asked,
                token_endpoint=authorization.token_endpoint,
                resource=resource,
            )
            write_mcp_tokens(self.home, tokens_of(answer, login, self.clock()))

        return LoginFlow(listener, port, secrets.state, address, redeem, callback.path)

    async def _client(
        self, settings: McpLoginSettings, server: oauth_client.AuthorizationServer, redirect: str
    ) -> oauth_client.OAuthClient:
        """Return the client that is registered beforehand, or register one."""
        if settings.client_id:
            return oauth_client.OAuthClient(settings.client_id, settings.client_secret, server.basic_auth)
        return await oauth_client.register(self.http, server, redirect)
