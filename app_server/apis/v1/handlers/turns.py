"""User messages and interrupts: parameters become commands of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app_server.apis.router import Route, route
from app_server.apis.services import ServerServices
from app_server.core.session import commands
from protocol.engine.settings import UNCHANGED, UNSET, SettingsChange, or_unset
from protocol.events.turn import TurnAbortReason
from protocol.items import ImageInput, LocalImageInput, TextInput, UserInput
from protocol.structs import Json
from protocol.v1 import conversation as wire
from protocol.v1.conversation import InConversation

if TYPE_CHECKING:
    from app_server.core.caller import Caller
    from app_server.core.session.handle import SessionHandle
    from protocol.v1.ops import OverrideTurnContextOp, UserTurnOp

TURNS: Final = commands.TurnWishes(
    names_turn=False,
    skills=False,
    goals=False,
    compacts_at_begin=False,
    relative_diff=False,
    sends_chosen_effort=False,
    checks_pictures=False,
)
"""Turns are as codex 0.58 has them, whose clients know no turns by their ids."""


async def send_user_message(services: ServerServices, params: wire.SendUserMessageParams) -> None:
    session = services.conversations.get(params.conversation_id).session
    await say(session, services.client.caller, [_input(item) for item in params.items])


async def send_user_turn(services: ServerServices, params: wire.SendUserTurnParams) -> None:
    session = services.conversations.get(params.conversation_id).session
    items = [_input(item) for item in params.items]
    await say(session, services.client.caller, items, settings(params))


async def interrupt_conversation(
    services: ServerServices, params: InConversation
) -> wire.InterruptConversationResponse:
    """Responds once what runs has ended; at once where nothing does."""
    session = services.conversations.get(params.conversation_id).session
    session.do(commands.Interrupt())
    await session.settled()
    return wire.InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def say(
    session: SessionHandle,
    caller: Caller,
    items: Sequence[UserInput],
    change: SettingsChange | None = None,
    output_schema: Json = None,
) -> str:
    """Begin a turn, or add to the one that runs; returns the id that its events carry. Raises BeyondClientRights."""
    kept = UNCHANGED if change is None else session.facts.permitted(change)
    words = await session.words(items, wishes=TURNS) if items else None
    return session.start_turn(words, kept, output_schema, TURNS, caller=caller).operation


def _input(item: wire.InputItem) -> UserInput:
    match item:
        case wire.TextInputItem():
            return TextInput(text=item.data.text)
        case wire.ImageInputItem():
            return ImageInput(image_url=item.data.image_url)
        case wire.LocalImageInputItem():
            return LocalImageInput(path=item.data.path)


def settings(
    given: UserTurnOp | OverrideTurnContextOp | wire.SendUserTurnParams, *, names_effort: bool = True
) -> SettingsChange:
    """Return the settings that are given; null is the model's own effort, where the client names one."""
    return SettingsChange(
        cwd=or_unset(given.cwd),
        approval_policy=or_unset(given.approval_policy),
        sandbox_policy=or_unset(given.sandbox_policy),
        model=or_unset(given.model),
        effort=given.effort if names_effort else UNSET,
        summary=or_unset(given.summary),
    )


def routes(services: ServerServices) -> tuple[Route, ...]:
    return (
        route(wire.SEND_USER_MESSAGE, send_user_message, services),
        route(wire.SEND_USER_TURN, send_user_turn, services),
        route(wire.INTERRUPT_CONVERSATION, interrupt_conversation, services),
    )
