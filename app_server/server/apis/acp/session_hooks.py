"""`/hooks` of a session: the list of hooks with what each one runs, and the user's consent to those of the list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from app_server.engine.config.settings_service import UserSettings
from app_server.engine.hooks.hook_definitions import HookHandler, HookTrust, LoadedHooks
from app_server.engine.hooks.listed_hooks import ListedHooks
from app_server.engine.support.engine_errors import ConfigError, InvalidSettings
from app_server.server.apis.acp.formatting import fenced
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.engine.hook_events import HookHandlerType

ALL: Final = "all"
ACTIONS: Final = ("trust", "off", "on")
EXPECTED: Final = (
    "Expected `/hooks`, or `/hooks trust`, `off` or `on` with numbers of the shown list, or `all`.\n"
)


class SessionHooks:
    """The hooks that one session was shown."""

    def __init__(self, source: UserSettings, live: LiveConversation) -> None:
        self._source, self._live = source, live
        self._listed = ListedHooks()
        self._shown: Sequence[HookHandler] | None = None
        """Hooks of the list that was shown last; None before the first."""

    async def answer(self, argument: str) -> str:
        """Return the answer to the command: the list, or what has changed. Raises ConfigError."""
        action, *numbers = argument.split() or [""]
        if not action or self._shown is None:
            hooks = await self._load()
            self._shown = hooks.handlers()
            return _list(hooks)
        chosen = _chosen(self._shown, numbers)
        if action not in ACTIONS or not chosen:
            return EXPECTED
        try:
            await self._write(chosen, action)
        except InvalidSettings as refused:
            return f"{refused}\n"
        keys = {each.key for each in chosen}
        changed = [each for each in (await self._load()).handlers() if each.key in keys]
        return "From the next turn on:\n" + "".join(
            f"- {_state(each)}: {_command(each)}\n" for each in changed
        )

    async def _load(self) -> LoadedHooks:
        facts = self._live.session.facts
        return await self._listed.list(facts.config, facts.settings.cwd, self._source)

    async def _write(self, chosen: Sequence[HookHandler], action: str) -> None:
        """Write the consent to what was shown. Raises InvalidSettings."""
        writes = [
            (
                f"hooks.state.{json.dumps(each.key)}",
                {"trusted_hash": each.digest} if action == "trust" else {"enabled": action == "on"},
                True,
            )
            for each in chosen
        ]
        await self._source.file.write(self._listed.completed(writes))


def _chosen(shown: Sequence[HookHandler], numbers: Sequence[str]) -> Sequence[HookHandler]:
    """Return the hooks with these numbers; none if one of them is no number of the list."""
    if [*numbers] == [ALL]:
        return [each for each in shown if each.definition.type is HookHandlerType.COMMAND]
    places = [int(number) if number.isdecimal() and len(number) < 6 else 0 for number in numbers]
    return [shown[place - 1] for place in places] if all(1 <= each <= len(shown) for each in places) else []


def _list(hooks: LoadedHooks) -> str:
    parts = [
        f"{number}. {each.event} {each.definition.matcher or ''}".rstrip()
        + f": {_state(each)} ({each.source_path})\n\n{fenced(_command(each))}\n"
        for number, each in enumerate(hooks.handlers(), 1)
    ]
    parts += [f"- {text}\n" for text in hooks.warnings]
    parts += [f"- {each.path}: {each.message}\n" for each in hooks.problems]
    if hooks.switched_off:
        parts.append("All hooks are switched off (`[features] hooks = false`).\n")
    if hooks.waiting:
        parts.append("`/hooks trust NUMBER` agrees to one, `/hooks trust all` to all of them.\n")
    return "".join(parts) or "There are no hooks here.\n"


def _state(handler: HookHandler) -> str:
    if handler.definition.type is not HookHandlerType.COMMAND:
        return "does not run, hooks of this type are not supported"
    if not handler.enabled:
        return "is switched off"
    match handler.trust:
        case HookTrust.TRUSTED:
            return "runs"
        case HookTrust.UNTRUSTED:
            return "does not run, you have not agreed to it"
        case HookTrust.MODIFIED | HookTrust.LAPSED:
            return "does not run, it changed since you agreed"


def _command(handler: HookHandler) -> str:
    """Return the command in one line, in which no control character passes for something else."""
    text = handler.definition.command or handler.definition.type.value
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


async def hooks_text(hooks: SessionHooks, argument: str) -> str:
    """Return the answer to `/hooks`, or the reason why there is none."""
    try:
        return await hooks.answer(argument)
    except ConfigError as error:
        return f"{error}\n"
