"""Prompts: the user's input, slash commands included."""

from __future__ import annotations

import anyio

from app_server.engine.session.session_commands import ClientTask, Compact, Review, Undo
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.turn_items import TurnInput
from app_server.server.apis.acp import session_hooks, session_rewind
from app_server.server.apis.acp.acp_commands import (
    INIT_PROMPT,
    BadArguments,
    Builtin,
    BuiltinCommand,
    PromptCommand,
    review_request,
)
from app_server.server.apis.acp.acp_session import AcpSession, sessions_of
from app_server.server.apis.acp.formatting import one_line
from app_server.server.apis.acp.inbound import all_text, engine_inputs, first_text
from app_server.server.apis.acp.prompt_turns import AwaitedTurn, PendingPrompt
from app_server.server.apis.contexts import ConnectionContext
from app_server_protocol.acp.sessions import (
    ContentBlock,
    PromptRequest,
    PromptResponse,
    SteeringOutcome,
    SteeringResponse,
    StopReason,
    TextBlock,
)
from app_server_protocol.engine.notices import McpToolsListed
from app_server_protocol.rpc_errors import invalid_params
from app_server_protocol.values import replace


def status_text(session: AcpSession) -> str:
    options, usage = session.options, session.adapter.notices.usage
    effort = f" ({options.effort} effort)" if options.effort else ""
    tokens = "none yet" if usage is None else f"{usage[0]} of {usage[1]}"
    lines = (
        ("Model", f"{options.model}{effort}"),
        ("Mode", options.mode),
        ("Working directory", session.cwd),
        ("Tokens in context", tokens),
        ("Session", session.id),
        ("Stored in", str(session.live.rollout_path)),
    )
    return "\n".join(f"- {name}: {value}" for name, value in lines) + "\n"


def servers_text(answer: McpToolsListed) -> str:
    """Return the list of the servers that answered, with their tools; a server that did not start has none."""
    servers: dict[str, list[str]] = {name: [] for name in answer.auth_statuses}
    for qualified, tool in answer.tools.items():
        parts = qualified.split("__")
        name = parts[1] if len(parts) > 2 else qualified
        description = one_line(tool.description or "")
        line = f"  - {tool.name}" + (f": {description}" if description else "")
        servers.setdefault(name, []).append(line)
    if not servers:
        return "No MCP servers are configured.\n"
    out: list[str] = []
    for name, tools in servers.items():
        status = answer.auth_statuses.get(name)
        login = f" (login: {status.value})" if status is not None and status.value != "unsupported" else ""
        out += [f"- {name}{login}", *(tools or ["  - no tools"])]
    return "\n".join(out) + "\n"


MOST_CHARACTERS = 16 * 1024 * 1024


async def prompt(context: ConnectionContext, params: PromptRequest) -> PromptResponse:
    session = sessions_of(context).get(params.session_id)
    if not params.prompt:
        raise invalid_params("prompt is empty", "prompt")
    with session.turns.prompting() as ticket:
        try:
            return await _served(context, session, ticket, params)
        except CoreError:
            if not session.live.session.ended.is_set():
                raise
            return PromptResponse(stop_reason=StopReason.CANCELLED)  # closed while the input was prepared


async def steering(context: ConnectionContext, params: PromptRequest) -> SteeringResponse:
    session = sessions_of(context).get(params.session_id)
    async with session.turns.order:
        turn_input = await _words(session, params.prompt)
        joined = session.turns.steer(turn_input)
    outcome = SteeringOutcome.INJECTED if joined else SteeringOutcome.PROMPT_REQUIRED
    return SteeringResponse(outcome=outcome)


def _blocks(
    command: BuiltinCommand | PromptCommand | None, blocks: tuple[ContentBlock, ...]
) -> tuple[ContentBlock, ...]:
    """Return the user's input: a command is replaced by the text that it stands for."""
    match command:
        case BuiltinCommand():
            return (TextBlock(text=INIT_PROMPT), *blocks[1:])
        case PromptCommand():
            return (TextBlock(text=command.text), *blocks[1:])
        case None:
            return blocks


