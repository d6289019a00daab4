"""The content of the demo: the small repository, the user's messages, and the model's replies. Pure.

The model's part reacts: if a person denies an action, the model continues without it. The module also has the model's
replies of `app-server chat --demo` and `app-server exec --demo`, which need no key and no network.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from msgspec import Struct

from app_server.cli.demo.scripted_model import Reply, Usage, reply, runs, says
from app_server_protocol.encoding import Json

GAP = 0.015
"""Pause between two words, in seconds: slow enough to show that they stream."""

FILES = {
    "greet.sh": '#!/bin/sh\n# Greets whoever is named.\necho "Hello, $2!"\n',
    "check.sh": (
        "#!/bin/sh\n"
        "answer=$(sh greet.sh World)\n"
        'if [ "$answer" = "Hello, World!" ]; then\n'
        '    echo "passed: $answer"\n'
        "else\n"
        "    echo \"failed: expected 'Hello, World!', got '$answer'\"\n"
        "    exit 1\n"
        "fi\n"
    ),
}
REPAIRED = FILES["greet.sh"].replace("$2", "$1")

PATCH = """\
*** Begin Patch
*** Update File: greet.sh
@@
 # Greets whoever is named.
-echo "Hello, $2!"
+echo "Hello, $1!"
*** End Patch"""

READ = ("cat", "greet.sh")
CHECK = ("sh", "check.sh")

REPAIR = "The check fails. Find out why, and repair it."
LEAVE_A_NOTE = "Now leave a note for the others in the folder above this one."
CHECK_AGAIN = "I am back. Does the check pass by now?"


class Script(Struct):
    """The model's replies in order. It is called with each request, as an author."""

    outside: Path
    written: int = 0
    usages: list[Usage] = msgspec.field(default_factory=list)
    """Usage of each reply so far."""

    def __call__(self, request: Json) -> Reply:
        scene = scenes(self.outside)[self.written]
        self.written += 1
        events = scene.events(last_output(request), self.written)
        usage = Usage(input=400 + 90 * self.written, output=20 + 5 * len(events))
        self.usages.append(usage)
        return reply(*events, usage=usage, gap=GAP)


def last_output(request: Json) -> str:
    """Return the output of the latest tool call, as the model receives it. Return nothing if there was no call."""
    outputs = [item["output"] for item in request["input"] if item["type"] == "function_call_output"]
    return str(outputs[-1]) if outputs else ""


def denied(output: str) -> bool:
    return "rejected by user" in output


def passed(output: str) -> bool:
    try:
        return bool(json.loads(output)["metadata"]["exit_code"] == 0)
    except (ValueError, KeyError, TypeError):
        return False


class Scene(Struct, frozen=True):
    """A message of the model, which depends on the outcome of its last call, and the command that it runs next."""

    words: str
    call_id: str = ""
    command: tuple[str, ...] = ()
    denied: str | None = None
    """Message if a person denied the last call. None if it is the same."""
    passed: str | None = None

    def events(self, output: str, number: int) -> tuple[Json, ...]:
        words = self.words
        if self.denied is not None and denied(output):
            words = self.denied
        elif self.passed is not None and passed(output):
            words = self.passed
        call = (runs(self.command, self.call_id),) if self.command else ()
        return (*says(words, f"msg-{number}"), *call)


def scenes(outside: Path) -> tuple[Scene, ...]:
    """Return the model's part. It tries to write to `outside`, where it may not write."""
    return (
        Scene("I will read the script first; that needs nobody's leave.", "call-read", READ),
        Scene(
            "It prints its second argument. Let me run the check to see whether that is what fails.",
            "call-check",
            CHECK,
        ),
        Scene(
            "The name is empty: it must be the first argument. I would change one line.",
            "call-patch",
            ("apply_patch", PATCH),
            denied="Then I do not run it; the mistake can be seen from the script alone. I would change one line.",
        ),
        Scene(
            "As you wish: greet.sh stays as it is. It would have to print $1 instead of $2.",
            passed="Repaired: greet.sh greets its first argument now, which is what check.sh gives it.",
        ),
        Scene("I will try to write it there.", "call-note", ("sh", "-c", f"echo repaired > {outside}")),
        Scene(
            "The sandbox stopped me: I may write inside the workspace only. There is no note.",
            passed="The note is written.",
        ),
        Scene("You asked me to repair greet.sh. I will run its check.", "call-again", CHECK),
        Scene(
            "No, it still fails.", denied="Then I cannot tell: I did not run it.", passed="Yes, it passes."
        ),
    )


WELCOME = """\
I am a **scripted model**: I know three things.

- say `check`, and I run the check of this folder
- say `repair`, and I propose a patch
- say `think`, and I take my time, so that you can interrupt or join me

Everything else I answer with this text.
"""


class DemoModel:
    """Model that reacts to the last message of the user, and to the output of its calls."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, request: Json) -> Reply:
        last, said = request["input"][-1], _last_words(request)
        command: tuple[str, ...] = ()
        text, gap = WELCOME, GAP
        if last["type"] == "function_call_output":
            worked = any(word in str(last["output"]) for word in ("passed", "Success", "Updated"))
            text = "That worked." if worked else "That did not work. Say `repair`, and I propose a patch."
        elif "repair" in said:
            text, command = "The script greets its second argument. I correct it.\n\n", ("apply_patch", PATCH)
        elif "check" in said:
            text, command = "I run the check.\n\n", CHECK
        elif "think" in said:
            text, gap = " ".join(f"{n}," for n in range(1, 400)), 0.1
        call = (runs(command, self._id()),) if command else ()
        return reply(*says(text, self._id()), *call, gap=gap)

    def _id(self) -> str:
        self._calls += 1
        return f"demo-{self._calls}"


def _last_words(request: Json) -> str:
    said = [item for item in request["input"] if item.get("role") == "user"]
    return json.dumps(said[-1]["content"]).lower() if said else ""
