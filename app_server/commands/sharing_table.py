"""The rows of the commands about the server that all clients share."""

from __future__ import annotations

from typing import Final

from app_server.commands.rows import LOOK_AFTER, Example, Subcommand

DAEMON: Final = (
    Subcommand(
        "daemon start",
        LOOK_AFTER,
        "start the server that all clients share, unless it runs",
        "",
        "sharing",
        (
            Example("app-server daemon start"),
            Example("app-server daemon start -c app_server.client_rights=false", "for all its clients"),
        ),
    ),
    Subcommand(
        "daemon status",
        LOOK_AFTER,
        "show its clients and what it does",
        "",
        "sharing",
        (
            Example("app-server daemon status", "exit status 1 where there is none"),
            Example("app-server daemon status --json"),
        ),
    ),
    Subcommand(
        "daemon version",
        LOOK_AFTER,
        "show its version, and that of this program",
        "",
        "sharing",
        (
            Example("app-server daemon version", "exit status 1 where there is none"),
            Example("CODEX_HOME=/srv/agent app-server daemon version", "in another home"),
        ),
    ),
    Subcommand(
        "daemon stop",
        LOOK_AFTER,
        "end it, once the turns that run have ended",
        "",
        "sharing",
        (
            Example("app-server daemon stop"),
            Example("app-server daemon stop --now", "interrupt the turns"),
        ),
    ),
    Subcommand(
        "daemon reload",
        LOOK_AFTER,
        "replace it by the version that is installed now; its clients stay connected",
        "",
        "sharing",
        (
            Example("app-server daemon reload", "after an upgrade; waits until no turn runs"),
            Example("app-server daemon reload --now", "interrupt the turns"),
        ),
    ),
    Subcommand(
        "daemon restart",
        LOOK_AFTER,
        "end it, and start another, which does not wait for the turns of the old one",
        "",
        "sharing",
        (
            Example("app-server daemon restart", "its clients see the end of it"),
            Example("app-server daemon restart --now", "interrupt the turns"),
        ),
    ),
    Subcommand(
        "daemon unit",
        LOOK_AFTER,
        "print a unit with which a service manager starts it",
        "MANAGER",
        "sharing",
        (Example("app-server daemon unit systemd"), Example("app-server daemon unit launchd")),
    ),
)
"""`app-server daemon`."""
