"""The hooks at the steps of a turn: its begin, the user's words, each request, compactions, its end, an interrupt; and
the end of a thread.

Loaded with the first turn of a thread that may have hooks. What hooks say about calls is in `engine.tools`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import escape

import anyio

from app_server.engine.context.history import message_text
from app_server.engine.hooks import hook_input
from app_server.engine.hooks.active_hooks import ActiveHooks
from app_server.engine.hooks.client_callbacks import ClientCallbacks
from app_server.engine.hooks.context_files import remove_contexts
from app_server.engine.hooks.decision import HookDecision
from app_server.engine.hooks.hook_definitions import LAST_SECONDS, HookHandler, LoadedHooks
from app_server.engine.hooks.hook_files import HookFiles
from app_server.engine.hooks.hook_input import HookTurn
from app_server.engine.hooks.hook_notice import hooks_notice
from app_server.engine.hooks.hook_output import Verdict
from app_server.engine.hooks.hook_rights import HookPlaces
from app_server.engine.hooks.run_hooks import STARTUP_FILES, HookCommands
from app_server.engine.hooks.turn_hooks import ThreadHooks
from app_server.engine.sandbox.exec.command import command_environment
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.hook_questions import asked_user, may_ask
from app_server.engine.tools.rights import exposed_by
from app_server.engine.tools.tool_base import ToolContext
from app_server.engine.turn.emitter import OperationEmitter
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType
from app_server_protocol.engine.items import HookPrompt, HookPromptFragment
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.responses import InputText, MessageItem
from app_server_protocol.rollout import HOOK_PROMPT_HEAD
from app_server_protocol.values import replace


@asynccontextmanager
async def hooked(turn: TurnContext, tools: ToolContext) -> AsyncIterator[HookSteps]:
    """Read the hooks of a turn, and let them run while the block does. An interrupt has its own event."""
    services = turn.services
    thread = services.state.hooks
    loaded = await run_in_thread(hook_files(turn).load, turn.settings.cwd, abandon_on_cancel=True)
    callbacks = _callbacks(thread)
    loaded = callbacks.added_to(loaded, may_approve=services.conversation.config.permissions.client_rights)
    commands = hook_commands(tools, loaded)
    thread.last = loaded, commands
    active = ActiveHooks(
        loaded,
        lambda: hook_turn(services, tools.settings, turn.emitter.turn_id),
        {HookHandlerType.COMMAND: commands.run, HookHandlerType.CALLBACK: callbacks.run},
        turn.emitter.emit,
        services.sources.clock,
        services.sources.wall_clock,
        services.conversation.config.home,
    )
    tools.hooks = active
    steps = HookSteps(turn, active)
    steps.notice = hooks_notice(loaded)
    async with active.running():
        try:
            yield steps
        except anyio.get_cancelled_exc_class():
            steps.withhold()
            if active.has(HookEvent.INTERRUPT) and turn.emitter.has_started:
                with anyio.move_on_after(LAST_SECONDS, shield=True):
                    await active.run(HookEvent.INTERRUPT, hook_input.ending("interrupted"))
            raise


def hook_files(turn: TurnContext) -> HookFiles:
    """Return the hook files of the thread."""
    services, thread = turn.services, turn.services.state.hooks
    thread.files = thread.files or HookFiles(services.conversation.config, services.commands.caller)
    return thread.files


def would_guard_input(turn: TurnContext) -> bool:
    """Return whether the hooks of a turn that was ended before they were read decide about the user's words. Blocks."""
    try:
        loaded = hook_files(turn).load(turn.settings.cwd)
    except ConfigError:
        return True
    loaded = _callbacks(turn.services.state.hooks).added_to(loaded, may_approve=False)
    return bool(loaded.runnable(HookEvent.USER_PROMPT_SUBMIT))


def _callbacks(thread: ThreadHooks) -> ClientCallbacks:
    """Return the callbacks of the clients that follow the thread, and forget those of others."""
    for client in [client for client, each in thread.callbacks.items() if not each.is_here()]:
        del thread.callbacks[client]
    return ClientCallbacks(thread.callbacks)


def hook_turn(services: SessionServices, settings: ThreadSettings, turn_id: str | None) -> HookTurn:
    """Return the fields that all inputs have."""
    path = services.conversation.rollout_path
    return HookTurn(
        session_id=services.conversation.id,
        turn_id=turn_id,
        transcript_path=None if path is None else str(path),
        cwd=settings.cwd,
        model=settings.model,
        permission_mode=hook_input.permission_mode(settings.approval_policy, settings.mode.kind),
    )


