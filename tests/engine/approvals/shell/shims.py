"""A PATH of programs that only record their calls, and shells that run scripts with it."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

BUILTINS = ("cd", "echo", "false", "pwd", "true")
"""Programs of the tests that shells have built in."""

_SHIM = """#!/bin/sh
{ printf '%s\\0' "$#" "${0##*/}" "$@"; } >> LOG
read -r status < STATUS
exit "$status"
"""


class Shims:
    """Recording programs. bash is told to forget its builtins. dash cannot do that, so its calls of builtins are not
    seen.
    """

    def __init__(self, folder: Path, programs: Iterable[str]) -> None:
        self._log, self._status, self._startup = folder / "log", folder / "status", folder / "startup"
        self._path, self._cwd = folder / "bin", folder / "cwd"
        self._path.mkdir()
        self._cwd.mkdir()
        text = _SHIM.replace("LOG", str(self._log)).replace("STATUS", str(self._status))
        for name in programs:
            (self._path / name).write_text(text)
            (self._path / name).chmod(0o755)
        self._startup.write_text(f"enable -n {' '.join(BUILTINS)}\n")

    def calls(self, shell: str, script: str) -> set[tuple[str, ...]]:
        """Return the calls of a script over two runs: one in which every program succeeds, and one in which every
        program fails. The first runs all that follows `&&`, the second all that follows `||`.
        """
        seen: set[tuple[str, ...]] = set()
        for status in ("0", "1"):
            self._status.write_text(status + "\n")
            self._log.write_bytes(b"")
            env = {"PATH": str(self._path), "BASH_ENV": str(self._startup), "LC_ALL": "C.UTF-8"}
            subprocess.run(
                [shell, "-c", script],
                cwd=self._cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=20,
                check=False,
            )
            seen |= set(_records(self._log.read_bytes()))
        return seen


def _records(log: bytes) -> Iterable[tuple[str, ...]]:
    fields = iter([os.fsdecode(field) for field in log.split(b"\0")[:-1]])
    for count in fields:
        yield tuple(next(fields) for _ in range(int(count) + 1))
