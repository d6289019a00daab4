"""Finds the user's custom prompts: every `*.md` file of `prompts` in the home, named by its file name.

It omits files that are unreadable, not regular or not UTF-8, so that one bad file does not affect the others.
"""

from __future__ import annotations

from pathlib import Path

from app_server.beneath import read_named
from protocol.events.notices import CustomPrompt

MAX_BYTES = 1024 * 1024
FENCE = "---"
HINT_KEYS = ("argument-hint", "argument_hint")


def discover_prompts(folder: Path) -> tuple[CustomPrompt, ...]:
    """List the prompts of a folder of the home, sorted by name. Blocks: call it in a thread."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return ()
    found = [prompt for path in entries if (prompt := _prompt(path)) is not None]
    return tuple(sorted(found, key=lambda prompt: prompt.name))


def _prompt(path: Path) -> CustomPrompt | None:
    if path.suffix.lower() != ".md":
        return None
    text = _text(path)
    if text is None or not _is_text(str(path)):
        return None
    settings, body = split_front_matter(text)
    hint = next((settings[key] for key in HINT_KEYS if key in settings), None)
    return CustomPrompt(
        name=path.stem,
        path=str(path),
        content=body,
        description=settings.get("description"),
        argument_hint=hint,
    )


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """The settings between the `---` lines at the top, and the rest. Without a closing line, everything is content."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != FENCE:
        return {}, text
    settings: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=1):
        plain = line.strip()
        if plain == FENCE:
            return settings, "".join(lines[number + 1 :])
        key, colon, value = plain.partition(":")
        if colon and not plain.startswith("#"):
            settings[key.strip().lower()] = _unquoted(value.strip())
    return {}, text


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _text(path: Path) -> str | None:
    """Read a regular file that is none of the home's credentials."""
    try:
        return read_named(path, MAX_BYTES, path.parent.parent).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _is_text(value: str) -> bool:
    """Return whether the name is valid Unicode: clients cannot receive other names."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


FOLDER = "prompts"
"""Relative to the home of the server."""
