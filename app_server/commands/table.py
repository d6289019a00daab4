"""The subcommands of `app-server`: a row for each, with what help, completion and the parser need of it.

The code of a command is in a module of this package, which is loaded when the command is parsed; what takes time to
import is loaded by that module when the command is run. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

SERVE: Final = "serve"
USE: Final = "use"
BUILD: Final = "build"
LOOK_AFTER: Final = "look after"

GROUPS: Final = {
    SERVE: "for editors and other programs, over stdin and stdout",
    USE: "at a terminal and in scripts",
    BUILD: "for authors of front ends",
    LOOK_AFTER: "this machine, logins and settings",
}
"""The groups of `app-server --help`, in its order."""


class Example(NamedTuple):
    line: str
    """A whole command line, as a shell takes it."""
    what: str = ""


class Subcommand(NamedTuple):
    name: str
    """One word, or two where a command has commands of its own: `threads list`."""
    group: str
    summary: str
    usage: str
    """What follows the options."""
    module: str
    """The module of this package whose `CODE` has the command's code."""
    examples: tuple[Example, ...]


FAMILIES: Final[Mapping[str, str]] = {
    "threads": "list, show, rename, archive, delete and export stored threads",
    "mcp": "list, add and remove MCP servers, and log in at them",
    "config": "show and change settings",
}
"""First words of commands with two, with what these are for."""


