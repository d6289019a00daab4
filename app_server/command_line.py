"""The subcommands and options of the command line. Apart from `cli`: most servers are started without any, and then
argparse is not loaded.
"""

from __future__ import annotations

import argparse

from app_server import PROTOCOL_VERSION
from app_server.startup.launch import parse_setting


def parser() -> argparse.ArgumentParser:
    common = _common_options()
    out = argparse.ArgumentParser(
        prog="app-server",
        parents=[common],
        description="A JSON-RPC app server over stdio with a whole coding agent inside.",
    )
    out.add_argument("--version", action="version", version=f"codex-cli {PROTOCOL_VERSION}")
    commands = out.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("app-server", parents=[common], help="serve stdio; the same as no command")
    commands.add_parser("acp", parents=[common], help="serve stdio in the Agent Client Protocol")
    demo = commands.add_parser("demo", help="play a conversation with a scripted model: no key, no network")
    demo.add_argument("--yes", action="store_true", help="approve what is asked instead of asking you")
    doctor = commands.add_parser(
        "doctor", parents=[common], help="check this machine and the configuration, and say what to do"
    )
    doctor.add_argument(
        "--online", action="store_true", help="ask providers and MCP servers over the network, too"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    inspect = commands.add_parser("inspect", help="show, or record, what a server and its client say")
    _add_inspect_arguments(inspect)
    chat = commands.add_parser("chat", parents=[common], help="talk to it in the terminal")
    chat.add_argument("-C", "--cd", metavar="DIR", help="the working directory")
    chat.add_argument("--resume", metavar="ID", help="go on with a stored thread")
    chat.add_argument("--demo", action="store_true", help="with a scripted model, in a temporary folder")
    headless = commands.add_parser(
        "exec", parents=[common], help="one turn without a person, for scripts and CI"
    )
    _add_exec_arguments(headless)
    login = commands.add_parser("login", help="say whether there is a login")
    login.add_argument("what", choices=("status",))
    for name, what in (("generate-json-schema", "JSON Schemas"), ("generate-ts", "TypeScript types")):
        generate = commands.add_parser(name, help=f"write the protocol's {what}")
        generate.add_argument("--out", "-o", required=True, metavar="DIR")
        generate.add_argument(
            "--experimental", action="store_true", help="with what a client has to ask for, in DIR/v2"
        )
    return out


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "-c",
        "--config",
        action="append",
        type=_setting,
        metavar="KEY=VALUE",
        help="override a setting (dotted key, TOML value)",
    )
    common.add_argument("--enable", action="append", metavar="FEATURE", help="switch a feature on")
    common.add_argument("--disable", action="append", metavar="FEATURE", help="switch a feature off")
    common.add_argument("-p", "--profile", metavar="NAME", help="use a profile of config.toml")
    common.add_argument("-m", "--model", metavar="MODEL", help="the model of new conversations")
    common.add_argument(
        "-s",
        "--sandbox",
        choices=("read-only", "workspace-write", "danger-full-access"),
        help="what commands may do",
    )
    common.add_argument(
        "-a",
        "--ask-for-approval",
        choices=("untrusted", "on-failure", "on-request", "never"),
        help="when to ask",
    )
    common.add_argument("--listen", metavar="ADDRESS", help="stdio:// is the only one there is")
    common.add_argument("--stdio", action="store_true", help="serve stdin and stdout, as without it")
    return common


def _setting(text: str) -> str:
    try:
        parse_setting(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _add_inspect_arguments(inspect: argparse.ArgumentParser) -> None:
    inspect.add_argument(
        "--record", metavar="FILE", help="record the session; no page, unless --page is given"
    )
    inspect.add_argument("--page", action="store_true", help="show the page, though the session is recorded")
    inspect.add_argument("--open", metavar="FILE", help="show a session that was saved, until interrupted")
    inspect.add_argument(
        "--replay", metavar="FILE", help="play the client of a session that was saved; no page"
    )
    inspect.add_argument("--url-file", metavar="FILE", help="write the address of the page there, too")
    inspect.add_argument("server", nargs="*", metavar="-- SERVER ARG", help="the server, and its arguments")


def _add_exec_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="what to do; stdin is added to it, or is all of it"
    )
    parser.add_argument("-C", "--cd", metavar="DIR", help="the working directory")
    parser.add_argument("-i", "--image", action="append", metavar="FILE", help="a picture, with the prompt")
    parser.add_argument("--json", action="store_true", help="notifications as lines of JSON")
    parser.add_argument(
        "-o", "--output-last-message", metavar="FILE", help="write the final message to a file"
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema for the final message")
    parser.add_argument("--demo", action="store_true", help="with a scripted model, in a temporary folder")
    stored = parser.add_mutually_exclusive_group()
    stored.add_argument("--resume", metavar="ID", help="go on with a stored thread")
    stored.add_argument("--resume-last", action="store_true", help="go on with the newest thread here")
    stored.add_argument("--ephemeral", action="store_true", help="store nothing of the thread")
