"""A whole chat: a server, a frontend that reads the user's input, and a thread.

The events of the thread are shown, its questions are asked, and the user's input becomes turns.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct
from rich.console import Console

from app_server.cli.chat.event_view import EventView
from app_server.cli.chat.open_questions import OpenQuestions, PendingQuestion
from app_server.cli.demo import workspace
from app_server.cli.image_arguments import images
from app_server.client.answering import ApprovalAnswer
from app_server.client.app_server import AppServer
from app_server.client.approval_requests import ApprovalRequest, PatchApprovalRequest
from app_server.client.command_line import InvalidCommandLine, is_thread_id, newest_thread
from app_server.client.event_stream import EventSubscription
from app_server.client.events import ServerEvent, ThreadEvent
from app_server.client.failures import AppServerError, InvalidArgument, RequestRefused
from app_server.client.link import Connector
from app_server.client.options import StartOptions, TurnOptions, image
from app_server.client.thread_handle import ThreadHandle
from app_server_protocol.policy import kebab
from app_server_protocol.v2.item_parts import UserInput
from app_server_protocol.v2.settings import ThreadSettingsUpdatedNotification
from app_server_protocol.v2.thread import ThreadTokenUsageUpdatedNotification
from app_server_protocol.v2.turn import (
    TurnCompletedNotification,
    TurnDiffUpdatedNotification,
    TurnStartedNotification,
)

WORD: Final = re.compile(r"(?:[^\s'\"\\]|\\.)+")
PICTURE_NAME: Final = re.compile(r"\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)
"""Pattern of the end of a path in a word that names an image. A terminal escapes spaces in a path that is dropped on
it.
"""

SHOWN_TURNS: Final = 3
"""Number of turns that are shown of a resumed thread."""


class ChatConversation:
    """The state of a chat. It has one open thread at a time."""

    def __init__(
        self, server: AppServer, view: EventView, group: TaskGroup, clock: Callable[[], float]
    ) -> None:
        self.server, self.view, self.questions = server, view, OpenQuestions()
        self._group, self._clock = group, clock
        self._thread: ThreadHandle | None = None
        self._events: EventSubscription[ThreadEvent] | None = None
        self.settings: TurnOptions = {}
        """Settings for the next turn. Later turns keep them."""
        self.start_options: StartOptions = {}
        """Settings of new threads."""
        self._interrupts = False
        """Whether the user wants the turn to end."""
        self.started_at: float | None = None
        """Start time of the running turn, by the clock. None if no turn runs."""
        self.tokens = 0
        self.diff = ""
        """Changes of the last turn, as a diff."""
        self.model = self.approval_policy = self.sandbox = ""
        self.first: Sequence[str] = ()
        """Lines that are entered before any typed line."""
        self.said = False
        """Whether the thread has a message, so that it is stored."""
        self.attached: list[UserInput] = []
        """Images that are sent with the next message although its text has no path of them."""
        self.changed: Callable[[], object] = lambda: None
        """Callback that is called after each event."""
        self.ended: Callable[[float], object] = lambda seconds: None
        """Callback that is called when a turn has ended, with its duration in seconds."""
        self.asked: Callable[[PendingQuestion], object] = lambda question: None
        """Callback that shows a question. It is called with each question that the user has to answer now."""

    # --- threads
    @property
    def thread(self) -> ThreadHandle:
        """The open thread. Raises RuntimeError before one is open."""
        if self._thread is None:
            raise RuntimeError("no thread is open")
        return self._thread

    @property
    def cwd(self) -> Path:
        return Path(self.thread.opened.cwd)

    async def start(self, cwd: Path) -> None:
        options: StartOptions = {**self.start_options, "cwd": cwd}
        await self._opened(await self.server.start_thread(on_approval=self._ask, **options))

    async def resume(self, thread_id: str) -> None:
        thread = await self.server.resume_thread(thread_id, on_approval=self._ask, turns=True)
        await self._opened(thread)
        self.view.history(thread.opened.thread.turns[-SHOWN_TURNS:])

    async def fork(self, thread_id: str) -> None:
        """Continue in a copy of a thread, stored or open."""
        await self._opened(await self.server.fork_thread(thread_id, on_approval=self._ask))
        self.view.history((await self.thread.read()).turns[-SHOWN_TURNS:])

    async def _opened(self, thread: ThreadHandle) -> None:
        before, self._thread = self._thread, thread
        if self._events is not None:
            self._events.close()
        if before is not None and before.id != thread.id:
            await before.close()
        opened = thread.opened
        self.settings, self.diff, self.tokens, self.started_at = {}, "", 0, None
        self.said = bool(opened.thread.preview)
        self.model, self.approval_policy = opened.model, _word(opened.approval_policy)
        self.sandbox = kebab(opened.sandbox.type)
        self._events = thread.events()
        self._group.start_soon(self._follow, self._events, name="events")

    async def _follow(self, events: EventSubscription[ThreadEvent]) -> None:
        try:
            async for event in events:
                if events is self._events:
                    self._observe(event)
                    self._show(event)
                    self.changed()
        except AppServerError as error:
            self.view.line(str(error), "red")
        finally:
            if events is self._events:
                self._stopped()
                self.changed()

    def _show(self, event: ServerEvent) -> None:
        """Show an event. A pending question stays the last output on the screen, because text below it could be read as
        part of it.
        """
        printed, question = self.view.printed, self.questions.current
        self.view.show(event)
        if question is not None and self.view.plain and self.view.printed > printed:
            self.asked(question)

    def _observe(self, event: ServerEvent) -> None:
        match event:
            case TurnStartedNotification():
                self._running()
            case TurnCompletedNotification():
                self.ended(self.elapsed)
                self._stopped()
            case ThreadTokenUsageUpdatedNotification(token_usage=usage):
                self.tokens = usage.total.total_tokens
            case TurnDiffUpdatedNotification(diff=diff):
                self.diff = diff
            case ThreadSettingsUpdatedNotification(thread_settings=settings):
                self.model, self.sandbox = settings.model, kebab(settings.sandbox_policy.type)
                self.approval_policy = _word(settings.approval_policy)
            case _:
                pass

    # --- turns
    @property
    def running(self) -> bool:
        return self.started_at is not None

    async def send(self, *words: str | UserInput) -> None:
        """Begin a turn, or add to the running one. Images are sent along if their paths are in a text."""
        options, self.settings = self.settings, {}
        attached, self.attached = self.attached, []
        named = [each for text in words if isinstance(text, str) for each in pictures(text, self.cwd)]
        self._running()
        self.said = True
        try:
            turn = await self.thread.start_turn([*words, *named, *attached], **options)
            if self._interrupts:
                await turn.interrupt()
        except RequestRefused as error:
            self._stopped()
            self.view.line(error.message, "red")

    async def run_own(self, command: str) -> None:
        """Run a command of the user. The model receives its output."""
        self._running()
        params = {"threadId": self.thread.id, "command": command}
        try:
            await self.server.request_raw("thread/shellCommand", params)
        except AppServerError as error:
            self._stopped()
            self.view.line(str(error), "red")

    async def interrupt(self) -> None:
        """End the running turn, or the one that is about to begin."""
        self._interrupts = True
        await self.thread.interrupt()

    def _running(self) -> None:
        if self.started_at is None:
            self.started_at = self._clock()

    def _stopped(self) -> None:
        self.started_at, self._interrupts = None, False

    @property
    def elapsed(self) -> float:
        """The number of seconds for which the turn has run."""
        return 0.0 if self.started_at is None else self._clock() - self.started_at

    # --- questions
    async def _ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        if self._events is not None:
            await self._events.read_up()
        question = PendingQuestion(request, anyio.Event(), self.thread.opened.cwd)
        reply = await self.questions.ask(question, self._show_question)
        if not self.view.plain:  # in plain mode the question is on the screen already
            self.view.answer(question)
        return reply

    def _show_question(self, question: PendingQuestion) -> None:
        if isinstance(question.request, PatchApprovalRequest):
            self.view.proposed(question.request.params.item_id, question.request.changes)
        self.asked(question)


def pictures(text: str, cwd: Path) -> list[UserInput]:
    """Return the images whose paths are in the text, each once."""
    found: dict[Path, UserInput] = {}
    for word in WORD.findall(text):
        ends = [match.end() for match in PICTURE_NAME.finditer(word)]
        if ends:
            path = cwd / re.sub(r"\\(.)", r"\1", word[: ends[-1]].removeprefix("file://"))
            with suppress(InvalidArgument):  # the text only has a name of an image
                found[path] = image(path)
    return list(found.values())


def _word(policy: object) -> str:
    return str(policy) if isinstance(policy, str) else "granular"


Frontend = Callable[[ChatConversation, TaskGroup, Path | None], Awaitable[None]]
"""Function that reads the user's input until the user leaves. It stores the input in the home, if there is one."""