COMMANDS: Final = (
    Subcommand(
        "app-server",
        SERVE,
        "serve stdin and stdout; the same as no command",
        "",
        "serving",
        (
            Example("app-server"),
            Example("app-server -c model=gpt-5 -s read-only", "with settings that go before config.toml"),
        ),
    ),
    Subcommand(
        "acp",
        SERVE,
        "serve stdin and stdout in the Agent Client Protocol",
        "",
        "serving",
        (Example("app-server acp"), Example("app-server acp -m gpt-5", "with another model")),
    ),
    Subcommand(
        "proxy",
        SERVE,
        "serve stdin and stdout by one server for all clients, which is started where there is none",
        "[acp]",
        "sharing",
        (
            Example("app-server proxy"),
            Example("app-server proxy acp", "for editors that speak the Agent Client Protocol"),
            Example("ssh HOST app-server proxy", "with the server of another machine"),
        ),
    ),
    Subcommand(
        "chat",
        USE,
        "talk to it in the terminal",
        "[PROMPT...]",
        "talking",
        (
            Example("app-server chat"),
            Example('app-server chat -i shot.png "Why is the button cut off?"', "with a picture"),
            Example("app-server chat --demo", "with a scripted model: no key, no network"),
        ),
    ),
    Subcommand(
        "chat resume",
        USE,
        "go on with a stored thread",
        "[ID | --last] [PROMPT...]",
        "talking",
        (
            Example("app-server chat resume", "choose among the stored threads"),
            Example('app-server chat resume --last "And the tests?"', "the newest thread of this folder"),
        ),
    ),
    Subcommand(
        "chat fork",
        USE,
        "go on in a copy of a stored thread, which stays as it is",
        "[ID | --last] [PROMPT...]",
        "talking",
        (
            Example("app-server chat fork", "choose among the stored threads"),
            Example("app-server chat fork --last", "the newest thread of this folder"),
        ),
    ),
    Subcommand(
        "exec",
        USE,
        "run one turn without a person, for scripts and CI",
        "[PROMPT...]",
        "talking",
        (
            Example('app-server exec "Does the changelog mention the new option?"'),
            Example("git diff | app-server exec -s read-only -", "the prompt from stdin"),
            Example('app-server exec --resume-last "And the tests?"', "go on with the newest thread here"),
        ),
    ),
    Subcommand(
        "threads list",
        USE,
        "list stored threads, the latest first",
        "",
        "threads",
        (
            Example("app-server threads list"),
            Example("app-server threads list --here --search changelog", "of this folder, about something"),
            Example("app-server threads list --limit 500 --json", "for a script"),
        ),
    ),
    Subcommand(
        "threads show",
        USE,
        "show what is known of a thread",
        "THREAD",
        "threads",
        (
            Example("app-server threads show 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10", "by its id"),
            Example('app-server threads show "the parser"', "by its name"),
        ),
    ),
    Subcommand(
        "threads export",
        USE,
        "write a thread as Markdown or JSON",
        "THREAD",
        "threads",
        (
            Example('app-server threads export "the parser" -o parser.md'),
            Example('app-server threads export --format json "the parser"', "every item, to stdout"),
        ),
    ),
    Subcommand(
        "threads rename",
        USE,
        "give a thread a name",
        "THREAD NAME",
        "threads",
        (
            Example('app-server threads rename 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10 "the parser"'),
            Example('app-server threads rename "the parser" "the old parser"'),
        ),
    ),
    Subcommand(
        "threads archive",
        USE,
        "take threads out of the list",
        "THREAD...",
        "threads",
        (
            Example('app-server threads archive "the old parser"'),
            Example("app-server threads list --archived", "what is in the archive"),
        ),
    ),
    Subcommand(
        "threads unarchive",
        USE,
        "bring threads back into the list",
        "THREAD...",
        "threads",
        (
            Example('app-server threads unarchive "the old parser"'),
            Example("app-server threads unarchive 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10"),
        ),
    ),
    Subcommand(
        "threads delete",
        USE,
        "delete threads for ever, after a question",
        "THREAD...",
        "threads",
        (
            Example('app-server threads delete "the old parser"'),
            Example(
                "app-server threads delete --yes 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10", "without the question"
            ),
        ),
    ),
    Subcommand(
        "demo",
        USE,
        "play a conversation with a scripted model: no key, no network",
        "",
        "talking",
        (Example("app-server demo"), Example("app-server demo --yes", "approve what is asked")),
    ),
    Subcommand(
        "inspect",
        BUILD,
        "show, or record, what a server and its client say",
        "-- SERVER [ARG...]",
        "building",
        (
            Example("app-server inspect -- app-server", "a page with the live stream"),
            Example("app-server inspect --record session.jsonl -- app-server", "a file, and no page"),
        ),
    ),
    Subcommand(
        "generate-json-schema",
        BUILD,
        "write the protocol's JSON Schemas",
        "--out DIR",
        "building",
        (
            Example("app-server generate-json-schema --out schema"),
            Example("app-server generate-json-schema --out schema --experimental"),
        ),
    ),
    Subcommand(
        "generate-ts",
        BUILD,
        "write the protocol's TypeScript types",
        "--out DIR",
        "building",
        (
            Example("app-server generate-ts --out types"),
            Example("app-server generate-ts --out types --experimental"),
        ),
    ),
    Subcommand(
        "doctor",
        LOOK_AFTER,
        "check this machine and the configuration, and say what to do",
        "",
        "upkeep",
        (
            Example("app-server doctor"),
            Example("app-server doctor --online", "ask providers and MCP servers over the network, too"),
        ),
    ),
    Subcommand(
        "login",
        LOOK_AFTER,
        "log in at the provider of the model: in the browser, with a code, or with a key",
        "",
        "upkeep",
        (
            Example("app-server login", "in the browser of this machine"),
            Example("app-server login --device-auth", "with a code, in a browser elsewhere"),
            Example("printenv OPENAI_API_KEY | app-server login --with-api-key", "with a key from stdin"),
        ),
    ),
    Subcommand(
        "logout",
        LOOK_AFTER,
        "forget the login",
        "",
        "upkeep",
        (
            Example("app-server logout"),
            Example("CODEX_HOME=/srv/agent app-server logout", "in another home"),
        ),
    ),
    Subcommand(
        "login status",
        LOOK_AFTER,
        "say whether there is a login",
        "",
        "upkeep",
        (
            Example("app-server login status", "exit status 1 where there is none"),
            Example("CODEX_HOME=/srv/agent app-server login status", "in another home"),
        ),
    ),
    Subcommand(
        "mcp list",
        LOOK_AFTER,
        "list the MCP servers that are configured",
        "",
        "settings",
        (
            Example("app-server mcp list"),
            Example("app-server mcp list --start", "start them, and list their tools"),
        ),
    ),
    Subcommand(
        "mcp add",
        LOOK_AFTER,
        "add an MCP server",
        "NAME (--url URL | -- COMMAND [ARG...])",
        "settings",
        (
            Example("app-server mcp add docs --url https://example.org/mcp"),
            Example(
                "app-server mcp add files --env ROOT=/srv -- sh serve-files.sh --stdio", "one that is started"
            ),
        ),
    ),
    Subcommand(
        "mcp remove",
        LOOK_AFTER,
        "remove an MCP server",
        "NAME",
        "settings",
        (
            Example("app-server mcp remove docs"),
            Example("app-server mcp remove 'my docs'"),
        ),
    ),
    Subcommand(
        "mcp login",
        LOOK_AFTER,
        "log in at an MCP server, in the browser",
        "NAME",
        "settings",
        (
            Example("app-server mcp login docs"),
            Example("app-server mcp login docs --scopes read,write --no-browser"),
        ),
    ),
    Subcommand(
        "config get",
        LOOK_AFTER,
        "show a setting, or all that are set",
        "[KEY]",
        "settings",
        (
            Example("app-server config get"),
            Example("app-server config get model"),
        ),
    ),
    Subcommand(
        "config set",
        LOOK_AFTER,
        "write a setting into config.toml, after it was checked",
        "KEY VALUE",
        "settings",
        (
            Example("app-server config set model gpt-5"),
            Example("app-server config set profiles.fast.model_reasoning_effort low", "for a profile"),
        ),
    ),
    Subcommand(
        "config unset",
        LOOK_AFTER,
        "remove a setting from config.toml",
        "KEY",
        "settings",
        (
            Example("app-server config unset model"),
            Example("app-server config unset profiles.fast", "a whole table"),
        ),
    ),
    Subcommand(
        "config edit",
        LOOK_AFTER,
        "edit config.toml, and check it before it is saved",
        "",
        "settings",
        (
            Example("app-server config edit"),
            Example("EDITOR=nano app-server config edit"),
        ),
    ),
    Subcommand(
        "config path",
        LOOK_AFTER,
        "print where config.toml is",
        "",
        "settings",
        (
            Example("app-server config path"),
            Example("CODEX_HOME=/srv/agent app-server config path", "of another home"),
        ),
    ),
    Subcommand(
        "completion",
        LOOK_AFTER,
        "print a script with which a shell completes command lines",
        "SHELL",
        "upkeep",
        (
            Example("app-server completion bash > ~/.local/share/bash-completion/completions/app-server"),
            Example("app-server completion zsh > ~/.zfunc/_app-server", "where ~/.zfunc is in fpath"),
            Example("app-server completion fish > ~/.config/fish/completions/app-server.fish"),
        ),
    ),
)
