"""Pending logins. A new login cancels the previous one for the same purpose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.core.auth.auth_manager import AuthManager, LoginOutcome
from app_server.core.lazy import Lazy
from app_server.identity import UserAgent

if TYPE_CHECKING:
    from app_server.core.auth.login import DeviceLoginFlow, LoginFlow

ACCOUNT = ""
"""The purpose of a login at the model's provider; others are named by whom they are for."""


class PendingLogin(Protocol):
    """One attempt, which is run once."""

    async def run_login(self, limit_seconds: float = ...) -> LoginOutcome: ...

    def cancel(self) -> None: ...

    async def close(self) -> None: ...


Flow = TypeVar("Flow", bound=PendingLogin)


class OpenLogin(Struct, Generic[Flow], frozen=True):
    id: str
    flow: Flow
    purpose: str = ACCOUNT


class Logins:
    """The pending logins of one server."""

    def __init__(
        self,
        auth: AuthManager,
        user_agent: UserAgent,
        background: TaskGroup,
        *,
        new_id: Callable[[], str],
        random: Callable[[int], bytes],
    ) -> None:
        self._auth, self._user_agent, self._background = auth, user_agent, background
        self._new_id = new_id
        self._pending: dict[str, OpenLogin[PendingLogin]] = {}
        self.random = random

    async def open(self) -> OpenLogin[LoginFlow]:
        """Start to listen for the browser. The caller then calls `await_in_background`."""
        self.end(ACCOUNT)
        flow = await _OPEN_LOGIN.get()(self._auth, random=self.random, originator=self._user_agent.originator)
        return self.add(flow)

    async def open_device(self) -> OpenLogin[DeviceLoginFlow]:
        """Ask for a code. The caller then calls `await_in_background`."""
        self.end(ACCOUNT)
        return self.add(await _OPEN_DEVICE_LOGIN.get()(self._auth))

    def add(self, flow: Flow, purpose: str = ACCOUNT) -> OpenLogin[Flow]:
        login = OpenLogin(self._new_id(), flow, purpose)
        self._pending[login.id] = OpenLogin(login.id, flow, purpose)
        return login

    def end(self, purpose: str) -> None:
        """Cancel the pending login for this purpose."""
        for login in self._pending.values():
            if login.purpose == purpose:
                login.flow.cancel()

    def await_in_background(
        self,
        login: OpenLogin[Flow],
        on_finished: Callable[[LoginOutcome], None],
        limit_seconds: float | None = None,
    ) -> None:
        """Wait for the outcome in the background, and pass it to `on_finished`. None: as long as such a login takes."""
        self._background.start_soon(self._await, login, on_finished, limit_seconds, name="login")

    def cancel(self, id: str) -> bool:
        """False if there is no such pending login."""
        login = self._pending.get(id)
        if login is None:
            return False
        login.flow.cancel()
        return True

    async def _await(
        self,
        login: OpenLogin[Flow],
        on_finished: Callable[[LoginOutcome], None],
        limit_seconds: float | None,
    ) -> None:
        try:
            flow = login.flow
            outcome = await (flow.run_login() if limit_seconds is None else flow.run_login(limit_seconds))
        finally:
            self._pending.pop(login.id, None)
        on_finished(outcome)


class _OpenBrowserLogin(Protocol):
    async def __call__(
        self, auth: AuthManager, *, random: Callable[[int], bytes], originator: str
    ) -> LoginFlow: ...


def _load_open_login() -> _OpenBrowserLogin:
    """Most servers are logged in already."""
    from app_server.core.auth.login import open_login  # noqa: PLC0415

    return open_login


def _load_open_device_login() -> Callable[[AuthManager], Awaitable[DeviceLoginFlow]]:
    from app_server.core.auth.login import open_device_login  # noqa: PLC0415

    return open_device_login


_OPEN_LOGIN = Lazy(_load_open_login)
_OPEN_DEVICE_LOGIN = Lazy(_load_open_device_login)
