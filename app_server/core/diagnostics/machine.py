"""Checks of the machine: Python, system, sandbox, git, disk space. Pure: what was found is passed in."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app_server.core import remedies
from app_server.core.sandbox.probe import SandboxLayer, SandboxState
from protocol.checks import Check, broken, ok, warning

OLDEST_PYTHON = (3, 11)

LITTLE_BYTES = 1 << 30
"""Less free space than this is worth a warning: a few long conversations need it."""

TOO_FEW_BYTES = 32 << 20
"""With less, conversations soon cannot be stored."""

FEW_FILES = 1000


class FreeSpace(Struct, frozen=True):
    """Of a file system, for this user."""

    free_bytes: int
    free_files: int | None
    """None where the file system has no limit."""


def check_python(version: tuple[int, ...], executable: str) -> Check:
    text = ".".join(map(str, version[:3]))
    if version[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return broken("python", f"{text} at {executable}", f"install Python {wanted} or newer")
    return ok("python", f"{text} at {executable}")


def check_system(platform: str, release: str, machine: str) -> Check:
    found = f"{platform} {release} on {machine}"
    if platform not in ("linux", "darwin"):
        return broken(
            "system", found, "run the server on Linux or macOS; no other system has a sandbox for it"
        )
    return ok("system", found)


def check_sandbox(state: SandboxState, layers: Sequence[SandboxLayer]) -> Check:
    """Check the sandbox. `layers` are the results of trying each layer alone."""
    found = "; ".join(
        f"{layer.name}: {'holds' if layer.problem is None else f'does not hold ({layer.problem})'}"
        for layer in layers
    )
    match state.level:
        case "full":
            return ok("sandbox", f"full: {found}")
        case "degraded":
            problem = remedies.weaker_sandbox(state.reason, "; ".join(state.gaps))
            return warning("sandbox", f"{problem.what} ({found})", problem.advice)
        case "none":
            problem = remedies.no_sandbox(state.reason)
            return broken("sandbox", f"{problem.what} ({found})", problem.advice)


def check_git(version: str | None, search_path: str) -> Check:
    """Check git. `version` is what `git --version` prints; None if there is no git."""
    if version is None:
        problem = remedies.git_missing(search_path)
        return warning("git", problem.what, problem.advice)
    return ok("git", version.strip())


def check_disk(name: str, place: str, space: FreeSpace) -> Check:
    found = f"{_megabytes(space.free_bytes)} free at {place}"
    advice = f"free some space at {place}; every conversation is stored"
    if space.free_bytes < TOO_FEW_BYTES:
        return broken(name, found, advice)
    if space.free_files is not None and space.free_files < FEW_FILES:
        return warning(name, f"{found}, but only {space.free_files} more files", f"remove files at {place}")
    if space.free_bytes < LITTLE_BYTES:
        return warning(name, found, advice)
    return ok(name, found)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"
