"""Builds requests in the form that a provider accepts, from its wire, its quirks, and the lessons of its refusals."""

from __future__ import annotations

import logging

from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.model import refusals
from app_server.engine.model.api_failures import RequestFailure
from app_server.engine.model.model_errors import UnexpectedStatus
from app_server.engine.model.prompt import Prompt, RequestSettings
from app_server.engine.model.quirks import Lessons, Quirks, quirks_of
from app_server.engine.model.sent_items import SentItems, has_new_image
from app_server.engine.model.wires import ModelRequest, Wire, make_wire
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.responses import ResponseItem
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

MOST_LESSONS = 3
"""Maximum number of lessons from the refusals of one request."""

MOST_HISTORIES = 3
"""Number of histories whose instructions and tools are remembered: that of the conversation, and those of its last
reviews.
"""

NO_PATH = (404, 405, 501)
"""Statuses of a path that a server does not serve."""


def _may_change(provider: ProviderConfig) -> bool:
    """Return whether the user left the API of the provider open."""
    return provider.wire_api is WireApi.CHAT and not provider.says_wire


def _is_no_path(failure: RequestFailure) -> bool:
    error = failure.error
    return failure.status in NO_PATH and not (isinstance(error, UnexpectedStatus) and error.model_unknown)


class RequestForm:
    """The form of the requests of one conversation."""

    def __init__(self, provider: ProviderConfig, lessons: Lessons) -> None:
        if _may_change(provider) and lessons.speaks_responses(provider):
            provider = replace(provider, wire_api=WireApi.RESPONSES)
        self.wire: Wire = make_wire(provider.wire_api)
        self._provider, self._lessons = provider, lessons
        self._chat: tuple[Wire, ProviderConfig] | None = None
        """Chat Completions, while the Responses API is used for a model that calls tools only there; else None."""
        self._before: tuple[Wire, ProviderConfig, RequestFailure] | None = None
        """Chat Completions and its refusal, while the Responses API is tried instead; None if it is not being tried."""
        self._sent: SentItems | None = None
        """Filter of the items; None until a refusal or other instructions forbid to send one."""
        self._quirks: tuple[ProviderConfig, str, int, Quirks] | None = None
        """Quirks of the last request, after the provider, the model and the revision of the lessons they are for."""
        self._answers = 0
        self._heads: dict[int, tuple[ResponseItem, tuple[object, ...]]] = {}
        """Instructions and tools of the last request that offered tools, by the identity of the first item of its
        history: a review has a history of its own.
        """

    def begin_answer(self) -> None:
        """Count another answer: its number distinguishes its items from those of other answers."""
        self._answers += 1

    def request(self, prompt: Prompt, settings: RequestSettings) -> ModelRequest:
        """Return the request in the form that this provider accepts, as far as it was learnt. Raises ModelError if the
        user chose an API over which the model calls no tools.
        """
        quirks = self._quirks_of(settings.model)
        if quirks.responses_only and self._provider.wire_api is WireApi.CHAT:
            self._leave_chat(settings.model, quirks, has_tools=bool(prompt.tools))
        elif self._chat is not None and not quirks.responses_only:
            (self.wire, self._provider), self._chat = self._chat, None
        if settings.row.checks_head and prompt.tools and prompt.input:
            self._check_head(prompt, prompt.input[0])
        sent = prompt.input if self._sent is None else self._sent.of(prompt.input)
        return ModelRequest(
            prompt=prompt if sent is prompt.input else replace(prompt, input=sent),
            settings=settings,
            quirks=quirks,
            provider=self._provider.id,
            answer=f"{self._answers}-",
            cache_ttl=self._provider.cache_ttl,
        )

    def _leave_chat(self, model: str, quirks: Quirks, *, has_tools: bool) -> None:
        """Take the Responses API for a model that calls tools only there. Raises ModelError if the user chose the other
        one.
        """
        if _may_change(self._provider):
            self._chat = self.wire, self._provider
            self._take_responses()
        elif has_tools and not quirks.omits("reasoning_effort"):
            problem = user_messages.responses_only(self._provider.id, model)
            raise ModelError(str(problem), ErrorClass.BAD_REQUEST)

    def _take_responses(self) -> None:
        self._provider = replace(self._provider, wire_api=WireApi.RESPONSES)
        self.wire = make_wire(WireApi.RESPONSES)

    def _quirks_of(self, model: str) -> Quirks:
        provider, revision, known = self._provider, self._lessons.revision, self._quirks
        if known is None or known[0] is not provider or known[1:3] != (model, revision):
            quirks = quirks_of(provider, model, self._lessons.of(provider, model))
            known = self._quirks = provider, model, revision, quirks
        return known[3]

    def _check_head(self, prompt: Prompt, first: ResponseItem) -> None:
        """Forget the thoughts that were made with other instructions or tools: the provider refuses or drops them."""
        head = (prompt.instructions, *prompt.tools)
        before = self._heads.pop(id(first), None)
        if before is not None and head != before[1]:
            self._filter().forget_thoughts(prompt.input)
        self._heads[id(first)] = first, head
        while len(self._heads) > MOST_HISTORIES:
            del self._heads[next(iter(self._heads))]

    def _filter(self) -> SentItems:
        self._sent = self._sent or SentItems()
        return self._sent

    def changes_wire(self, failure: RequestFailure) -> bool:
        """Return whether to send the request over the Responses API: the provider does not serve the path of Chat
        Completions, and the user did not choose that API.
        """
        if not _is_no_path(failure) or self._before is not None or not _may_change(self._provider):
            return False
        self._before = self.wire, self._provider, failure
        self._take_responses()
        log.info("the provider %s serves no Chat Completions; the Responses API is tried", self._provider.id)
        return True

    def wire_refused(self, failure: RequestFailure) -> RequestFailure:
        """Return the failure to report: the first one, if the provider does not serve the Responses API either."""
        if self._before is None or not _is_no_path(failure):
            return failure
        self.wire, self._provider, first = self._before
        self._before = None
        return first

    def wire_taken(self) -> None:
        """Remember the API over which a request was answered, if it was tried instead of the other."""
        if self._before is not None:
            self._lessons.learn_responses(self._provider)
            self._before = None

    def learn_window(self, error: ModelError, model: str) -> None:
        """Store the context window that a refusal names; it applies from the next turn on."""
        if isinstance(error, ContextWindowExceeded) and error.window is not None:
            log.info(
                "the provider %s says that %s has a window of %d", self._provider.id, model, error.window
            )
            self._lessons.learn_window(self._provider, model, error.window)

    def read(self, failure: RequestFailure, asked: ModelRequest) -> RequestFailure:
        """Return a failure with the meaning that it has at this provider."""
        error = failure.error
        is_blank = isinstance(error, UnexpectedStatus) and error.status == 400 and not error.body.strip()
        if is_blank and asked.quirks.blank_overflow:
            return RequestFailure(ContextWindowExceeded(), status=failure.status)
        return failure

    def learns(self, failure: RequestFailure, asked: ModelRequest, body: bytes) -> bool:
        """Return whether a refusal has a lesson; the lesson applies from now on."""
        if not isinstance(failure.error, UnexpectedStatus) or failure.status is None:
            return False
        lesson = refusals.lesson_of(failure.status, failure.error.body, body, asked.quirks)
        if lesson is None:
            return False
        if lesson.forgets_thoughts:
            learnt = self._filter().forget_thoughts(asked.prompt.input)
        elif lesson.hides_images:
            # A user who has just sent an image gets the refusal; later requests go on without the image.
            is_new = has_new_image(asked.prompt.input)
            learnt = self._filter().hide_images(asked.prompt.input) and not is_new
        else:
            self._lessons.learn(self._provider, asked.settings.model, lesson.quirks)
            learnt = True
        if learnt:
            log.info("the provider %s refused a request; it is sent again: %s", self._provider.id, lesson)
        return learnt
