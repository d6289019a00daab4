"""Logins through the browser that are under way. One at a time: a new one ends the one before."""

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
    """Of one server."""

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
        """Listens for the browser from now on; `finish` has to follow."""
        for flow in list(self._flows.values()):
            flow.cancel()
        flow = await open_login(self._auth, random=self._random, originator=self._user_agent.originator)
        login = OpenLogin(self._new_id(), flow)
        self._flows[login.id] = flow
        return login

    def finish(self, login: OpenLogin, done: Callable[[LoginOutcome], None]) -> None:
        """Wait for its end in the background; `done` is told how it ended."""
        self._background.start_soon(self._run, login, done, name="login")

    def cancel(self, id: str) -> bool:
        """False where no such login is under way."""
        flow = self._flows.get(id)
        if flow is None:
            return False
        flow.cancel()
        return True

    async def _run(self, login: OpenLogin, done: Callable[[LoginOutcome], None]) -> None:
        try:
            outcome = await login.flow.run_login()
        finally:
            self._flows.pop(login.id, None)
        done(outcome)
