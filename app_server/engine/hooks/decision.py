"""One decision from the answers and failures of all hooks of one event. Pure.

Deny counts more than ask, and ask more than allow. A guard that failed counts as its `on_failure` says. An `allow`
counts only from a hook that may approve, so a hook that is added never lets run what was refused without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app_server.engine.hooks.hook_definitions import HookHandler, LoadedHooks, OnFailure, stricter_on_failure
from app_server.engine.hooks.hook_output import HookFailure, HookOutput, Verdict
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEntryKind, HookEvent, HookRole, HookRunStatus
from app_server_protocol.engine.hook_runs import HookRunEntry

_OF_FAILURE: Final = {
    OnFailure.ALLOW: Verdict.NONE,
    OnFailure.ASK: Verdict.ASK,
    OnFailure.BLOCK: Verdict.DENY,
}
SHOWN_COMMAND = 120
"""Characters of a command in the name of its hook."""


class HookResult(Struct, frozen=True):
    """Answer of one handler."""

    run_id: str
    handler: HookHandler
    outcome: HookOutput | HookFailure


class HookContext(Struct, frozen=True):
    """Text of a hook for the model."""

    run_id: str
    handler: HookHandler
    text: str


class HookRewrite(Struct, frozen=True):
    """Another input for the call, and the handler that wants it."""

    handler: HookHandler
    input: dict[str, Json]
    verdict: Verdict
    """Opinion of this handler about the call with that input."""
    reason: str


class HookBlock(Struct, frozen=True):
    """A reason why something is blocked, and the run of the hook that gave it."""

    run_id: str
    reason: str


class HookDecision(Struct, frozen=True, kw_only=True):
    """The decision of all hooks of one event."""

    verdict: Verdict = Verdict.NONE
    reason: str = ""
    """Reason of a denial or of a question; empty for other verdicts."""
    blocks: tuple[HookBlock, ...] = ()
    """All denials, in display order."""
    rewrite: HookRewrite | None = None
    """The last other input in display order; None if the input stays or is denied."""
    contexts: tuple[HookContext, ...] = ()
    stop: str | None = None
    """Text for the user about why the turn ends; None if it goes on."""
    warnings: tuple[str, ...] = ()
    """Texts for the user."""


NO_DECISION: Final = HookDecision()


def hook_name(handler: HookHandler) -> str:
    """Return the name of a hook in texts for people."""
    command = handler.definition.command
    if not command:
        return f"of {handler.source_path}"
    shown = command if len(command) <= SHOWN_COMMAND else f"{command[:SHOWN_COMMAND]}…"
    return f"`{shown}` of {handler.source_path}"


def failure_text(handler: HookHandler, failure: HookFailure) -> str:
    return f"The {handler.event.value} hook {hook_name(handler)} {failure.what}."


def decide(event: HookEvent, results: Sequence[HookResult], hooks: LoadedHooks) -> HookDecision:
    """Return the decision of all handlers of an event. `results` are in display order. A handler that nobody waits for
    decides nothing.
    """
    counted = [each for each in results if not each.handler.definition.is_async]
    verdicts = [_verdict(event, each, hooks) for each in counted]
    verdict = max((verdict for verdict, _ in verdicts), default=Verdict.NONE)
    blocks = tuple(
        HookBlock(result.run_id, reason)
        for result, (each, reason) in zip(counted, verdicts, strict=True)
        if each is Verdict.DENY
    )
    reasons = [reason for each, reason in verdicts if each is verdict and reason]
    outputs = [(each, each.outcome) for each in counted if isinstance(each.outcome, HookOutput)]
    rewrites = [
        HookRewrite(result.handler, dict(output.updated_input), *opinion)
        for result, opinion in zip(counted, verdicts, strict=True)
        if isinstance(output := result.outcome, HookOutput) and output.updated_input is not None
    ]
    stops = [output.stop_reason or _stopped_by(result.handler) for result, output in outputs if output.stops]
    return HookDecision(
        verdict=verdict,
        reason="; ".join(reasons) if verdict > Verdict.ALLOW else "",
        blocks=blocks,
        rewrite=rewrites[-1] if rewrites and verdict is not Verdict.DENY else None,
        contexts=tuple(
            HookContext(result.run_id, result.handler, output.context)
            for result, output in outputs
            if output.context
        ),
        stop=stops[0] if stops else None,
        warnings=tuple(_warnings(outputs)),
    )


def _verdict(event: HookEvent, result: HookResult, hooks: LoadedHooks) -> tuple[Verdict, str]:
    handler, outcome = result.handler, result.outcome
    if isinstance(outcome, HookFailure):
        if not event.has(HookRole.GUARDS):
            return Verdict.NONE, ""
        on_failure = stricter_on_failure(hooks.settings.on_failure, handler.definition.on_failure)
        return _OF_FAILURE[on_failure], failure_text(handler, outcome)
    if outcome.verdict is Verdict.ALLOW and not hooks.may_approve(handler):
        return Verdict.NONE, ""
    reason = outcome.reason
    if outcome.verdict is Verdict.ASK:
        reason = f"the hook {hook_name(handler)} asks" + (f": {reason}" if reason else "")
    return outcome.verdict, reason


def _stopped_by(handler: HookHandler) -> str:
    return f"The {handler.event.value} hook {hook_name(handler)} ended the turn."


def _warnings(outputs: Sequence[tuple[HookResult, HookOutput]]) -> list[str]:
    texts: list[str] = []
    for result, output in outputs:
        if output.message:
            texts.append(output.message)
        texts += [
            f"The {result.handler.event.value} hook {hook_name(result.handler)}: {each}."
            for each in output.warnings
        ]
    return texts


def run_status(event: HookEvent, result: HookResult) -> tuple[HookRunStatus, tuple[HookRunEntry, ...]]:
    """Return how a run is shown: its status, and its entries."""
    outcome = result.outcome
    if isinstance(outcome, HookFailure):
        return HookRunStatus.FAILED, (HookRunEntry(HookEntryKind.ERROR, f"the hook {outcome.what}"),)
    entries = [
        HookRunEntry(HookEntryKind.WARNING, text) for text in (outcome.message, *outcome.warnings) if text
    ]
    if outcome.context:
        entries.append(HookRunEntry(HookEntryKind.CONTEXT, outcome.context))
    if outcome.verdict is Verdict.DENY:
        entries.append(HookRunEntry(HookEntryKind.FEEDBACK, outcome.reason))
    if outcome.stops:
        text = outcome.stop_reason or _stopped_by(result.handler)
        entries.append(HookRunEntry(HookEntryKind.STOP, text))
        return HookRunStatus.STOPPED, tuple(entries)
    blocked = outcome.verdict is Verdict.DENY and not result.handler.definition.is_async
    return HookRunStatus.BLOCKED if blocked else HookRunStatus.COMPLETED, tuple(entries)
