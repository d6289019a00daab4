"""The content of the demo: the small repository, and the model's replies. Pure.

`app-server demo`, `chat --demo`, `exec --demo` and `batch --demo` have this model; they need no key and no network.
"""

from __future__ import annotations

import json

from app_server.cli.demo.scripted_model import Reply, reply, runs, says
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

CHECK = ("sh", "check.sh")
NOTE = ("sh", "-c", "echo repaired >../note.txt")
"""Command that the sandbox stops: it writes outside of the workspace."""

WELCOME = """\
I am a **scripted model**: I know four things.

- say `check`, and I run the check of this folder
- say `repair`, and I propose a patch
- say `note`, and I try to write outside of this folder
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
            text = _comment(said, str(last["output"]))
        elif "repair" in said:
            text, command = "The script greets its second argument. I correct it.\n\n", ("apply_patch", PATCH)
        elif "check" in said:
            text, command = "I run the check.\n\n", CHECK
        elif "note" in said:
            text, command = "I try to leave a note in the folder above this one.\n\n", NOTE
        elif "think" in said:
            text, gap = " ".join(f"{n}," for n in range(1, 400)), 0.1
        call = (runs(command, self._id()),) if command else ()
        return reply(*says(text, self._id()), *call, gap=gap)

    def _id(self) -> str:
        self._calls += 1
        return f"demo-{self._calls}"


def _comment(said: str, output: str) -> str:
    """Return what the model says of the output of its call."""
    if any(word in output for word in ("passed", "Success", "Updated")):
        return "That worked."
    if "note" in said:
        return "The sandbox stopped me: I may write inside of this folder only."
    return "That did not work. Say `repair`, and I propose a patch."


def _last_words(request: Json) -> str:
    said = [item for item in request["input"] if item.get("role") == "user"]
    return json.dumps(said[-1]["content"]).lower() if said else ""