class Opening(Struct, frozen=True):
    """The way in which a chat begins."""

    thread: str | None = None
    """Id of a stored thread. None for another way."""
    last: bool = False
    """Whether to open the newest thread of the folder."""
    fork: bool = False
    """Whether to continue in a copy."""
    lines: Sequence[str] = ()
    """Lines that are entered first."""
    attached: Sequence[UserInput] = ()
    start_options: StartOptions = {}
    """Settings of new threads."""

    async def open(self, chat: ChatConversation, cwd: Path) -> None:
        """Open the thread. Raises AppServerError."""
        chat.start_options = self.start_options
        wanted = await newest_thread(chat.server, cwd) if self.last else self.thread
        if wanted is None:
            await chat.start(cwd)
        else:
            await (chat.fork(wanted) if self.fork else chat.resume(wanted))
        chat.first, chat.attached = self.lines, [*self.attached]


NEW: Final = Opening()


def opening_of(args: argparse.Namespace) -> Opening:
    """Return the opening of a chat by its command line. Raises InvalidCommandLine."""
    words, thread, chooses = [*args.words], None, []
    again = args.command.removeprefix("chat").strip()
    if again and not args.last and words:
        thread = words.pop(0)
        if not is_thread_id(thread):
            raise InvalidCommandLine(
                f"expected the id of a thread, or --last, got {thread!r}", "without either you can choose"
            )
    elif again and not args.last:
        chooses = ["/resume" if again == "resume" else "/fork ?"]
    lines = [*chooses, *([" ".join(words)] if words else [])]
    return Opening(
        thread=thread,
        last=args.last,
        fork=again == "fork",
        lines=lines,
        attached=images(args.image or ()),
        start_options=workspace.THREAD if args.demo else {},
    )


