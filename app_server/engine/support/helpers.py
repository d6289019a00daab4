"""The server's own programs that run in processes of their own, usually with the standard library alone: the command
line of each.

Usually the interpreter imports the program from the installation. A server that runs for weeks carries the code of the
programs instead, from its start on, so that the programs have its own version even if the installation changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import app_server_protocol

WRITER = "app_server.engine.workspace.patch.atomic_writer"
APPLY_PATCH = "app_server.engine.workspace.patch.apply_patch"
READER = "app_server.engine.workspace.files.model_reads"
LAUNCHER = "app_server.engine.sandbox.launcher.launcher_main"
MATCHER = "app_server.engine.support.schema_matcher"

INSTALLED = __file__.rsplit("/", 4)[0]
"""Folder with the package `app_server`."""

IMPORT_FOLDERS = tuple(dict.fromkeys((INSTALLED, app_server_protocol.__file__.rsplit("/", 2)[0])))
"""Folders with our packages: one if a wheel is installed, two in this repository."""

_carried: dict[str, str] = {}
"""Code of each program, if this process carries it: a script that can import its modules."""


def carry(programs: Mapping[str, str]) -> None:
    """Start the programs from this code from now on."""
    _carried.update(programs)


def writer_command(python: str) -> tuple[str, ...]:
    """Return the command line of the program that writes a patch with the patch's rights. It reads a document
    on stdin.
    """
    return (python, "-I", "-S", "-c", _script(WRITER))


def apply_patch_command(python: str) -> tuple[str, ...]:
    """Return the command line of `apply_patch`, without its argument. Texts and names are UTF-8 in every locale."""
    return (python, "-I", "-S", "-X", "utf8", "-c", _script(APPLY_PATCH))


def reader_command(python: str) -> tuple[str, ...]:
    """Return the command line of the program that reads files for the model, without its request."""
    return (python, "-I", "-S", "-c", _script(READER))


def matcher_command(python: str) -> tuple[str, ...]:
    """Return the command line of the program that validates texts against schemas. It needs a library besides the
    standard one.
    """
    return (python, "-I", "-X", "utf8", "-c", _script(MATCHER))


def launcher_command(python: str) -> tuple[str, ...]:
    """Return the command line of the launcher, without its descriptor."""
    return (python, "-I", "-S", "-c", _script(LAUNCHER))


def _script(name: str) -> str:
    """Return the script that runs a program. The script imports it: a file given by its path is compiled at each start.

    Our folders are at the end of the path, so that nothing installed beside our packages shadows a standard module.
    """
    finds = _carried.get(name) or f"import sys; sys.path += {IMPORT_FOLDERS!r}; "
    return f"{finds}from {name} import main; sys.exit(main(sys.argv[1:]))"
