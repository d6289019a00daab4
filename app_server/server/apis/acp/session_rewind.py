"""`/rewind` of a session: lists the messages, and goes back to before one after the user has agreed to what is shown:
the files that change, with their differences, and the messages that leave the conversation.

The conversation goes back for the model. A client keeps what it shows, so the answer says what was taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import anyio

from app_server.engine.session.rewind import TURN_RUNS, words_of
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.support.engine_errors import ConversationError, NotStored
from app_server.engine.thread_origin import Revert, StoredRollout
from app_server.server.apis.acp.acp_session import AcpSession, sessions_of
from app_server.server.apis.acp.formatting import diffs_of, one_line
from app_server.server.apis.acp.handlers.sessions import use_editor
from app_server.server.apis.acp.prompt_turns import PendingPrompt
from app_server.server.apis.acp.rewind_texts import (
    RewindMessage,
    count_of,
    files_text,
    left_text,
    messages_text,
)
from app_server.server.apis.acp.tool_call_views import ToolCallView, text_content
from app_server.server.apis.contexts import ConnectionContext
from app_server_protocol.acp.tool_calls import (
    REQUEST_PERMISSION,
    PermissionOption,
    RequestPermissionRequest,
    SessionToolCall,
    SessionToolCallFields,
    SessionToolCallUpdate,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.engine.item_values import UpdateFileChange
from app_server_protocol.engine.items import UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app_server.engine.checkpoints.preview import Preview

MOST_MESSAGES: Final = 100
"""Maximum number of messages back to which one can go."""
NO_MESSAGE: Final = "There is no message to go back to.\n"
NOTHING: Final = "Nothing was taken back.\n"
EXPECTED: Final = "Expected `/rewind NUMBER` with a number of the list.\n"

Scope = Literal["both", "files", "conversation"]
_OPTIONS: Final[dict[Scope, str]] = {
    "both": "Yes, files and conversation",
    "files": "Only the files",
    "conversation": "Only the conversation",
}
_NO: Final = PermissionOption(option_id="decline", name="No, keep all", kind="reject_once")


class SessionRewind:
    """One `/rewind`."""

    def __init__(self, context: ConnectionContext, session: AcpSession, prompt: PendingPrompt) -> None:
        self._context, self._session, self._prompt = context, session, prompt
        self._turns: list[str] = []
        """Ids of all turns, newest first: some have no message."""

    async def answer(self, argument: str) -> str:
        """Return the answer to the command: the list of messages, or what was taken back. It waits for the turn that
        runs, and other prompts wait for it.
        """
        turns = self._session.turns
        while await turns.idle(self._prompt):
            async with turns.order:
                if self._session.live.session.running:
                    continue
                try:
                    return await self._answer(argument)
                except ConversationError as refused:
                    return f"{refused}\n"
        return NOTHING

    async def _answer(self, argument: str) -> str:
        messages = await self._messages()
        if not messages:
            return NO_MESSAGE
        if not argument:
            return messages_text(messages)
        if not argument.isdecimal() or not 1 <= int(argument) <= len(messages):
            return EXPECTED
        return await self._go_back(messages[: int(argument)])

    async def _messages(self) -> list[RewindMessage]:
        """Return the messages of the conversation, newest first."""
        live = self._session.live
        recorded = await live.session.rewinds.recorded()
        changed = {span.id: len({each.path for each in span.changes}) for span in recorded.spans}
        live.session.store()
        request = PageRequest(limit=MOST_MESSAGES, newest_first=True)
        page = await self._context.stored.get().turns(
            live.rollout_path, live.id, lambda history: history.turns(request), is_open=True
        )
        self._turns = [turn.id for turn in page.rows]
        return [
            RewindMessage(turn.id, words_of(turn), changed.get(turn.id, 0))
            for turn in page.rows
            if any(isinstance(ended.item, UserMessage) for ended in turn.items)
        ]

    async def _go_back(self, messages: Sequence[RewindMessage]) -> str:
        """Go back to before the last of these messages, if the user agrees."""
        session, rewinds = self._session, self._session.live.session.rewinds
        turns = self._turns[: self._turns.index(messages[-1].turn_id) + 1]
        preview = await rewinds.preview(turns[::-1], uncertain=True)
        scopes = self._scopes(preview)
        if not scopes:
            return "The files are as they were before that message, and the conversation is open elsewhere.\n"
        scope = await self._asked(scopes, messages, preview)
        if scope is None:
            return NOTHING
        if session.live.session.running:
            return f"{TURN_RUNS[0].upper()}{TURN_RUNS[1:]}.\n"
        if scope != "files":
            session.live.session.require_stored()
        text = ""
        if preview is not None and scope != "conversation":
            done = await rewinds.restore(
                preview.spans[0].id, token=preview.plan.token, conflicts="keep", uncertain=True
            )
            text = files_text(done.files, session.cwd, done.failed)
            if done.undo_id is not None:
                text += "\n`/redo` puts back what was taken back of the files.\n"
        if scope != "files":
            refused = await self._revert(messages[-1].turn_id)
            text += left_text(messages) if refused is None else f"\n{refused}\n"
        return text

    def _scopes(self, preview: Preview | None) -> list[Scope]:
        """Return what can go back."""
        live, client = self._session.live, self._context.client
        scopes: list[Scope] = []
        if preview is not None and any(each.writes for each in preview.plan.files):
            scopes.append("files")
        if live.rollout_path is not None and not live.shared_with_others(client):
            scopes.append("conversation")
        return ["both", *scopes] if len(scopes) == 2 else scopes

    async def _asked(
        self, scopes: Sequence[Scope], messages: Sequence[RewindMessage], preview: Preview | None
    ) -> Scope | None:
        """Ask the user what goes back; None if nothing does."""
        session, context = self._session, self._context
        diffs = {} if preview is None else await session.live.session.rewinds.diffs(preview)
        shown = diffs_of(
            {path: UpdateFileChange(unified_diff=diff, move_path=None) for path, diff in diffs.items()}, {}
        )
        files = () if preview is None else preview.plan.files
        about = (
            files_text(files, session.cwd, {})
            + f"- {count_of(len(messages), 'message')} of the conversation\n"
        )
        id = context.machine.new_id()
        call = ToolCallView(
            id=id, title=one_line(f"Go back to before: {messages[-1].words}"), kind=ToolKind.EDIT
        )
        fields = call.fields((text_content(about), *shown))
        session.send(SessionToolCall(**fields | {"status": ToolCallStatus.PENDING}))
        options = [
            PermissionOption(option_id=each, name=_OPTIONS[each], kind="allow_once") for each in scopes
        ]
        request = RequestPermissionRequest(
            session_id=session.id, tool_call=SessionToolCallFields(**fields), options=(*options, _NO)
        )
        chosen = await self._chosen(request, scopes)
        status = ToolCallStatus.FAILED if chosen is None else ToolCallStatus.COMPLETED
        if sessions_of(context).find(session.id) is session:
            session.send(SessionToolCallUpdate(tool_call_id=id, status=status))
        return chosen

    async def _chosen(self, request: RequestPermissionRequest, scopes: Sequence[Scope]) -> Scope | None:
        """Return the client's answer; None if it is none of these, or the prompt is cancelled."""
        chosen: Scope | None = None
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                nonlocal chosen
                if self._prompt.cancelled:
                    return  # a client that loads the session meanwhile does not know the call any more
                outgoing = self._context.client.outgoing
                reply = await outgoing.request(REQUEST_PERMISSION.method, request.to_json())
                match reply.result:
                    case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
                        chosen = next((each for each in scopes if each == option), None)
                    case _:
                        pass
                group.cancel_scope.cancel()

            group.start_soon(ask, name="ask what goes back")
            await self._prompt.given_up.wait()
            group.cancel_scope.cancel()
        return chosen

    async def _revert(self, turn_id: str) -> NotStored | None:
        """Go on in the conversation without this turn and all later ones; with them if that cannot be stored, and
        return the reason. Raises RpcError if another client has opened it meanwhile.
        """
        context, session = self._context, self._session
        before, path = session.live, session.live.rollout_path
        assert path is not None
        cut = await context.stored.get().find_cut(path, before.id, turn_id, behind=False)
        assert cut.keeps is not None
        facts = before.session.facts
        origin = StoredRollout(
            path, Revert(cut.keeps, cut.turns, facts.settings), turns=True, keeps_usage=True
        )
        async with session.moving():
            live, opened = await context.conversations.open(context.client, facts.config, origin)
            session.go_on_in(live)
            use_editor(context, live, facts.config)
        return opened.not_reverted
