"""Runs the calls of a reply: finds the tool, waits for its turn, turns what it raises into text for the model.

The one place where a tool's failure becomes an answer. What was not finished when the turn was interrupted gets
an output that says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import field

import anyio
from anyio.abc import TaskGroup

from app_server.core.context.command_output import aborted_by_user
from app_server.core.context.history import call_key
from app_server.core.tools.contract import (
    Tool,
    ToolCall,
    ToolFailure,
    ToolOutput,
    Tools,
    ToolTurn,
    text_output,
)
from app_server.core.tools.gate import Gate, Ticket
from protocol.records import dataclass
from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    LocalShellCall,
    ResponseItem,
)

log = logging.getLogger(__name__)

CallItem = FunctionCall | CustomToolCall | LocalShellCall
Finished = Callable[[Sequence[ResponseItem]], None]
"""Is told what the model will be told of a call."""

COMMAND_TOOLS = frozenset({"shell", "container.exec", "local_shell", "exec_command", "shell_command"})
"""Tools whose interruption is told as that of a command."""


@dataclass(slots=True)
class CallRun:
    """One call on its way."""

    item: CallItem
    call: ToolCall
    began: float
    answer: list[ResponseItem] = field(default_factory=list)
    """What the model is told of it, once that is known."""

    def finish(self, output: ToolOutput) -> None:
        self.answer = [output_item(self.item, output), *output.then]

    def settled(self, now: float) -> list[ResponseItem]:
        """The call with its output, whatever became of it."""
        if not self.answer:
            what = aborted_by_user(now - self.began, command=self.call.name in COMMAND_TOOLS)
            self.finish(text_output(what, success=False))
        return [self.item, *self.answer]


def output_item(item: CallItem, output: ToolOutput) -> FunctionCallOutput | CustomToolCallOutput:
    custom, call_id = call_key(item)
    if custom:
        return CustomToolCallOutput(call_id=call_id, output=output.payload.content)
    return FunctionCallOutput(call_id=call_id, output=output.payload)


class ToolRuntime:
    """The calls of one turn."""

    def __init__(self, tools: Tools, turn: ToolTurn, ready: anyio.Event) -> None:
        self._tools, self._turn, self._ready = tools, turn, ready
        self._gate = Gate()
        self._unfinished: set[str] = set()

    def start(self, item: CallItem, group: TaskGroup, finished: Finished = lambda _: None) -> CallRun:
        """Begin a call; returns at once. `finished` is told in the same breath as the client."""
        call = as_call(item)
        run = CallRun(item, call, self._turn.clock())
        tool = self._tools.get(call.name)
        if tool is None:
            run.finish(text_output(f"unsupported call: {call.name[:200]}", success=None))
        elif call.call_id in self._unfinished:
            text = f"call id {call.call_id} is in use by a call that is still running"
            run.finish(text_output(text, success=False))
        else:
            self._unfinished.add(call.call_id)
            ticket = self._gate.draw(parallel=tool.parallel)
            group.start_soon(self._run, run, tool, ticket, finished, name=f"tool {call.name}")
        return run

    async def _run(self, run: CallRun, tool: Tool, ticket: Ticket, finished: Finished) -> None:
        try:
            async with self._gate.turn_of(ticket):
                # Waiting gives way to others even where there is nothing to wait for.
                if not self._ready.is_set():
                    await self._ready.wait()
                run.began = self._turn.clock()
                output = await self._answer(run.call, tool)
                # No await between the event that tells the end and this: a crash must not take the output back.
                run.finish(output)
                finished(run.answer)
                self._report(run, output)
        finally:
            self._unfinished.discard(run.call.call_id)

    def _report(self, run: CallRun, output: ToolOutput) -> None:
        call = run.call
        self._turn.telemetry.tool_result(
            call.name,
            call.call_id,
            call.arguments,
            int((self._turn.clock() - run.began) * 1000),
            success=output.payload.success is not False,
            output=output.payload.content,
        )

    async def _answer(self, call: ToolCall, tool: Tool) -> ToolOutput:
        try:
            return await tool.run(call, self._turn)
        except ToolFailure as failure:
            return text_output(str(failure), success=False)
        except Exception as error:
            # A bug of ours must not cost the turn: the model is told and may go another way.
            log.exception("tool %s", call.name)
            return text_output(f"the tool failed unexpectedly ({type(error).__name__})", success=False)


def as_call(item: CallItem) -> ToolCall:
    match item:
        case FunctionCall():
            return ToolCall(item.call_id, item.name, item.arguments)
        case CustomToolCall():
            return ToolCall(item.call_id, item.name, item.input, custom=True)
        case LocalShellCall():
            action = item.action
            arguments: dict[str, object] = {"command": list(action.command)}
            if action.working_directory is not None:
                arguments["workdir"] = action.working_directory
            if action.timeout_ms is not None:
                arguments["timeout_ms"] = action.timeout_ms
            return ToolCall(call_key(item)[1], "local_shell", json.dumps(arguments), local_shell=True)
