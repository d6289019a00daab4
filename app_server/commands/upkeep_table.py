"""The rows of commands that look after what is there: stored threads, this machine, logins, MCP servers, settings."""

from __future__ import annotations

from typing import Final

from app_server.commands.rows import LOOK_AFTER, USE, Example, Subcommand

THREADS: Final = (
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
)

UPKEEP: Final = (
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
