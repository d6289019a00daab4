"""The hooks of a turn as the turn loop sees them: they admit the user's inputs, surround each request, let the turn go
on after its last answer, or end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app_server.engine.model.prompt import Prompt
from app_server.engine.support.engine_errors import ModelError
from app_server.engine.turn.model_call import ModelCall, ModelReply
from app_server.engine.turn.turn_items import TurnInput


class LoopHooks(Protocol):
    """The hooks of a turn, as far as the loop calls them."""

    @property
    def stopped(self) -> bool:
        """Whether the turn ends now, whatever the model wants."""
        ...

    @property
    def guards_input(self) -> bool:
        """Whether the model must not read an input that was not admitted."""
        ...

    async def admit(self, turn_input: TurnInput) -> TurnInput | None:
        """Return an input as the model reads it; None if the model must not read it."""
        ...

    async def before_request(self) -> None: ...

    async def after_request(self, error: str | None) -> None:
        """`error`: text of the failure; None if the request was answered."""
        ...

    async def goes_on(self, last: str | None) -> bool:
        """Return whether the turn goes on after an answer without calls. `last`: its text; None if it has none."""
        ...


async def hooked_request(
    model_call: ModelCall,
    hooks: LoopHooks,
    prompt: Callable[[], Prompt],
    *,
    keeps_messages: bool,
    explain: Callable[[ModelError], ModelError] | None,
) -> ModelReply:
    """Make a request between the hooks about it. Raises ModelError."""
    await hooks.before_request()
    try:
        reply = await model_call.request(prompt, keeps_messages=keeps_messages, explain=explain)
    except ModelError as error:
        await hooks.after_request(str(error))
        raise
    await hooks.after_request(None)
    return reply
