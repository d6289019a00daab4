"""Whether a text follows a JSON Schema, within a time: for the final messages of `exec` and of batches.

`schema_matcher` decides, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import anyio

from app_server.core.own_programs import matcher_command
from app_server_protocol.structs import Json

MOST_SECONDS: Final = 10
"""Processor time of one match."""

WAITS_WITHIN: Final = 60.0
"""Seconds for one match on a busy machine."""


async def schema_mismatch(schema: Mapping[str, Json], text: str) -> str | None:
    """Return the predicate of a sentence that says why a text does not follow a schema, None if it does. That nothing
    can be decided is a reason, too.
    """
    question = json.dumps({"schema": schema, "text": text}).encode()
    with anyio.move_on_after(WAITS_WITHIN):
        try:
            done = await anyio.run_process(
                (*matcher_command(sys.executable), str(MOST_SECONDS)),
                input=question,
                stderr=subprocess.DEVNULL,
                check=False,
                env={},
            )
        except OSError as error:
            return f"cannot be held against the schema: {error.strerror or error}"
        if done.returncode == 0:
            problem: str | None = json.loads(done.stdout)["problem"]
            return problem
    return f"cannot be held against the schema within {MOST_SECONDS} s; a pattern may backtrack without end"
