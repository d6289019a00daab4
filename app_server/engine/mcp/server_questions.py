"""The answers of this client to a server's questions, in both eras: the user's answers to forms, and the roots.

Few forms are open at once; more are declined. The time limits of waiting requests stand still while the user is asked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from pathlib import Path
from typing import Final

import anyio

from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.runtime_interface import Elicit, ElicitationRequest, ElicitationResult
from app_server.engine.support.engine_errors import CoreError
from app_server_protocol.encoding import Json

log = logging.getLogger(__name__)

ROOTS: Final = "roots/list"
FORM: Final = "elicitation/create"
DECLINED: Final = {"action": "decline"}


class TimeLimit:
    """Time limit of one request, which stands still while the user is asked."""

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.move_on_after(seconds)
        self._pauses = 0
        self._left = 0.0

    def pause(self) -> None:
        if self._pauses == 0:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self.scope.deadline = anyio.current_time() + self._left


class ServerQuestions:
    """The questions of one server."""

    def __init__(self, server: str, elicit: Elicit | None, roots: tuple[str, ...]) -> None:
        """`elicit` is None if nobody can be asked. `roots` are folders that are revealed to the server on request."""
        self._server, self._elicit, self._roots = server, elicit, roots
        self._open = 0

    @property
    def offered(self) -> Collection[str]:
        """The methods that this client offers to answer."""
        return {name for name, is_offered in ((FORM, self._elicit), (ROOTS, self._roots)) if is_offered}

    @property
    def capabilities(self) -> Json:
        """The same as capabilities for the server."""
        return {method.partition("/")[0]: {} for method in sorted(self.offered)}

    def reaches_user(self, params: Json) -> bool:
        """Return whether an elicitation reaches the user: it is a form, and few others are open."""
        mode = params.get("mode", "form") if isinstance(params, dict) else "form"
        has_room = self._open < mcp_errors.MAX_OPEN_ELICITATIONS
        return self._elicit is not None and mode == "form" and has_room

    async def answer(self, limits: Collection[TimeLimit], method: str, params: Json) -> Json:
        """Return the answer to a question of a method that is offered. `limits` pause while the user is asked."""
        return self.roots() if method == ROOTS else await self.ask_user(limits, params)

    def roots(self) -> Json:
        return {"roots": [{"uri": Path(root).as_uri(), "name": Path(root).name} for root in self._roots]}

    async def ask_user(self, limits: Collection[TimeLimit], params: Json) -> Json:
        """Return the user's answer to an elicitation. The limits pause until then."""
        if self._elicit is None or not self.reaches_user(params):
            return DECLINED
        self._open += 1
        for limit in limits:
            limit.pause()
        try:
            result = await self._request(params if isinstance(params, dict) else {}, self._elicit)
        finally:
            self._open -= 1
            for limit in limits:
                limit.resume()
        accepted = result.action == "accept"
        return {"action": result.action} | ({"content": result.content or {}} if accepted else {})

    async def _request(self, params: Json, elicit: Elicit) -> ElicitationResult:
        message = str(params.get("message", ""))[: mcp_errors.MAX_ERROR_CHARS]
        try:
            return await elicit(ElicitationRequest(self._server, message, params.get("requestedSchema")))
        except CoreError as error:
            log.warning("an elicitation of MCP server %s failed: %s", self._server, error)
            return ElicitationResult("cancel")