MOST_WARNINGS: Final = 100
"""Maximum number of warnings that wait to be shown."""


def chat_console(*, terminal: bool) -> Console:
    """Return the console on which a chat is shown."""
    return Console(force_terminal=terminal, highlight=False)


async def chat_session(
    connector: Connector,
    console: Console,
    frontend: Frontend,
    cwd: Path,
    home: Path | None,
    opening: Opening = NEW,
) -> None:
    """Chat until the user leaves. Raises AppServerError, also in exception groups."""
    view = EventView(console)
    warn, warnings = anyio.create_memory_object_stream[str](MOST_WARNINGS)

    def keep(text: str, event: ServerEvent) -> None:
        """Queue a warning to be shown. It is dropped if the queue is full: it would say nothing new."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            warn.send_nowait(text)

    async with (
        AppServer.connect(connector, on_warning=keep) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_show_warnings, warnings, view, name="warnings")
        chat = ChatConversation(server, view, group, time.monotonic)
        await opening.open(chat, cwd)
        view.line(f"{chat.model} in {chat.cwd}; /help lists what can be typed", "dim")
        await frontend(chat, group, home)
        if chat.said and home is not None and (console.is_terminal or console.file.isatty()):
            view.line(f"to go on: app-server chat resume {chat.thread.id}", "dim")
        group.cancel_scope.cancel()


async def _show_warnings(warnings: MemoryObjectReceiveStream[str], view: EventView) -> None:
    async with warnings:
        async for text in warnings:
            view.warning(text)