async def _served(
    context: ConnectionContext, session: AcpSession, ticket: PendingPrompt, params: PromptRequest
) -> PromptResponse:
    text = first_text(params.prompt)
    async with session.turns.order:
        if text is not None and text.lstrip().startswith("/"):
            await _read_prompts(context, session)
        command = None if text is None else session.commands.find(text)
        if not isinstance(command, BuiltinCommand) or command.name is Builtin.INIT:
            turn_input = await _words(session, _blocks(command, params.prompt))
            session.title_from(all_text(params.prompt))
            turn = await session.turns.submit(ticket, turn_input)
            command = None
    if isinstance(command, BuiltinCommand):
        return await _builtin(context, session, ticket, command)
    return await session.turns.end_of(ticket, turn)


async def _read_prompts(context: ConnectionContext, session: AcpSession) -> None:
    """Read the user's prompts again, because they may have changed since the session began."""
    prompts = await context.host.prompts()
    if prompts != session.commands.prompts:
        session.commands = replace(session.commands, prompts=prompts)
        session.send_commands()


async def _words(session: AcpSession, blocks: tuple[ContentBlock, ...]) -> TurnInput:
    length = sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
    if length > MOST_CHARACTERS:
        raise invalid_params(f"the prompt is longer than {MOST_CHARACTERS} characters", "prompt")
    return await session.live.session.prepare_input(engine_inputs(blocks, session.cwd))


async def _builtin(
    context: ConnectionContext, session: AcpSession, ticket: PendingPrompt, command: BuiltinCommand
) -> PromptResponse:
    match command.name:
        case Builtin.COMPACT:
            return await _operate(session, ticket, Compact())
        case Builtin.UNDO:
            return await _operate(session, ticket, Undo())
        case Builtin.REDO:
            return await _operate(session, ticket, Undo(back=True))
        case Builtin.REWIND:
            text = await session_rewind.SessionRewind(context, session, ticket).answer(command.rest)
            session.send_message(text)
        case Builtin.REVIEW | Builtin.REVIEW_BRANCH | Builtin.REVIEW_COMMIT:
            try:
                request = review_request(command)
            except BadArguments as error:
                session.send_message(str(error))
                return PromptResponse(stop_reason=StopReason.END_TURN)
            return await _operate(session, ticket, Review(request))
        case Builtin.STATUS:
            session.send_message(status_text(session))
        case Builtin.MCP:
            await _list_servers(session, ticket)
        case Builtin.HOOKS:
            hooks = session.hooks = session.hooks or session_hooks.SessionHooks(context.config, session.live)
            session.send_message(await session_hooks.hooks_text(hooks, command.rest))
        case Builtin.LOGOUT:
            gone = await context.accounts.logout()
            session.send_message("Logged out." if gone else "There was no stored login.")
        case Builtin.INIT:
            raise AssertionError("a prompt for the model")
    reason = StopReason.CANCELLED if ticket.cancelled else StopReason.END_TURN
    return PromptResponse(stop_reason=reason)


async def _operate(session: AcpSession, ticket: PendingPrompt, command: ClientTask) -> PromptResponse:
    turn: AwaitedTurn | None = await session.turns.operate(ticket, command)
    return await session.turns.end_of(ticket, turn)


async def _list_servers(session: AcpSession, ticket: PendingPrompt) -> None:
    """Send the list of servers with their tools. Waits for slow servers, unless the prompt is cancelled or the session
    ends.
    """
    async with anyio.create_task_group() as group:

        async def tell() -> None:
            session.send_message(servers_text(await session.live.session.mcp.snapshot()))
            group.cancel_scope.cancel()

        group.start_soon(tell, name="list MCP servers")
        await ticket.given_up.wait()
        group.cancel_scope.cancel()
