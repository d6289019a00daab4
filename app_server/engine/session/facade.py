"""The interface of an open conversation: everything that APIs and their subscriptions ask of a session or read from it.

A method that takes a command queues it and returns at once with the ids that its events will carry; the events follow
from another task. So if a handler awaits nothing after such a call, its result is queued for the client before the
events. The part that must be awaited, the conversion of the input, comes before the call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.engine.client_context import TurnCaller
from app_server.engine.config.client_limits import check_permissions, require_working_directory
from app_server.engine.config.config_values import Config
from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.context.history import collect_user_messages
from app_server.engine.session import answer_schema, rewind
from app_server.engine.session.additional_context import AdditionalContext, ContextEntry
from app_server.engine.session.session import Session
from app_server.engine.session.session_commands import ALL_WISHES, ApiBehaviour, BeginsNoTask, ClientTask
from app_server.engine.session.session_services import SessionServices
from app_server.engine.session.turn_control import OperationIds, SessionGoal, TurnControl
from app_server.engine.session.user_input import user_words
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.terminals import Terminal, TerminalUsage, look_at_terminals
from app_server.engine.tools.tool_base import DiskChanges, EditorAccess, EditorFiles
from app_server.engine.turn.outbox import ReleasedEvents
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal
from app_server_protocol.engine.thread_settings import UNCHANGED, SettingsPatch, ThreadSettings
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.event_items import SentInput
from app_server_protocol.ids import ConversationId
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.hooks.announced_hooks import ClientCallback
    from app_server.engine.mcp.mcp_requests import McpRequests
    from app_server_protocol.rollout import SessionMetaLine


class SessionFacts:
    """The current facts of a conversation."""

    def __init__(self, services: SessionServices) -> None:
        self._services, self._state = services, services.state
        self.config: Config = services.conversation.config
        """The configuration with which the conversation was opened; its settings may have changed since."""

    @property
    def settings(self) -> ThreadSettings:
        """The settings that the next turn starts from."""
        return self._state.settings

    @property
    def rollout_path(self) -> Path | None:
        """The path of the rollout file; None if the conversation is not stored."""
        return self._services.conversation.rollout_path

    @property
    def stored_head(self) -> SessionMetaLine | None:
        """The first line of the rollout, if this process wrote it; None if it was stored before, or is not stored."""
        return self._services.conversation.head

    @property
    def usage(self) -> TokenUsageInfo | None:
        """The token usage; None if no request has reported any."""
        return self._state.tokens.info

    @property
    def goal(self) -> Goal | None:
        return self._state.goals.goal

    @property
    def instruction_sources(self) -> tuple[str, ...]:
        """The files with instructions that the model was sent."""
        return self._services.conversation.instructions.sources

    @property
    def first_words(self) -> str:
        """The first input of the user; empty before it."""
        return next(iter(collect_user_messages(self._state.history.items)), "")

    def permitted(self, change: SettingsPatch) -> SettingsPatch:
        """Return the change. Raises BeyondClientRights if it grants more than the user leaves to clients, and
        ConfigError if it has workspace roots without the working directory.
        """
        if change == UNCHANGED and self.config.fence is None:
            return change
        after = self.settings.patched(change)
        require_working_directory(after.cwd, change)
        check_permissions(self.config.fence, after)
        return change

    async def history_metadata(self) -> tuple[int, int]:
        """Return the id and the number of entries of the message history, which all conversations share."""
        return await self._services.home.messages.metadata()


class SessionHandle:
    """One open conversation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._services = session.services
        self.id = ConversationId(session.services.conversation.id)
        self.facts = SessionFacts(session.services)
        self.turns: TurnControl = session.turns
        """The interface of the turns: begin one, join one, end one."""
        self._context = AdditionalContext(session.services.sources.new_id)

    # --- turns
    async def prepare_input(
        self,
        inputs: Sequence[SentInput],
        client_id: str | None = None,
        *,
        change: SettingsPatch = UNCHANGED,
        wishes: ApiBehaviour = ALL_WISHES,
        context: Sequence[ContextEntry] | None = None,
    ) -> TurnInput:
        """Convert the client's inputs into the input of a turn: read images, and find skills by the settings with
        `change`.

        `client_id` is the client's own id of the message. `context` is the context that the model reads before the
        message; None leaves the record of the entries already sent unchanged.
        """
        settings = self.facts.settings if change == UNCHANGED else self.facts.settings.patched(change)
        may_read = partial(self._services.commands.may_read, settings.sandbox_policy, settings.cwd)
        skills, checks = self._services.home.skills, wishes.checks_pictures
        turn_input = await user_words(
            inputs,
            client_id,
            settings.cwd,
            skills,
            checks_pictures=checks,
            skill_folders=self._services.conversation.skill_folders,
            may_read=may_read,
        )
        if context is None or (not context and self._context.is_empty):
            return turn_input if inputs or context is None else replace(turn_input, is_shown=False)
        items = self._context.items(context, self._services.state.history.items)
        return replace(turn_input, before=items, is_shown=bool(inputs))

    async def check_schema(self, schema: Json) -> None:
        """Raise CoreError if the schema for a turn's answer is no JSON Schema."""
        await answer_schema.check_schema(schema)

    def begin(self, command: ClientTask, caller: TurnCaller) -> OperationIds:
        """Queue a command with which a client begins a task. Raises CoreError once the conversation has ended."""
        pending = self._session.queue.submit(command, caller.client)
        return OperationIds(pending.id, pending.turn_id)

    def do(self, command: BeginsNoTask) -> OperationIds:
        """Queue a command that begins no task. Raises CoreError once the conversation has ended."""
        pending = self._session.queue.submit(command)
        return OperationIds(pending.id, pending.turn_id)

    # --- current activity
    @property
    def running(self) -> bool:
        """Whether a task runs, including one that is being ended."""
        return self._session.tasks.active is not None

    @property
    def busy(self) -> bool:
        """Whether a task or a command runs, or is about to."""
        terminals = self._services.commands.terminals
        return self.running or len(self._session.queue) > 0 or len(terminals) > 0

    def take_over_from(self, before: SessionHandle) -> None:
        """Continue the numbers of operations after those of the session that this one replaces: a client that stays
        subscribed sees no number twice.
        """
        self._session.queue.new_id = before._session.queue.new_id
        self._services.state.hooks.callbacks = before._services.state.hooks.callbacks

    async def settled(self) -> None:
        """Wait for the end of the current work."""
        if (active := self._session.tasks.active) is not None:
            await active.ended.wait()

    # --- commands that outlive their calls
    def terminals(self) -> list[Terminal]:
        """Return the terminals that run between the model's calls, by number."""
        return self._services.commands.terminals.running_on()

    async def usage_of(self, terminals: Sequence[Terminal]) -> list[TerminalUsage | None]:
        """Return the resource usage of each terminal's processes; None if it is unknown."""
        return await run_in_thread(look_at_terminals, terminals, abandon_on_cancel=True)

    def kill_terminals(self, numbers: Collection[int] | None = None) -> bool:
        """Kill the terminals with these numbers, or all terminals. Return whether there was one."""
        return self._services.commands.terminals.kill(numbers)

    def warn(self, message: str) -> None:
        """Send a warning to the subscribers of the conversation."""
        self._session.warn("", message)

    # --- checkpoints
    @property
    def rewinds(self) -> rewind.Rewinds:
        """The checkpoints of the conversation."""
        return rewind.Rewinds(self._services)

    async def user_wrote(self, path: str) -> None:
        """Note that a client has just written a file for the user."""
        if self._services.checkpoints.started:
            await run_in_thread(self._services.checkpoints.get().user_wrote, path)

    # --- the goal, MCP servers, the editor
    @property
    def goal(self) -> SessionGoal:
        """The interface of the goal."""
        return self._session.goal

    @property
    def mcp(self) -> McpRequests:
        """The interface of the MCP servers."""
        return self._services.mcp.requests

    def reload_servers(self, servers: Mapping[str, McpServerConfig]) -> None:
        """Stop the MCP servers and start the given ones. Running calls fail."""
        self._session.servers.reload(servers)

    def use_editor(self, files: EditorFiles) -> None:
        """Let patches use the files that are open in the client's editor."""
        clock = self._services.sources.wall_clock
        changes = DiskChanges(lambda: int(clock() * 1_000_000_000))
        self._services.commands.editor = EditorAccess(files, changes)

    def use_callbacks(self, client: object, callback: ClientCallback) -> None:
        """Let a client answer for hooks, from the next turn on, in the place of what it announced before."""
        self._services.state.hooks.callbacks[client] = callback

    # --- events and life
    @property
    def ended(self) -> anyio.Event:
        return self._session.ended

    async def run(self) -> None:
        """Carry out commands until `Close` or cancellation."""
        await self._session.run()

    @property
    def events(self) -> ReleasedEvents:
        """Events of the conversation that were not taken yet."""
        return self._services.outbox.released

    def emit_raw_items(self, wanted: bool) -> None:
        """Set whether a subscriber wants the items of the model's history in their original form."""
        self._services.outbox.raw_items = wanted

    def store(self) -> None:
        """Write the events emitted so far to the rollout."""
        self._services.outbox.store()

    def require_stored(self) -> None:
        """Write the events emitted so far to the rollout. Raises NotStored if lines cannot be written."""
        self._services.outbox.require_stored()

    def store_identity(self) -> None:
        """Store turns and items with their ids and times from now on."""
        outbox, active = self._services.outbox, self._session.tasks.active
        if outbox.identity:
            return
        stored_so_far, outbox.identity = outbox.stores_turns, True
        if active is not None and not stored_so_far:
            outbox.record(active.emitter.late_start_line())
