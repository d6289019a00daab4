"""Strict providers with other programs: which of them refuse the requests of a program's `exec`, by their own rules.

`python -m benchmarks.strict_providers PROGRAM...` plays a thread of three turns (a greeting, two parallel calls, a
later start that goes on) with each provider of `tests/support/strict_*`, and prints a row for each provider. A cell is
the number of turns that completed, with the first rule by which a request was refused.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from tests.support import strict_chat_rows, strict_responses
from tests.support.scripted_model import ScriptedModel
from tests.support.strict_chat import StrictChat
from tests.support.strict_provider import Answer, Author, Strict, shell
from tests.support.strict_responses import StrictResponses

ANSWERS = (
    Answer("Hello.", thought="A greeting."),
    Answer("I look.", (shell("functions.shell:0", "echo one"), shell("call_b", "echo two")), "Two looks."),
    Answer("Both are there.", thought="Done."),
    Answer("Back here.", thought="Later."),
)
TURNS = ("hello", "look", "again")
THREAD = re.compile(rb'"thread_id": ?"([^"]+)"')
SECONDS = 60.0
"""Time limit of one turn."""


def providers() -> Iterator[tuple[str, Strict]]:
    """Yield the providers with the names of their rows."""
    yield from ((name, StrictChat(rules)) for name, rules in strict_chat_rows.PROVIDERS.items())
    yield from ((name, StrictResponses(rules)) for name, rules in strict_responses.PROVIDERS.items())


async def played(program: str, name: str, strict: Strict) -> str:
    """Return the cell of one provider for one program."""
    author = Author(strict, list(ANSWERS))
    model = ScriptedModel(author=author)
    done = 0
    with tempfile.TemporaryDirectory() as root:
        home, folder = Path(root, "home"), Path(root, "work")
        home.mkdir()
        folder.mkdir()
        async with model.serving() as address:
            (home / "config.toml").write_text(settings(name, strict, address))
            resumed: list[str] = []
            for text in TURNS:
                command = [program, "exec", "--skip-git-repo-check", "--json", *resumed, text]
                thread = await anyio.to_thread.run_sync(run, command, home, folder)
                if thread is None:
                    break
                resumed = ["resume", thread]
                done += 1
    first = author.refusals[0].split(": ")[0] if author.refusals else ""
    return f"{done} of {len(TURNS)}" + (f", refused: {first}" if first else "")


def settings(name: str, strict: Strict, address: str) -> str:
    return (
        f'model = "{strict.model}"\nmodel_provider = "strict"\napproval_policy = "never"\n'
        f'[model_providers.strict]\nname = "{name}"\nbase_url = "{address}"\nwire_api = "{strict.wire}"\n'
        'env_key = "STRICT_KEY"\nstream_max_retries = 1\nrequest_max_retries = 1\n'
    )


def run(command: Sequence[str], home: Path, folder: Path) -> str | None:
    """Run one turn and return the id of its thread; None if the turn failed or the time was over."""
    env = {**os.environ, "CODEX_HOME": str(home), "STRICT_KEY": "k", "HOME": str(home)}
    try:
        ended = subprocess.run(
            command,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    begun = THREAD.search(ended.stdout)
    return begun[1].decode() if begun is not None and ended.returncode == 0 else None


async def main(programs: Sequence[str]) -> None:
    print("| provider | wire | " + " | ".join(programs) + " |")  # noqa: T201
    print("|---|---|" + "---|" * len(programs))  # noqa: T201
    # Each program meets providers of its own: they remember what they have answered.
    for row in zip(*(providers() for _ in programs), strict=True):
        cells = [await played(program, *each) for program, each in zip(programs, row, strict=True)]
        name, strict = row[0]
        print(f"| {name} | {strict.wire} | " + " | ".join(cells) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
