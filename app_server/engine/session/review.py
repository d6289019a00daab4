"""A review: a turn with a history of its own, whose answer is findings.

Order:

1. `task_started` and `entered_review_mode`;
2. the work of the reviewer;
3. `exited_review_mode`, exactly once if it was entered;
4. a note of the outcome in the conversation's history;
5. the end of the turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import ValidationError

from app_server.engine.context.environment_context import environment_message, user_text
from app_server.engine.context.history import ConversationHistory
from app_server.engine.context.instructions import instruction_text
from app_server.engine.context.sizes import PromptSize
from app_server.engine.model.prompt import Prompt
from app_server.engine.session.checkpoint import TurnCheckpoint
from app_server.engine.session.hooked_task import HookedTask
from app_server.engine.session.review_texts import findings_block
from app_server.engine.session.session_services import TurnContext
from app_server.engine.session.turn_context import context_line, model_call, shape_of, tool_turn_of
from app_server.engine.tools.registry import ToolOffer, build_tools
from app_server.engine.tools.runtime import ToolRuntime
from app_server.engine.turn.loop import TurnLoop
from app_server.engine.turn.outbox import Transcript
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.item_values import ReviewOutputEvent, ReviewRequest
from app_server_protocol.engine.items import EnteredReview, ExitedReview
from app_server_protocol.parse import read
from app_server_protocol.policy import ReasoningEffort, ReasoningSummary
from app_server_protocol.responses import ResponseItem
from app_server_protocol.values import replace


class ReviewTask(HookedTask):
    """Runs a review by the review model, or else by the conversation's model, with little reasoning and long texts."""

    kind = TurnKind.REVIEW
    takes_input = True

    def __init__(self, turn: TurnContext, request: ReviewRequest) -> None:
        conversation, state = turn.services.conversation, turn.services.state
        settings = replace(
            turn.settings,
            model=conversation.config.model.review_model or turn.settings.model,
            effort=ReasoningEffort.LOW,
        )
        super().__init__(replace(turn, settings=settings))
        self._request = request
        self._context_line = context_line(turn.services, turn.settings)
        """Context line of the conversation's own settings, with which it continues, even if it is resumed after the
        review.
        """
        shape = shape_of(self.turn)
        summary = turn.settings.summary
        if summary is not None or shape.model.usual_summary is not ReasoningSummary.NONE:
            summary = ReasoningSummary.DETAILED
        # An answer without text means that nothing was found.
        settings_of_review = replace(
            shape.settings, wants_answer=False, summary=summary or ReasoningSummary.NONE
        )
        self._shape = replace(shape, settings=settings_of_review, instructions=instruction_text("review"))
        size = self._shape.bounds.size
        offer = ToolOffer(size=size, resources=size is PromptSize.FULL, review=True)
        self._tools = build_tools(conversation.config, self._shape.model, None, offer=offer)
        surroundings = environment_message(settings, conversation.instructions.shell)
        self._transcript = Transcript(ConversationHistory([surroundings]), None)
        self._usage_before = state.tokens.info
        self.tool_turn = tool_turn_of(self.turn, self._shape)
        self._opening = TurnInput(user_text(request.prompt))
        self._changes = TurnCheckpoint(self.turn, self._opening, ghost_commits=False)
        self.tool_turn.changes = self._changes
        self._loop: TurnLoop | None = None
        self._left = False

    async def run(self) -> str | None:
        async with self.hooked(), self._changes.recorded():
            try:
                self._loop = self._turn_loop()
                last = await self._loop.run(self._opening)
                self._leave(parse_review(last) if last is not None else None)
            except Exception:
                self._leave(None)
                raise
        return None

    def abandon(self) -> None:
        if self._loop is not None:
            self._loop.abandon()
        self._leave(None)

    async def prepare(self) -> None:
        """Do nothing: the tools of a reviewer are determined when the task is made."""

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt:
        return self._shape.prompt(items, self._tools.specs, None)

    def _leave(self, output: ReviewOutputEvent | None) -> None:
        if self._left or not self.turn.emitter.has_started:  # an interrupt may come before the turn has begun
            return
        self._left = True
        services = self.turn.services
        services.state.tokens.leave_context(self._usage_before)
        self.turn.emitter.show(ExitedReview(services.sources.new_turn_id(), output))
        self.turn.record(user_text(note(output)))

    def _turn_loop(self) -> TurnLoop:
        turn, tools, request = self.turn, ToolRuntime(self._tools.by_name, self.tool_turn), self._request
        line, id = self._context_line, turn.services.sources.new_turn_id()
        return TurnLoop(
            model_call=model_call(turn, self._shape, self._transcript, tools, show_messages=False, line=line),
            steps=self,
            compaction=None,
            new_id=turn.services.sources.new_id,
            show_user_message=False,
            first_item=EnteredReview(id, request.prompt, request.user_facing_hint),
        )


def parse_review(text: str) -> ReviewOutputEvent:
    """Parse the findings in a reviewer's answer, in any wrapping; an answer in prose becomes the explanation."""
    start, end = text.find("{"), text.rfind("}")
    for candidate in (text, text[start : end + 1] if 0 <= start < end else ""):
        value = _loads(candidate)
        if isinstance(value, dict):
            try:
                return read(ReviewOutputEvent, value)
            except ValidationError:
                continue
    return ReviewOutputEvent(overall_explanation=text)


def _loads(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def note(output: ReviewOutputEvent | None) -> str:
    """Return the note of the review for the conversation's history."""
    if output is None:
        context = (
            "The user started a review, but it was interrupted. If they ask about it, tell them to start "
            "another review with `/review` and to wait until it has finished."
        )
        results = "None."
    else:
        context = (
            "The user started a review. Here is all that the reviewer said; "
            "the user may choose findings to be dealt with."
        )
        results = output.overall_explanation.strip()
        if output.findings:
            results += "\n" + findings_block(output.findings)
    return (
        f"<user_action>\n  <context>{context}</context>\n  <action>review</action>\n"
        f"  <results>\n  {results}\n  </results>\n</user_action>\n"
    )
