"""What the model says in `app-server chat --demo` and `app-server exec --demo`, which need no key and no network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from app_server.demo.script import CHECK, PATCH
from app_server.demo.scripted_model import Reply, ScriptedModel, reply, runs, says
from app_server.demo.workspace import DemoWorkspace, temporary_workspace
from protocol.structs import Json

GAP: Final = 0.02
"""Seconds between two words."""

WELCOME: Final = """\
I am a **scripted model**: I know three things.

- say `check`, and I run the check of this folder
- say `repair`, and I propose a patch
- say `think`, and I take my time, so that you can interrupt or join me

Everything else I answer with this text.
"""


@asynccontextmanager
async def demo_surroundings(environment: Mapping[str, str]) -> AsyncIterator[DemoWorkspace]:
    """Make a temporary folder whose settings name this model, which is served until the block is left.

    Raises DemoSetupError.
    """
    async with temporary_workspace(environment) as workspace, ScriptedModel(DemoModel()).serving() as url:
        workspace.configure(url)
        yield workspace


class DemoModel:
    """Reacts to the last words of the user, and to the output of what it called."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, request: Json) -> Reply:
        last = request["input"][-1]
        if last["type"] == "function_call_output":
            return self._after(str(last["output"]))
        said = _last_words(request)
        if "repair" in said:
            return reply(
                *says("The script greets its second argument. I correct it.\n\n", self._id()),
                runs(("apply_patch", PATCH), self._id()),
                gap=GAP,
            )
        if "check" in said:
            return reply(*says("I run the check.\n\n", self._id()), runs(CHECK, self._id()), gap=GAP)
        if "think" in said:
            return reply(*says(" ".join(f"{n}," for n in range(1, 400)), self._id()), gap=0.1)
        return reply(*says(WELCOME, self._id()), gap=GAP)

    def _after(self, output: str) -> Reply:
        passed = "passed" in output or "Success" in output or "Updated" in output
        text = "That worked." if passed else "That did not work. Say `repair`, and I propose a patch."
        return reply(*says(text, self._id()), gap=GAP)

    def _id(self) -> str:
        self._calls += 1
        return f"demo-{self._calls}"


def _last_words(request: Json) -> str:
    said = [item for item in request["input"] if item.get("role") == "user"]
    return json.dumps(said[-1]["content"]).lower() if said else ""
