"""Runs the calls of a reply: finds the tool, waits until it may run, converts exceptions into output for the model.

Parallel tools run together. Every other tool runs alone, in the model's order: it waits for all earlier calls, and all
later calls wait for it. Only this module turns a tool's failure into output. A call that was cut off by an interrupt
gets an output that says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.config.config_values import WireApi
from app_server.engine.context.text_for_model import aborted_by_user
from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS
from app_server.engine.tools import hooked_calls
from app_server.engine.tools.tool_base import (
    SHELL_TOOLS,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolOutput,
    Tools,
    text_output,
)
from app_server_protocol.item_origin import FAILED
from app_server_protocol.responses import (
    CallItem,
    CustomToolCall,
    FunctionCall,
    FunctionCallOutputPayload,
    LocalShellCall,
    OutputItem,
    ResponseItem,
    call_key,
    output_of,
)
from app_server_protocol.values import replace


class CallSlot(Struct):
    parallel: bool
    done: anyio.Event = msgspec.field(default_factory=anyio.Event)


class CallOrder:
    """The order of calls: each call gets its slot in the model's order, before any call runs."""

    def __init__(self) -> None:
        self._slots: list[CallSlot] = []

    def add(self, *, parallel: bool) -> CallSlot:
        slot = CallSlot(parallel)
        self._slots.append(slot)
        return slot

    @asynccontextmanager
    async def wait_for(self, slot: CallSlot) -> AsyncIterator[None]:
        """Wait until the call may run. Leaving the context releases the calls that wait for it."""
        try:
            earlier = self._slots[: self._slots.index(slot)]  # added before, still running
            for other in earlier:
                if not (slot.parallel and other.parallel):
                    await other.done.wait()
            yield
        finally:
            slot.done.set()
            self._slots.remove(slot)


log = logging.getLogger(__name__)

Finished = Callable[[Sequence[ResponseItem]], None]
"""Callback that receives the items that the model will get for a call."""

BeforeCall = Callable[[], Awaitable[None]]
"""Hook that is awaited before each call."""


class CallRun(Struct):
    """One call, from its start to its output."""

    item: CallItem
    call: ToolCall
    began: float
    output_items: list[ResponseItem] = msgspec.field(default_factory=list)
    """Output of the call for the model. Empty until it has finished."""

    def finish(self, output: ToolOutput) -> None:
        answer = output_of(self.item, output.payload)
        self.output_items = [_with_failure(self.item, answer, output.payload), *output.followup_items]

    def items(self, now: float) -> list[ResponseItem]:
        """Return the call with its output. A call that did not finish gets an output that says it was aborted."""
        if not self.output_items:
            what = aborted_by_user(now - self.began, command=self.call.name in SHELL_TOOLS)
            self.finish(text_output(what, success=False))
        return [self.item, *self.output_items]


def _with_failure(call: CallItem, output: OutputItem, payload: FunctionCallOutputPayload) -> OutputItem:
    """Return the output with a mark that its tool failed, if the API of its call has a field for that."""
    origin = call.origin
    if payload.success is not False or origin is None or origin.wire != WireApi.MESSAGES.value:
        return output
    return output.model_copy(update={"origin": replace(origin, kept={FAILED: True})})


class RefusedCalls:
    """Answers every call with the same sentence, in requests that want text only."""

    def __init__(self, text: str) -> None:
        self._text = text

    def start(self, item: CallItem, group: TaskGroup, finished: Finished = lambda _: None) -> CallRun:
        """Answer a call at once."""
        run = CallRun(item, as_call(item), 0.0)
        run.finish(text_output(self._text, success=False))
        return run


class ToolRuntime:
    """The running calls of one turn."""

    def __init__(self, tools: Tools, turn: ToolContext, before_call: BeforeCall | None = None) -> None:
        self._tools, self._turn, self._before_call = tools, turn, before_call
        self._order = CallOrder()
        self._unfinished: set[str] = set()

    def start(self, item: CallItem, group: TaskGroup, finished: Finished = lambda _: None) -> CallRun:
        """Start a call and return. `finished` is called without a checkpoint after the item's end event."""
        call = self._named(as_call(item))
        run = CallRun(item, call, self._turn.sources.clock())
        tool = self._tools.get(call.name)
        if tool is None:
            run.finish(text_output(f"unsupported call: {call.name[:200]}", success=None))
        elif call.call_id in self._unfinished:
            text = f"call id {call.call_id} is in use by a call that is still running"
            run.finish(text_output(text, success=False))
        else:
            self._unfinished.add(call.call_id)
            slot = self._order.add(parallel=tool.parallel)
            group.start_soon(self._run_call, run, tool, slot, finished, name=f"tool {call.name}")
        return run

    def _named(self, call: ToolCall) -> ToolCall:
        """Give a call a new id if a terminal that was opened under the same id is still open. The model's history keeps
        the id that the model chose.
        """
        if not self._turn.commands.terminals.names(call.call_id):
            return call
        return replace(call, call_id=f"{call.call_id}-{self._turn.sources.new_id()}")

    async def _run_call(self, run: CallRun, tool: Tool, slot: CallSlot, finished: Finished) -> None:
        try:
            async with self._order.wait_for(slot):
                if self._before_call is not None:
                    await self._before_call()
                run.began = self._turn.sources.clock()
                output = await self._invoke(run.call, tool)
                # There is no await between the end event and this line: otherwise a crash could store the end without
                # the output.
                run.finish(output)
                finished(run.output_items)
                self._report(run, output)
        finally:
            self._unfinished.discard(run.call.call_id)

    def _report(self, run: CallRun, output: ToolOutput) -> None:
        call = run.call
        self._turn.telemetry.tool_result(
            call.name,
            call.call_id,
            call.arguments,
            int((self._turn.sources.clock() - run.began) * 1000),
            success=output.payload.success is not False,
            output=output.payload.content,
        )

    async def _invoke(self, call: ToolCall, tool: Tool) -> ToolOutput:
        try:
            if self._turn.hooks is not NO_TURN_HOOKS:
                return await hooked_calls.serve(call, tool, self._turn)
            return await tool.invoke(call, self._turn)
        except ToolFailure as failure:
            return text_output(str(failure), success=False)
        except Exception as error:
            # A bug must not end the turn: the model gets an error and may try something else.
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