def hook_commands(tools: ToolContext, hooks: LoadedHooks) -> HookCommands:
    """Return what runs the commands of hooks, with the rights and the environment of a turn."""

    def environment(plan: SandboxPlan | None) -> Mapping[str, str]:
        runner = tools.commands.runner
        variables = command_environment(
            tools.config.permissions.environment,
            runner.environment_for_commands(tools.commands.caller.environment),
            plan=plan,
            withheld=tools.config.credential_variables(),
        )
        project = hooks.project_root or tools.settings.cwd
        own = {"CODEX_HOME": str(tools.config.home), "CLAUDE_PROJECT_DIR": project}
        return {**{name: value for name, value in variables.items() if name not in STARTUP_FILES}, **own}

    def confine(handler: HookHandler) -> SandboxPlan | None:
        plan = tools.plan()
        if plan is None:
            return None
        places = HookPlaces(
            cwd=tools.settings.cwd,
            environment=environment(None),
            written=plan.written,
            read_only=(*plan.protected, *plan.reserved, plan.home),
            exposed=(*exposed_by(tools, plan), *tools.commands.exposed_folders),
            project_sandbox=hooks.settings.project_sandbox,
        )
        return None if places.runs_outside(handler) else replace(plan, network=False)

    commands = tools.commands
    return HookCommands(commands.runner, commands.shell_path, tools.settings.cwd, confine, environment)


