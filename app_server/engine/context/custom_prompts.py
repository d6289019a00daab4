"""Finds the user's custom prompts: every `*.md` file of `prompts` in the home, named by its file name.

It omits files that are unreadable, not regular or not UTF-8, so that one bad file does not affect the others.
"""

from __future__ import annotations

from pathlib import Path

from app_server.engine.support.prompt_text import split_front_matter
from app_server.engine.support.rooted_fs import read_named
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server_protocol.engine.notices import CustomPrompt

MAX_BYTES = 1024 * 1024
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


def _text(path: Path) -> str | None:
    """Return the text of a regular file that is not one of the home's credentials; None otherwise."""
    try:
        return text_of_bytes(read_named(path, MAX_BYTES, path.parent.parent))
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
"""Folder of the prompts, relative to the home of the server."""
