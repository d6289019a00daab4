"""Requests of the new era that a server answers with questions: `input_required`.

The client answers each question and sends the request again, with the answers and the server's own state. A server may
do so a limited number of times, and only for calls of tools and resources. An answer is sent once. Nobody is asked
before all questions of a result are known to be answerable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import anyio
from msgspec import Struct

from app_server.engine.mcp import mcp_errors
from app_server_protocol.encoding import Json

ASKING_METHODS: Final = frozenset({"tools/call", "resources/read"})
STATE_ONLY_SECONDS = 0.1
"""Delay before a request is sent again if its server asked nothing, in seconds."""

Send = Callable[[Json], Awaitable[Json]]
Respond = Callable[[str, Json], Awaitable[Json]]


class UnusableResult(Exception):
    """A result that ends the request. The text says why."""


class InputRequired(Struct, frozen=True):
    """A result that asks for input."""

    questions: Mapping[str, Json]
    """Requests to the client, by the server's keys."""
    state: str | None
    """State that the server wants back; None if it sent none."""


async def complete(
    method: str, params: Json, send: Send, respond: Respond, answerable: Collection[str]
) -> Json:
    """Return the complete result of a request. `send` sends parameters and returns a result, `respond` answers one
    question by its method and parameters, and `answerable` are the methods of questions that this client offers to
    answer. Raises UnusableResult.
    """
    result = await send(params)
    for _ in range(mcp_errors.MAX_ROUNDS):
        required = read_result(method, result)
        if required is None:
            return result
        if any(question["method"] not in answerable for question in required.questions.values()):
            raise UnusableResult("the server asks for what this client does not offer")
        if not required.questions:
            await anyio.sleep(STATE_ONLY_SECONDS)
        answers = {
            key: await respond(question["method"], question.get("params"))
            for key, question in required.questions.items()
        }
        again = {**params}
        if answers:
            again["inputResponses"] = answers
        if required.state is not None:
            again["requestState"] = required.state
        result = await send(again)
    if read_result(method, result) is None:
        return result
    raise UnusableResult(f"the server asked for input in more than {mcp_errors.MAX_ROUNDS} rounds")


def read_result(method: str, result: Json) -> InputRequired | None:
    """Return the questions of a result; None if the result is complete. Raises UnusableResult."""
    kind = result.get("resultType") if isinstance(result, dict) else None
    if kind in (None, "complete"):
        return None
    if kind != "input_required" or method not in ASKING_METHODS:
        raise UnusableResult(mcp_errors.UNEXPECTED)
    questions, state = result.get("inputRequests"), result.get("requestState")
    questions = {} if questions is None else questions
    if (
        not isinstance(questions, dict)
        or not all(_is_request(question) for question in questions.values())
        or not (state is None or isinstance(state, str))
        or (not questions and state is None)
    ):
        raise UnusableResult(mcp_errors.UNEXPECTED)
    if len(questions) > mcp_errors.MAX_INPUTS:
        raise UnusableResult(f"the server asks more than {mcp_errors.MAX_INPUTS} questions at once")
    return InputRequired(questions, state)


def _is_request(question: Json) -> bool:
    return isinstance(question, dict) and isinstance(question.get("method"), str)
