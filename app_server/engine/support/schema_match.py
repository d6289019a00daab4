"""Validates a text against a JSON Schema, with a time limit: for the final messages of `exec` and of batches.

`schema_matcher` decides, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import anyio

from app_server.engine.support.helpers import matcher_command
from app_server_protocol.encoding import Json

MOST_SECONDS: Final = 10
"""Maximum processor time of one match, in seconds."""

WAITS_WITHIN: Final = 60.0
"""Longest wait for one match on a busy machine, in seconds."""


async def schema_mismatch(schema: Mapping[str, Json], text: str) -> str | None:
    """Return the predicate of a sentence that says why a text does not follow a schema; None if it does. It is also a
    reason that the match could not be decided.
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
