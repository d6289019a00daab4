"""Programs of ours that run in processes of their own, with the standard library alone: how each is started.

As a rule the interpreter is given the file. A server that lives for weeks carries their code instead, from its start
on: what it starts is then of its own version, whatever has become of the installation meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

WRITER = "app_server.core.patch.atomic_writer"
APPLY_PATCH = "app_server.core.patch.apply_patch"
READER = "app_server.core.files.model_reads"
LAUNCHER = "app_server.core.launcher.main"

INSTALLED = __file__.rsplit("/", 3)[0]
"""The folder with our packages."""

STARTS = "__file__, program = Carried.code[{name!r}]\nexec(program)\n"

_carried: dict[str, str] = {}
"""The code of each program, where this process carries it: a script that can import its modules."""


def carry(programs: Mapping[str, str]) -> None:
    """Start programs from this code from now on."""
    _carried.update(programs)


def writer_command(python: str) -> tuple[str, ...]:
    """Return the command line of what writes a patch, to run with its rights. It reads a document on stdin."""
    return (python, "-I", "-S", *_program(WRITER))


def apply_patch_command(python: str) -> tuple[str, ...]:
    """Return the command line of `apply_patch` without its argument. Texts and names are UTF-8 in every locale."""
    return (python, "-I", "-S", "-X", "utf8", *_program(APPLY_PATCH))


def reader_command(python: str) -> tuple[str, ...]:
    """Return the command line of what reads files for the model, without its request."""
    return (python, "-I", "-S", *_program(READER))


def launcher_command(python: str) -> tuple[str, ...]:
    """Return the command line of the launcher without its descriptor. A script would be compiled at each start."""
    start = "from app_server.core.launcher.main import main; main()"
    finds = _carried.get(LAUNCHER) or f"import sys; sys.path.append({INSTALLED!r}); "
    return (python, "-I", "-S", "-c", finds + start)


def _program(name: str) -> tuple[str, ...]:
    """Return how the interpreter is told the program: by its file, or by its code."""
    if name in _carried:
        return ("-c", _carried[name] + STARTS.format(name=name))
    return (f"{INSTALLED}/{name.replace('.', '/')}.py",)
