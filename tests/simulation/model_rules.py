"""Rules for the requests to the model: it gets every message in its turn, learns the outcome of its calls, keeps
everything that no compaction summarised, and gets no output of unbounded size.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app_server.engine.context.history import NO_SUMMARY
from app_server_protocol.encoding import Json
from tests.simulation.sim_model import SimRequest
from tests.simulation.stored import rollout_of
from tests.support.invariants import orphans

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

WORD = re.compile(r"\bw\d+\b")
MOST_OUTPUT = 16 * 1024
"""Maximum number of characters of an output; the server keeps ten kilobytes of one."""


@dataclass(slots=True)
class _Known:
    """What the model has to know of a thread: the words that were said, and the marks of what was done."""

    server: int
    words: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    """Marks of what ended when the next request may have been made already. The request after that one contains them.
    """
    summarised: set[str] = field(default_factory=set)
    """Marks of what was done before a compaction."""
    gone: set[str] = field(default_factory=set)
    """Marks that the request after a compaction did not contain any more."""
    told: set[str] = field(default_factory=set)
    """Marks that were summarised when a person was shown the end of a compaction."""
    messages: list[str] = field(default_factory=list)
    """Texts of the user's messages, oldest first."""
    compacted: bool = False
    """Whether the thread was compacted since the last request."""
    has_no_summary: bool = False
    """Whether the last request was preceded by a compaction without a summary."""


def model_rules(world: "SimWorld") -> list[str]:
    """Return the violations in the requests of a world."""
    broken = [*_unheard(world), *_forgotten(world), *_known_though_taken_back(world)]
    for n, request in enumerate(world.model.requests):
        broken += [f"model request {n}: {problem}" for problem in orphans(request.input)]
        broken += [
            f"model request {n}: the output of {call} has {len(text)} characters"
            for call, text in request.outputs().items()
            if len(text) > MOST_OUTPUT
        ]
    return broken


def _known_though_taken_back(world: "SimWorld") -> Iterator[str]:
    """Yield the requests with a word that had left the conversation. A loss of stored lines may bring it back, and a
    copy of the beginning of its file.
    """
    gone = () if world.loses_lines else world.record.taken_back
    for n, request in enumerate(world.model.requests):
        words = set(_said(world, request))
        for each in gone:
            if (
                (each.thread, world.home) == (request.thread, request.home)
                and each.after_requests < request.number
                and each.word in words
            ):
                yield f"model request {n} has {each.word}, which was taken back"


def _said(world: "SimWorld", request: SimRequest) -> list[str]:
    """Return the words that people said, without those of the commands that they typed."""
    words = WORD.findall(" ".join(request.texts()))
    return [word for word in words if word not in world.record.own_commands]


def _messages(world: "SimWorld", request: SimRequest) -> list[str]:
    """Return the texts of the messages that contain a word of a person."""
    texts = (
        "\n".join(part["text"] for part in item["content"] if "text" in part)
        for item in request.input
        if item["type"] == "message" and item["role"] == "user"
    )
    return [text for text in texts if set(WORD.findall(text)) - world.record.own_commands]


