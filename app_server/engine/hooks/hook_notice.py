"""Tells the user that hooks do not run, and what to do. Pure: texts of `LoadedHooks`.

A hook that silently does not run is worse than none: its author believes in a rule that nobody enforces.
"""

from __future__ import annotations

from collections.abc import Sequence

from app_server.engine.hooks.hook_definitions import HookHandler, HookTrust, LoadedHooks

MOST_FILES = 5
"""Maximum number of files that one notice names."""


def hooks_notice(hooks: LoadedHooks) -> str | None:
    """Return one text about all hooks that do not run and about all mistakes; None if there is nothing to say."""
    sentences = [_switched_off(hooks)] if hooks.switched_off else [_waiting(hooks.waiting)]
    if hooks.problems:
        found = [f"{each.path}: {each.message}" for each in hooks.problems]
        sentences.append(f"Mistakes in hooks: {_some(found, '; ')}.")
    if hooks.warnings and not hooks.switched_off:
        sentences.append(f"About hooks: {_some(hooks.warnings, '; ')}.")
    return " ".join(each for each in sentences if each) or None


def _switched_off(hooks: LoadedHooks) -> str:
    count = sum(handler.runs for handler in hooks.handlers())
    return (
        f"{_hooks(count)} not run, because `[features] hooks = false` switches all of them off."
        if count
        else ""
    )


def _waiting(waiting: Sequence[HookHandler]) -> str:
    if not waiting:
        return ""
    modified = sum(handler.trust is not HookTrust.UNTRUSTED for handler in waiting)
    new = len(waiting) - modified
    reasons = [
        text
        for count, text in (
            (
                new,
                f"you have not agreed to {'it' if new == 1 else 'them'} yet"
                if not modified
                else f"{new} new",
            ),
            (modified, _changed(waiting) if not new else f"{modified} {_changed(waiting)}"),
        )
        if count
    ]
    files = list(dict.fromkeys(handler.source_path for handler in waiting))
    return (
        f"{_hooks(len(waiting))} not run ({', '.join(reasons)}): {_some(files, ', ')}. "
        "See what they run and decide with `/hooks`, in `app-server chat` or an editor over ACP; other clients do it "
        "with `hooks/list`."
    )


def _changed(waiting: Sequence[HookHandler]) -> str:
    """Return that hooks changed, with the files that did; without files, their definitions changed."""
    files = list(dict.fromkeys(path for handler in waiting for path in handler.changed_files))
    return "changed since you agreed" + (f": {_some(files, ', ')}" if files else "")


def hook_lines(hooks: Sequence[HookHandler]) -> str:
    """Return the events, commands and files of hooks, in one text."""
    shown = [f"{each.event.value} `{each.definition.command}` ({each.source_path})" for each in hooks]
    return _some(shown, "; ")


def _hooks(count: int) -> str:
    return "1 hook does" if count == 1 else f"{count} hooks do"


def _some(texts: Sequence[str], between: str) -> str:
    shown = between.join(texts[:MOST_FILES])
    return shown if len(texts) <= MOST_FILES else f"{shown} and {len(texts) - MOST_FILES} more"
