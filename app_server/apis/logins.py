"""Pending logins through the browser. A new login cancels the previous one."""

from __future__ import annotations

from collections.abc import Callable

from anyio.abc import TaskGroup

from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.login import LoginFlow, LoginOutcome, open_login
from app_server.identity import UserAgent
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class OpenLogin:
    id: str
    flow: LoginFlow


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
        self._new_id, self._random = new_id, random
        self._flows: dict[str, LoginFlow] = {}

    async def open(self) -> OpenLogin:
        """Start to listen for the browser. The caller then calls `await_in_background`."""
        for flow in list(self._flows.values()):
            flow.cancel()
        flow = await open_login(self._auth, random=self._random, originator=self._user_agent.originator)
        login = OpenLogin(self._new_id(), flow)
        self._flows[login.id] = flow
        return login

    def await_in_background(self, login: OpenLogin, on_finished: Callable[[LoginOutcome], None]) -> None:
        """Wait for the outcome in the background, and pass it to `on_finished`."""
        self._background.start_soon(self._await, login, on_finished, name="login")

    def cancel(self, id: str) -> bool:
        """False if there is no such pending login."""
        flow = self._flows.get(id)
        if flow is None:
            return False
        flow.cancel()
        return True

    async def _await(self, login: OpenLogin, on_finished: Callable[[LoginOutcome], None]) -> None:
        try:
            outcome = await login.flow.run_login()
        finally:
            self._flows.pop(login.id, None)
        on_finished(outcome)
