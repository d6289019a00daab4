"""Builds the launcher's request: a command and its plan as plain bytes and numbers. Pure."""

from __future__ import annotations

import os
from functools import lru_cache

from app_server.core.errors import LaunchError
from app_server.core.exec.command import CommandSpec
from app_server.core.launcher.wire import Value
from app_server.core.sandbox.plan import SandboxPlan
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Confinement:
    """How this machine can confine a command, by the result of the probe."""

    namespaces: bool
    landlock: dict[str, int] | None


def build(
    spec: CommandSpec, confinement: Confinement | None, *, terminal: bool = False, background: bool = True
) -> Value:
    """The request for one command. `confinement` and `spec.sandbox` are both given or both None. With `background`,
    processes may outlive an unconfined command; no confined process outlives its command.
    """
    if not spec.argv or not spec.argv[0]:
        raise LaunchError("command args are empty")
    plan = spec.sandbox
    return {
        "argv": [_encode(argument) for argument in spec.argv],
        "cwd": _encode(spec.cwd),
        "exact_cwd": spec.exact_cwd,
        "env": {
            _variable(name): _variable(value) for name, value in spec.env.items() if name and "=" not in name
        },
        "tty": terminal,
        "background": background and plan is None,
        "confine": None if plan is None or confinement is None else _confine(plan, confinement),
    }


def _confine(plan: SandboxPlan, confinement: Confinement) -> dict[str, Value]:
    return {
        "namespaces": confinement.namespaces,
        "landlock": confinement.landlock,
        "roots": [_encode(root) for root in plan.writable_roots],
        "pinned": [_encode(place) for place in plan.pinned],
        "protected": [_encode(path) for path in plan.protected],
        "reserved": [_encode(name) for name in plan.reserved] if confinement.namespaces else [],
        "home": _encode(plan.home),
        "secrets": [_encode(name) for name in plan.secrets],
        "network": plan.network,
        "private_temp": plan.private_temp and confinement.namespaces,
        "foreign_files": plan.foreign_files,
    }


def _encode(text: str) -> bytes:
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        raise LaunchError("text that is not valid Unicode found in provided data") from None
    if b"\0" in data:
        raise LaunchError("nul byte found in provided data")
    return data


@lru_cache(maxsize=1024)
def _variable(text: str) -> bytes:
    """A name or value of an environment. Cached, because each command has nearly the same environment."""
    return _encode(text)
