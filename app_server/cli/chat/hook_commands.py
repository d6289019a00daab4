"""`/hooks`: shows each hook of the folder with what it runs, and lets the user agree to it or switch it off.

Nothing is agreed to but what is on the screen: what is written are the digests of the list that was shown, which is not
read again before. The first `/hooks trust` of a chat only shows the list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from app_server.cli.chat.slash_context import PickerRow, SlashContext
from app_server_protocol.encoding import Json

TRUST, OFF, ON = "trust", "off", "on"
ALL: Final = "all"
EXPECTED: Final = f"expected nothing, or {TRUST}, {OFF} or {ON} with numbers of the list, or `{ALL}`"

_STATES: Final[Mapping[str, str]] = {
    "trusted": "runs",
    "managed": "runs",
    "untrusted": "does not run: you have not agreed to it",
    "modified": "does not run: it changed since you agreed",
}


async def hooks(at: SlashContext, argument: str) -> None:
    """List the hooks; agree to those with the numbers, or switch them. With a screen, ask about each that waits."""
    action, *numbers = argument.split()[:100] or [""]
    if action not in ("", TRUST, OFF, ON) or (bool(action) is not bool(numbers)):
        at.print(EXPECTED, "red")
        return
    if action and at.hooks is not None:
        chosen = _chosen(at.hooks, numbers)
        if chosen is None:
            at.print(EXPECTED, "red")
        else:
            await _write(at, chosen, action)
        return
    entry = await _listed(at)
    _show(at, entry)
    at.hooks = entry["hooks"]
    waiting = [hook for hook in at.hooks if _waits(hook)]
    if waiting and at.screen is None:
        at.print(f"/hooks {TRUST} NUMBER agrees to one, /hooks {TRUST} {ALL} to all of them")
    for hook in waiting if at.screen is not None else ():
        rows = [
            PickerRow("no", "it does not run", False),
            PickerRow("yes", f"run it from the next turn on: {_one_line(hook['command'])}", True),
        ]
        if await at.choose(f"{hook['eventName']} hook: run it?", rows):
            await _write(at, [hook], TRUST)


async def _listed(at: SlashContext) -> Json:
    params = {"threadId": at.chat.thread.id}
    return (await at.chat.server.request_raw("hooks/list", params))["data"][0]


def _show(at: SlashContext, entry: Json) -> None:
    for number, hook in enumerate(entry["hooks"], 1):
        event = f"{hook['eventName']} {hook['matcher'] or ''}".rstrip()
        at.print(f"{number:>3}  {event}: {_state(hook)}", "" if _runs(hook) else "yellow")
        at.print(f"     {_one_line(hook.get('command') or hook['handlerType'])}")
        at.print(f"     {hook['sourcePath']}", "dim")
    for warning in entry["warnings"]:
        at.print(warning, "yellow")
    for error in entry["errors"]:
        at.print(f"{error['path']}: {error['message']}", "red")
    if not any(entry[part] for part in ("hooks", "warnings", "errors")):
        at.print("there are no hooks here")


def _chosen(found: Sequence[Json], numbers: Sequence[str]) -> Sequence[Json] | None:
    """Return the hooks with these numbers; None for a number that is none of the list."""
    if [*numbers] == [ALL]:
        return [hook for hook in found if hook["handlerType"] == "command"]
    places = [int(number) if number.isdecimal() else 0 for number in numbers]
    if not all(1 <= place <= len(found) for place in places):
        return None
    return [found[place - 1] for place in places]


async def _write(at: SlashContext, chosen: Sequence[Json], action: str) -> None:
    edits = [
        {
            "keyPath": f"hooks.state.{json.dumps(hook['key'])}",
            "value": {"trusted_hash": hook["currentHash"]} if action == TRUST else {"enabled": action == ON},
            "mergeStrategy": "upsert",
        }
        for hook in chosen
    ]
    if edits:
        await at.chat.server.request_raw("config/batchWrite", {"edits": edits, "reloadUserConfig": True})
    for hook in (await _listed(at))["hooks"]:
        if any(hook["key"] == each["key"] for each in chosen):
            at.print(
                f"from the next turn on {_state(hook)}: {_one_line(hook.get('command') or hook['handlerType'])}"
            )


def _state(hook: Json) -> str:
    if hook["handlerType"] != "command":
        return "does not run: hooks of this type are not supported"
    return _STATES.get(hook["trustStatus"], hook["trustStatus"]) if hook["enabled"] else "is switched off"


def _runs(hook: Json) -> bool:
    return hook["enabled"] and hook["trustStatus"] in ("trusted", "managed")


def _waits(hook: Json) -> bool:
    return hook["enabled"] and not _runs(hook)


def _one_line(text: str) -> str:
    """Return a command in one line, in which no control character passes for something else."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