class HookSteps:
    """Hooks of one turn at its steps."""

    def __init__(self, turn: TurnContext, hooks: ActiveHooks) -> None:
        self._turn, self.hooks = turn, hooks
        self.notice: str | None = None
        """Text for the user about hooks that do not run; None if there is none, or if it was shown."""
        self._stops = 0
        """Number of times that hooks made the turn go on."""
        self._requests = 0
        self._judging = False
        """Whether hooks decide about words of the user at this moment."""

    @property
    def stopped(self) -> bool:
        """Whether a hook ended the turn."""
        return self.hooks.stop is not None

    @property
    def guards_input(self) -> bool:
        """Whether hooks decide about the user's words before the model reads them."""
        return self.hooks.has(HookEvent.USER_PROMPT_SUBMIT)

    # --- its begin
    async def _begin_thread(self) -> None:
        """Run the hooks of the begin of the thread in this process, once, and again after a compaction."""
        thread = self._turn.services.state.hooks
        source, thread.start_source = thread.start_source, None
        if source is not None and self.hooks.has(HookEvent.SESSION_START):
            own = hook_input.session_start(source)
            self._record(await self.hooks.run(HookEvent.SESSION_START, own, source))

    async def admit(self, turn_input: TurnInput) -> TurnInput | None:
        """Return the input with the context that hooks add to it; None if the model must not read it."""
        if self.notice is not None:
            self._warn_once(self.notice)
            self.notice = None
        await self._begin_thread()
        if self.stopped:
            return None
        if not turn_input.is_shown or not self.guards_input:
            return turn_input
        self._judging = True
        own = hook_input.user_prompt(message_text(turn_input.message))
        decision = await self.hooks.run(HookEvent.USER_PROMPT_SUBMIT, own)
        if self.hooks.stop is not None:
            return None
        if decision.verdict is Verdict.ASK and await self._is_sent_anyway(decision.reason):
            decision = replace(decision, verdict=Verdict.NONE)
        self._judging = False
        if decision.verdict > Verdict.ALLOW:
            self._warn(f"The message was not sent to the model: {decision.reason}")
            return None
        return replace(turn_input, attached=(*turn_input.attached, *self._messages(decision)))

    async def _is_sent_anyway(self, reason: str) -> bool:
        services = self._turn.services
        return may_ask(self._turn.settings) and await asked_user(
            services.approvals,
            f"{self._turn.emitter.turn_id}-hook-{services.sources.new_id()}",
            "Message",
            f"Send the message to the model? {reason}",
            self._turn.emitter.emit,
        )

    def withhold(self) -> None:
        """Tell the user of words that the interrupted turn keeps from the model, because hooks had not decided yet."""
        if self._judging:
            self._warn(
                "The message was not sent to the model: its hooks had not decided about it. Send it again."
            )

    # --- its requests
    async def before_request(self) -> None:
        self._requests += 1
        if self.hooks.has(HookEvent.PRE_MODEL_REQUEST):
            await self.hooks.run(HookEvent.PRE_MODEL_REQUEST, self._request())

    async def after_request(self, error: str | None) -> None:
        """`error`: text of the failure; None if the request was answered."""
        if self.hooks.has(HookEvent.POST_MODEL_REQUEST):
            info = self._turn.services.state.tokens.info
            own = {
                **self._request(),
                "status": "completed" if error is None else "failed",
                "error": error,
                "token_usage": None if info is None or error else info.last_token_usage.to_value(),
            }
            await self.hooks.run(HookEvent.POST_MODEL_REQUEST, own)

    def _request(self) -> dict[str, Json]:
        return {"kind": "sampling", "request_id": f"{self._turn.emitter.turn_id}:{self._requests}"}

    # --- compactions
    async def allow_compaction(self, trigger: str) -> bool:
        """Return whether the history may be compacted: hooks can block a compaction that the user asked for."""
        if not self.hooks.has(HookEvent.PRE_COMPACT):
            return True
        decision = await self.hooks.run(HookEvent.PRE_COMPACT, hook_input.compaction(trigger), trigger)
        if trigger == AUTO:
            return True
        if decision.verdict is Verdict.DENY:
            self._warn(f"The conversation was not compacted: {decision.reason}")
        return decision.verdict is not Verdict.DENY and not self.stopped

    async def compacted(self, trigger: str) -> None:
        """Run the hooks after a compaction. The context of the thread's begin is gone, so it is added again."""
        if self.hooks.has(HookEvent.POST_COMPACT):
            await self.hooks.run(HookEvent.POST_COMPACT, hook_input.compaction(trigger), trigger)
        self._turn.services.state.hooks.start_source = "compact"
        if trigger == AUTO:
            await self._begin_thread()

    # --- its end
    async def goes_on(self, last: str | None) -> bool:
        """Return whether a hook makes the turn go on; the model then gets its reason."""
        if not self.hooks.has(HookEvent.STOP):
            return False
        own = hook_input.stop(again=self._stops > 0, last_message=last)
        decision = await self.hooks.run(HookEvent.STOP, own)
        self._record(decision)
        if self.stopped or decision.verdict is not Verdict.DENY:
            return False
        most = self.hooks.hooks.settings.max_stop_blocks
        if self._stops >= most:
            self._warn(
                f"The turn ends although a Stop hook wants it to go on ({decision.reason}): hooks made it go on "
                f"{most} times already (`hooks.max_stop_blocks`)."
            )
            return False
        self._stops += 1
        self._prompt(decision)
        return True

    def _prompt(self, decision: HookDecision) -> None:
        parts = tuple(
            HookPromptFragment(text=each.reason, hook_run_id=each.run_id) for each in decision.blocks
        )
        texts = [
            f'{HOOK_PROMPT_HEAD}hook_run_id="{escape(each.run_id)}">{escape(each.reason, quote=False)}</hook_prompt>'
            for each in decision.blocks
        ]
        message = MessageItem(role="user", content=tuple(InputText(text=text) for text in texts))
        self._turn.record(message)
        self._turn.emitter.show(HookPrompt(self._turn.services.sources.new_turn_id(), parts))

    # --- texts
    def _record(self, decision: HookDecision) -> None:
        self._turn.record(*self._messages(decision))

    def _messages(self, decision: HookDecision) -> tuple[MessageItem, ...]:
        return self.hooks.context_messages(decision.contexts)

    def _warn(self, text: str) -> None:
        self._turn.emitter.emit(WarningNotice(message=text))

    def _warn_once(self, text: str) -> None:
        shown = self._turn.services.commands.shown_once
        if text not in shown:
            shown.add(text)
            self._warn(text)


AUTO, MANUAL = "auto", "manual"
"""Triggers of a compaction."""


async def thread_ends(services: SessionServices, operation_id: str) -> None:
    """Run the hooks of the end of a thread, if a turn of it had hooks. What hooks wrote for a thread that is not stored
    is removed with it.
    """
    if services.state.hooks.last is None:
        return
    loaded, commands = services.state.hooks.last
    active = ActiveHooks(
        loaded,
        lambda: hook_turn(services, services.state.settings, None),
        {
            HookHandlerType.COMMAND: commands.run,
            HookHandlerType.CALLBACK: _callbacks(services.state.hooks).run,
        },
        OperationEmitter(services.outbox, operation_id).emit,
        services.sources.clock,
        services.sources.wall_clock,
        services.conversation.config.home,
    )
    if active.has(HookEvent.SESSION_END):
        with anyio.move_on_after(LAST_SECONDS, shield=True):
            await active.run(HookEvent.SESSION_END, hook_input.ending("other"), "other")
    if services.conversation.rollout_path is None:
        await run_in_thread(remove_contexts, services.conversation.config.home, services.conversation.id)
