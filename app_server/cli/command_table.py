"""The commands by their groups, in the order of `app-server --help`, with the module of each (`cli.commands`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

ABOUT = "A JSON-RPC app server over stdio with a whole coding agent inside."


class CommandEntry(NamedTuple):
    """A command, by its first word."""

    module: str
    summary: str


class CommandGroup(NamedTuple):
    """Commands with one purpose."""

    title: str
    example: str
    commands: Mapping[str, CommandEntry]


GROUPS: Final = (
    CommandGroup(
        "serve: for editors and other programs, over stdin and stdout",
        "app-server -c model=gpt-5 -s read-only   # with settings that go before config.toml",
        {
            "app-server": CommandEntry("serve", "serve stdin and stdout; the same as no command"),
            "acp": CommandEntry("serve", "serve stdin and stdout in the Agent Client Protocol"),
            "proxy": CommandEntry(
                "proxy",
                "serve stdin and stdout by one server for all clients, which is started where there is none",
            ),
        },
    ),
    CommandGroup(
        "use: at a terminal and in scripts",
        "app-server chat --demo   # with a scripted model: no key, no network",
        {
            "chat": CommandEntry("chat", "talk to it in the terminal"),
            "exec": CommandEntry("exec", "run one turn without a person, for scripts and CI"),
            "sandbox": CommandEntry("sandbox", "run one command in the sandbox, without a model"),
            "batch": CommandEntry("batch", "run many tasks at once, from a file"),
            "threads": CommandEntry(
                "threads", "list, show, rename, archive, delete and export stored threads"
            ),
            "demo": CommandEntry("demo", "play a conversation with a scripted model: no key, no network"),
        },
    ),
    CommandGroup(
        "build: for authors of front ends",
        "app-server inspect --record session.jsonl -- app-server   # a file, and no page",
        {
            "inspect": CommandEntry("inspect", "show, or record, what a server and its client say"),
            "generate-json-schema": CommandEntry("generate", "write the protocol's JSON Schemas"),
            "generate-ts": CommandEntry("generate", "write the protocol's TypeScript types"),
        },
    ),
    CommandGroup(
        "look after: this machine, logins and settings",
        "app-server daemon start -c app_server.client_rights=false   # for all its clients",
        {
            "daemon": CommandEntry("daemon", "start, show and end the server that all clients share"),
            "doctor": CommandEntry("doctor", "check this machine and the configuration, and say what to do"),
            "login": CommandEntry(
                "login", "log in at the provider of the model: in the browser, with a code, or with a key"
            ),
            "logout": CommandEntry("logout", "forget the login"),
            "mcp": CommandEntry("mcp_servers", "list, add and remove MCP servers, and log in at them"),
            "config": CommandEntry("config", "show and change settings"),
            "features": CommandEntry("features", "list the features, and which are on"),
            "debug": CommandEntry("debug", "facts for other programs"),
            "completion": CommandEntry(
                "completion", "print a script with which a shell completes command lines"
            ),
        },
    ),
)

COMMANDS: Final = {name: command for group in GROUPS for name, command in group.commands.items()}
"""Every command, by its first word."""


def overview() -> str:
    """Return the commands by their groups, with an example of each group."""
    blocks = [ABOUT]
    for group in GROUPS:
        rows = {name: command.summary for name, command in group.commands.items()}
        blocks.append("\n".join([group.title, *columns(rows), shown_example(group.example)]))
    return "\n\n".join(blocks)


def columns(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:<22}{what}" for name, what in rows.items()]


def shown_example(example: str) -> str:
    return f"  $ {example}"
