"""`thread/backgroundTerminals/*`: commands of a thread that run between the model's calls.

What they print and how they end is sent as it comes, whoever ends them.
"""

from __future__ import annotations

from app_server.apis.v2.handlers.threads import ThreadContext, loaded
from app_server.core.threads import run_in_thread
from app_server.core.tools.terminal_usage import TerminalUsage, look_at_terminals
from app_server.core.tools.terminals import Terminal
from app_server.rpc.errors import RpcError, invalid_request
from protocol.v2.thread_work import (
    ThreadBackgroundTerminal,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResponse,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
)

MOST_DIGITS = 18


async def terminals_list(
    context: ThreadContext, params: ThreadBackgroundTerminalsListParams
) -> ThreadBackgroundTerminalsListResponse:
    """By number; the cursor is that of the last one. All of them unless a limit is given."""
    live = loaded(context, params.thread_id)
    after = -1 if params.cursor is None else _number(params.cursor, "invalid cursor", "cursor")
    rest = [each for each in live.session.terminals.running_on() if each.number > after]
    page = rest if params.limit is None else rest[: max(params.limit, 1)]
    adapter = context.loaded.adapter(live)
    usages = await run_in_thread(look_at_terminals, page, abandon_on_cancel=True)
    return ThreadBackgroundTerminalsListResponse(
        data=tuple(
            _shown(each, adapter.item_id(each.turn_id, each.item.id), usage)
            for each, usage in zip(page, usages, strict=True)
        ),
        next_cursor=str(page[-1].number) if len(page) < len(rest) else None,
    )


async def terminals_terminate(
    context: ThreadContext, params: ThreadBackgroundTerminalsTerminateParams
) -> ThreadBackgroundTerminalsTerminateResponse:
    live = loaded(context, params.thread_id)
    number = _number(params.process_id, "invalid background terminal process id", "processId")
    return ThreadBackgroundTerminalsTerminateResponse(terminated=live.session.terminals.kill({number}))


async def terminals_clean(
    context: ThreadContext, params: ThreadBackgroundTerminalsCleanParams
) -> ThreadBackgroundTerminalsCleanResponse:
    loaded(context, params.thread_id).session.terminals.kill()
    return ThreadBackgroundTerminalsCleanResponse()


def _shown(terminal: Terminal, item_id: str, usage: TerminalUsage | None) -> ThreadBackgroundTerminal:
    return ThreadBackgroundTerminal(
        item_id=item_id,
        process_id=str(terminal.number),
        command=terminal.line,
        cwd=terminal.cwd,
        os_pid=None if usage is None else usage.pid,
        cpu_percent=None if usage is None else usage.cpu_percent,
        rss_kb=None if usage is None else usage.rss_kb,
    )


def _number(text: str, problem: str, field: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return int(text)
    raise _not_a_number(problem, field)


def _not_a_number(problem: str, field: str) -> RpcError:
    return invalid_request(f"{problem}: expected a number", "invalid_params", field)
