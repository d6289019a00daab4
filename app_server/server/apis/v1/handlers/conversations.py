"""Opening conversations, subscribing to their events, user messages and interrupts: parameters become commands of the
engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from app_server.engine.config.config_values import RequestOverrides
from app_server.engine.session import session_commands
from app_server.engine.thread_origin import NewConversation
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route, route_in
from app_server.server.apis.v1.v1_adapter import CONVERSATIONS
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.thread_settings import UNCHANGED, UNSET, SettingsPatch, patch_of
from app_server_protocol.event_items import ImageInput, LocalImageInput, TextInput, UserInput
from app_server_protocol.policy import known_effort
from app_server_protocol.v1 import conversation as wire

if TYPE_CHECKING:
    from app_server_protocol.v1.ops import OverrideTurnContextOp, UserTurnOp


async def new_conversation(
    context: ConnectionContext, params: wire.NewConversationParams
) -> wire.NewConversationResponse:
    context.require_folder(params.cwd)
    config = context.config.load(overrides(params))
    live, opened = await context.conversations.open(context.client, config, NewConversation())
    return wire.NewConversationResponse(
        conversation_id=opened.session.id,
        model=opened.session.facts.config.thread.model,
        reasoning_effort=known_effort(config.thread.effort),
        rollout_path=str(live.rollout_path),
    )


def overrides(params: wire.NewConversationParams) -> RequestOverrides:
    """Read the request's settings as a layer of the configuration."""
    return RequestOverrides(
        patch=patch_of(params),
        settings=params.config or {},
        model_provider=params.model_provider,
        profile=params.profile,
        sandbox=params.sandbox.value if params.sandbox else None,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
        compact_prompt=params.compact_prompt,
        include_apply_patch_tool=params.include_apply_patch_tool,
    )


async def add_conversation_listener(
    conversation: ConversationContext, params: wire.AddConversationListenerParams
) -> AsyncIterator[wire.AddConversationSubscriptionResponse]:
    """Subscribe; events that waited for a listener are sent after the response."""
    context, live = conversation.connection, conversation.live
    id = context.machine.new_id()
    yield wire.AddConversationSubscriptionResponse(subscription_id=id)
    raw = params.experimental_raw_events
    context.conversations.subscribe(context.client, live, id, conversation.api, raw=raw)


async def remove_conversation_listener(
    context: ConnectionContext, params: wire.RemoveConversationListenerParams
) -> None:
    context.conversations.unsubscribe(context.client, params.subscription_id)


TURNS: Final = session_commands.ApiBehaviour(
    names_turn=False,
    skills=False,
    goals=False,
    compacts_at_begin=False,
    relative_diff=False,
    sends_chosen_effort=False,
    checks_pictures=False,
    ghost_commits=True,
    refuses_silent_tools=False,
)
"""Turns as codex 0.58 has them: its clients do not address turns by their ids."""


async def send_user_message(conversation: ConversationContext, params: wire.SendUserMessageParams) -> None:
    await submit_input(conversation, [_input(item) for item in params.items])


async def send_user_turn(conversation: ConversationContext, params: wire.SendUserTurnParams) -> None:
    items = [_input(item) for item in params.items]
    await submit_input(conversation, items, settings(params))


async def interrupt_conversation(
    conversation: ConversationContext, params: wire.InConversation
) -> wire.InterruptConversationResponse:
    """Respond once the running operation has ended; at once if none runs."""
    session = conversation.session
    session.do(session_commands.Interrupt())
    await session.settled()
    return wire.InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def submit_input(
    conversation: ConversationContext,
    items: Sequence[UserInput],
    change: SettingsPatch | None = None,
    output_schema: Json = None,
) -> str:
    """Begin a turn, or add to the running turn; return the id that its events carry. Raises BeyondClientRights."""
    session = conversation.live.session
    kept = UNCHANGED if change is None else session.facts.permitted(change)
    turn_input = await session.prepare_input(items, change=kept, wishes=TURNS) if items else None
    command = session_commands.StartTurn(
        turn_input=turn_input, change=kept, output_schema=output_schema, wishes=TURNS
    )
    return session.turns.start(command, conversation.turn_caller()).operation


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
) -> SettingsPatch:
    """Return the settings that the parameters name; a null effort is the model's own effort, if
    `names_effort` is True.
    """
    return patch_of(given, effort=given.effort if names_effort else UNSET)


def conversation_of(context: ConnectionContext) -> Callable[[wire.InConversation], ConversationContext]:
    """Return the function that finds the open conversation that parameters name, for routes."""

    def find(params: wire.InConversation) -> ConversationContext:
        live = context.conversations.get(params.conversation_id)
        return ConversationContext(context, live, CONVERSATIONS)

    return find


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    conversation = conversation_of(context)
    return (
        route(wire.NEW_CONVERSATION, new_conversation, context),
        route_in(wire.ADD_CONVERSATION_LISTENER, add_conversation_listener, conversation),
        route(wire.REMOVE_CONVERSATION_LISTENER, remove_conversation_listener, context),
        route_in(wire.SEND_USER_MESSAGE, send_user_message, conversation),
        route_in(wire.SEND_USER_TURN, send_user_turn, conversation),
        route_in(wire.INTERRUPT_CONVERSATION, interrupt_conversation, conversation),
    )