def _kept(world: "SimWorld", before: _Known, now: _Known) -> set[str]:
    """Return the words that a compaction keeps: those of the newest messages that fit into an eighth of a small context
    window.
    """
    window = world.habits.context_window
    if window is None:
        return before.words
    kept: set[str] = set()
    left = window // 8
    newer = [text for text in now.messages if text not in before.messages]
    for text in reversed([*before.messages, *newer]):
        left -= -(-len(text.encode("utf-8", "replace")) // 4)
        if left < 0:
            break
        kept.update(WORD.findall(text))
    return kept & before.words


def _unheard(world: "SimWorld") -> Iterator[str]:
    """Yield words whose turn completed before any request to the model contained them."""
    record, requests = world.record, world.model.requests
    heard: dict[str, int] = {}
    for n, request in enumerate(requests):
        for word in WORD.findall(" ".join(request.texts())):
            heard.setdefault(word, n)
    for word, state in record.words.items():
        until = record.requests_at_end.get(word, len(requests))
        if state == "completed" and heard.get(word, len(requests)) >= until:
            yield f"{word} was accepted, its turn completed, and the model never got it"


def _forgotten(world: "SimWorld") -> Iterator[str]:
    """Yield what a request leaves out that the model was sent before, or that was done in its thread."""
    record, model = world.record, world.model
    known: dict[str, _Known] = {}
    last: dict[str, Json] = {}
    ran, own = list(world.commands.ran), list(record.own_commands_done)
    read, told = list(record.replies.values()), list(record.compacted)
    if world.habits.repeats and "review" in world.habits.deeds:
        ran = []  # a review may have called and run the same again
    forks = sorted(record.forks, key=lambda fork: fork.after_requests)
    for n, request in sorted(enumerate(model.requests), key=lambda each: each[1].number):
        while forks and forks[0].after_requests <= request.number:
            fork = forks.pop(0)
            if fork.parent in known and not (world.loses_lines or fork.parent in record.reverted):
                parent = known[fork.parent]
                known[fork.child] = _Known(parent.server, set(parent.words), set(parent.done))
        while ran and ran[0].after_requests <= request.number:
            for mark in ran.pop(0).marks:
                by = model.called[mark].by
                if not by.is_review and by.thread in known:
                    known[by.thread].done.add(mark)
        while read and read[0].after_requests <= request.number:
            answered = model.answered[read.pop(0).number - 1]
            by = answered.request
            if not (by.is_review or by.is_compaction) and by.thread in known:
                known[by.thread].done |= answered.marks
        while own and own[0].after_requests <= request.number:
            command = own.pop(0)
            if command.thread in known:
                known[command.thread].late.add(command.word)
        while told and told[0].after_requests <= request.number:
            by_thread = known.get(told.pop(0).thread)
            if by_thread is not None:
                by_thread.told |= by_thread.summarised
        if request.is_review or request.home != world.home or request.body == last.get(request.thread):
            continue  # the last condition: a refused request was sent again
        last[request.thread] = request.body
        before = known.get(request.thread)
        if request.is_compaction:
            # A copy that is in progress has what was there before the summary, or the summary.
            being_made = [
                known[fork.child]
                for fork in record.forks
                if fork.parent == request.thread
                and fork.child in known
                and request.number < fork.before_requests
            ]
            for each in [*([before] if before is not None else []), *being_made]:
                each.summarised |= each.done
                each.done.clear()
                each.late.clear()
                each.compacted = True
            # What was before the request may reach the client after it.
            read = [
                each
                for each in read
                if (by := model.answered[each.number - 1].request).thread != request.thread
                or by.number > request.number
            ]
            own = [
                each
                for each in own
                if world.commands.ended.get(each.word, 0) > request.number or each.thread != request.thread
            ]
            continue
        words = set(_said(world, request))
        done = request.reply_marks() | record.own_commands.intersection(WORD.findall(str(request.texts())))
        has_no_summary = any(NO_SUMMARY in text for text in request.texts())
        if before is not None and has_no_summary and not (before.has_no_summary and before.done & done):
            # No part of the history fitted into a request for a summary, so none was sent. It may be the second time.
            before.summarised |= before.done
            before.done.clear()
            before.late.clear()
            before.compacted = True
        now = _Known(request.server, words, done, messages=_messages(world, request))
        now.has_no_summary = has_no_summary
        if before is not None and request.thread not in record.reverted:
            yield from (
                f"model request {n} {problem}" for problem in _differences(world, before, request, now)
            )
            if not _may_lose(world, before, request):
                now.done |= before.late
            now.summarised = before.summarised - done
            now.told = before.told
            now.gone = before.gone | (now.summarised if before.server == now.server else set())
        known[request.thread] = now


def _differences(world: "SimWorld", before: _Known, request: SimRequest, now: _Known) -> Iterator[str]:
    """Yield what a request leaves out, or contains again."""
    expected = before.done
    if _may_lose(world, before, request):
        # What a client was shown before a crash is kept for the next server.
        told = world.record.told_done if not world.loses_lines else ()
        expected = {mark for mark in before.done if (request.thread, mark) in told}
    elif missing := (_kept(world, before, now) if before.compacted else before.words) - now.words:
        yield f"leaves out what was said: {sorted(missing)}"
    if missing := expected - now.done:
        yield f"leaves out what was done: {sorted(missing)}"
    again = set() if world.loses_lines else before.summarised & now.done
    if again and not _all_compacted(world, request.thread):
        again &= before.gone
        if before.server <= world.last_killed < request.server:
            # The model may be sent a compacted history before the compaction is stored; nobody has seen it then.
            again &= before.told
    if again and before.server != request.server and not world.habits.repeats:
        yield f"has again what a compaction took out: {sorted(again)}"


def _may_lose(world: "SimWorld", before: _Known, request: SimRequest) -> bool:
    """Return whether the request may know less, because the server before could not store everything."""
    reopens = "resume" in world.habits.deeds and world.habits.api in ("v1", "acp")
    if world.loses_lines and (world.habits.visitor or reopens or world.habits.company):
        return True  # an unstored thread may have been closed and reopened
    return before.server != request.server and (world.killed.is_set() or world.loses_lines)


def _all_compacted(world: "SimWorld", thread: str) -> bool:
    """Return whether each requested summary is stored. A compaction that was cut off removes nothing."""
    path = rollout_of(world.home, thread)
    stored = 0 if path is None else path.read_bytes().count(b'"type":"compacted"')
    asked = sum(each.is_compaction and each.thread == thread for each in world.model.requests)
    is_copy = any(fork.child == thread for fork in world.record.forks)
    return stored >= asked and not is_copy
