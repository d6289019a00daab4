"""The places that one change has to touch, where no type compares them: a test fails until all of them have it.

CONTRIBUTING.md says which places belong to a change. Names that are left out on purpose are listed here.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

import pytest
from msgspec.structs import fields

from app_server.cli.admin import (
    config_commands,
    debug_commands,
    login_commands,
    mcp_commands,
    thread_commands,
)
from app_server.cli.chat import slash_commands
from app_server.cli.parse_command import all_parsers
from app_server.engine.config.client_limits import OPEN
from app_server.engine.config.config_values import WireApi
from app_server.engine.config.hook_settings import HOOK_SETTINGS
from app_server.engine.config.mcp_server_settings import TRANSPORTS, McpServerConfig, McpTransportSettings
from app_server.engine.config.quirk_settings import QUIRKS
from app_server.engine.config.settings_table import SETTINGS
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.served_models import READERS, ServerKind
from app_server.engine.sandbox.plan import FileView, SandboxPlan
from app_server.engine.storage.call_items import ended_item, item_of_call
from app_server.engine.tools import shell_tools
from app_server.engine.tools.registry import GOAL_TOOLS, TOOLS
from app_server.engine.tools.tool_base import SHELL_TOOLS
from app_server.server.apis.v1.v1_adapter import ConversationAdapter
from app_server.server.apis.v2.handlers.threads import in_force
from app_server.server.conversations.adapter import QuestionKind
from app_server.server.conversations.live_turn import LiveTurn
from app_server.server.conversations.server_requests import PendingRequest, ServerRequests
from app_server_protocol.encoding import Json
from app_server_protocol.engine import notices, questions
from app_server_protocol.engine.events import SessionEvent
from app_server_protocol.engine.hook_events import HookEvent
from app_server_protocol.engine.items import CommandExecution, ItemStatus
from app_server_protocol.engine.thread_settings import FIELDS
from app_server_protocol.policy import PROTECTED_FOLDERS
from app_server_protocol.v2 import settings as wire_settings
from app_server_protocol.v2 import v2_table
from app_server_protocol.v2.thread_open import OpenedThread
from tests.server.apis.acp.test_session_updates import Recording as SessionRecording
from tests.server.apis.v2.recorded import THREAD, TURN, Recording
from tests.server.apis.v2.test_thread_order import EVENTS
from tests.support.source_modules import ROOT, modules, nodes

# --- what CONTRIBUTING.md says
ROOMS: Final = ("app_server", "protocol", "tests", "docs", "editors")
GUIDE: Final = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
OF_THE_CHANGES: Final = GUIDE[GUIDE.index("## What to write") : GUIDE.index("## Style")]


def words_in(pattern: str) -> set[str]:
    return {word for span in re.findall(r"`([^`\n]+)`", OF_THE_CHANGES) for word in re.findall(pattern, span)}


def test_what_the_guide_to_changes_names_exists() -> None:
    """Files are named from a folder on; classes, tables and functions by their names."""
    files = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.*")]
    paths = words_in(r"[\w./-]+\.(?:py|json|md)\b")
    assert {path for path in paths if not any(f"/{name}".endswith(f"/{path}") for name in files)} == set()
    sources = "\n".join(path.read_text("utf-8") for path in map(ROOT.joinpath, files) if path.suffix == ".py")
    known = {*re.findall(r"\w+", sources)}
    assert words_in(r"\b(?:[A-Z]+[a-z]\w*[A-Z]\w*|[A-Z]+_[A-Z_]+|_[a-z]\w+)\b") - known == set()


def test_the_table_of_changes_holds_what_it_promises() -> None:
    rows = re.findall(r"^\| a?n? ?.+ \| (\d+) \| [^|]+ \| (\d+) \|$", GUIDE, re.MULTILINE)
    opened, hops = ([int(row[column]) for row in rows] for column in (0, 1))
    assert len(rows) == 15
    assert f"{sum(opened) / 15:.1f}" in GUIDE[GUIDE.index("On average") :].splitlines()[0]
    assert sum(opened) <= 5 * 15
    assert sum(each <= 3 for each in hops) >= 12


def with_word(word: str, package: str) -> list[str]:
    """Return the modules of a package whose source has a word."""
    return [
        name
        for name, path in modules().items()
        if name.startswith(f"{package}.") and word in path.read_text("utf-8")
    ]


# --- a method
WAIT_FOR_NO_OTHER: Final = {
    *("thread/read", "thread/turns/list", "thread/items/list", "hooks/list", "experimentalFeature/list"),
    *("app/list", "app/installed", "mcpServerStatus/list", "mcpServer/tool/call", "mcpServer/resource/read"),
    "mcpServer/oauth/login",
}
"""Requests that name a thread and keep no order with others about it: most of them read what is stored or listed."""


def test_requests_about_a_thread_keep_their_order_or_are_listed() -> None:
    naming = {
        row.method: row
        for row in v2_table.TABLE.client_requests.values()
        if "thread_id" in row.params.model_fields
    }
    assert {method for method, row in naming.items() if row.ordered_by is None} == WAIT_FOR_NO_OTHER


def test_each_method_of_the_thread_api_has_its_purpose_on_a_page() -> None:
    """Members of a family may be named by their last words alone."""
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("threads.md", "checkpoints.md")]
    spans = re.findall(r"`([^`\n]+)`", "\n".join(pages))
    words = {word for span in spans for word in re.findall(r"[\w/]+", span)}
    methods = v2_table.TABLE.client_requests
    assert [each for each in methods if not {each, each.rpartition("/")[2]} & words] == []


# --- a lasting setting of a thread
NOT_OF_THE_SETTINGS: Final = {"thread", "disabled_plugin_ids", "multi_agent_mode"}


def test_what_a_client_is_told_of_an_opened_thread_is_in_force() -> None:
    """A field with a default that `in_force` does not name would always have the default."""
    [told] = [
        node
        for function in nodes(in_force.__module__)
        if isinstance(function, ast.FunctionDef) and function.name == in_force.__name__
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
    ]
    keys = {key.value for key in told.keys if isinstance(key, ast.Constant)}
    assert keys == {*OpenedThread.__struct_fields__} - NOT_OF_THE_SETTINGS


OTHER_FORMS: Final = {
    "effort": "`model_reasoning_effort` in `config` opens a thread with it",
    "summary": "`model_reasoning_summary` in `config` opens a thread with it",
    "granular": "a form of `approval_policy`",
    "sandbox_policy": "`sandbox` when a thread is opened",
    "permission_profile": "`permissions`, shown as `active_permission_profile`",
    "workspace_roots": "`runtime_workspace_roots`",
    "mode": "`collaboration_mode`",
    "system_prompt": "of ACP alone",
}
"""Settings that a shape of the thread API has under another name, or not at all."""


def test_the_thread_api_takes_and_shows_each_setting_or_it_is_listed() -> None:
    """Conversions go by the name, so a shape that lacks a field would drop the setting in silence."""
    shapes = (
        wire_settings.ThreadOptions.model_fields,
        wire_settings.TurnSettings.model_fields,
        wire_settings.ThreadSettings.__struct_fields__,
    )
    assert {name for name in FIELDS if any(name not in shape for shape in shapes)} == OTHER_FORMS.keys()


def test_the_engine_reads_each_setting_of_a_thread() -> None:
    read = {
        node.attr
        for module in modules()
        if module.startswith("app_server.engine.")
        for node in nodes(module)
        if isinstance(node, ast.Attribute) and _last_name(node.value) == "settings"
    }
    assert {*FIELDS} - read == {"workspace_roots"}  # they are among the roots of the sandbox policy


def _last_name(node: ast.AST) -> str:
    """Return the last name in an expression: of `a.b` and of `a.b()` it is `b`."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# --- a setting
OPEN_AT_THE_TOP: Final = {
    *("compact_prompt", "developer_instructions", "hide_agent_reasoning", "instructions", "model"),
    *("model_auto_compact_token_limit", "model_context_window", "model_max_output_tokens", "model_prompt"),
    *(
        "model_provider",
        "model_reasoning_effort",
        "model_reasoning_summary",
        "model_verbosity",
        "personality",
    ),
    *("model_reasoning_summary_format", "model_supports_reasoning_summaries", "plan_mode_reasoning_effort"),
    *("project_doc_max_bytes", "review_model", "service_tier", "show_raw_agent_reasoning"),
    "tool_output_token_limit",
}


def test_the_settings_that_any_client_may_change_are_listed() -> None:
    """A row among `open` ones counts in requests of clients without rights: it may start, read and grant nothing."""
    assert {key for key in OPEN if "." not in key} == OPEN_AT_THE_TOP
    assert {key.partition(".")[0] for key in OPEN if "." in key} == {"models", "model_providers"}


def test_each_class_of_settings_is_made_of_what_was_set() -> None:
    made = {
        argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", "")
        for module in with_word("", "app_server.engine.config")
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if node.func.attr in ("build", "fields")
        for argument in node.args[:1]
    }
    made |= {kind.__name__ for kind in TRANSPORTS}  # one of them is chosen
    assert {part.of.__name__ for part in SETTINGS if part.of is not None} - made == set()


# --- a quirk of a provider
def test_each_quirk_is_read_where_requests_and_answers_are_formed() -> None:
    read = {
        node.attr
        for module in modules()
        if module.startswith("app_server.") and not module.endswith(".quirks")
        for node in nodes(module)
        if isinstance(node, ast.Attribute) and "quirks" in _last_name(node.value)
    }
    assert {field.name for field in fields(Quirks)} - read == set()


FREE_TEXTS: Final = {"thoughts_field", "max_tokens", "session_header", "reasoning_context"}
"""Quirks that name a field, a header or a value of the provider."""


def test_quirks_have_the_words_of_their_settings() -> None:
    """Words are the type of the field, so that mypy compares them where the code asks for one."""
    for field in fields(Quirks):
        kinds = {*get_args(field.type), field.type}
        if get_origin(field.type) is tuple:
            continue
        if str in kinds:
            assert field.name in FREE_TEXTS, field.name
            continue
        words = {each for each in kinds if isinstance(each, str)}
        words |= {*WireApi} if WireApi in kinds else set()
        assert words == {*QUIRKS[field.name].kind.schema.get("enum", ())}, field.name


def test_each_kind_of_server_has_a_reader_of_its_list() -> None:
    assert {*READERS} == {*get_args(ServerKind)}


# --- a tool
OF_THE_SHELL: Final = {tool.name for tool in TOOLS if tool.module is shell_tools} - {"write_stdin"}


def test_each_tool_that_runs_commands_is_known_to_hooks_and_interrupts() -> None:
    assert OF_THE_SHELL == SHELL_TOOLS


@pytest.mark.parametrize("name", sorted(OF_THE_SHELL - {"local_shell"}))
def test_stored_calls_of_each_tool_that_runs_commands_are_shown(name: str) -> None:
    forms = ('{"command": ["ls"]}', '{"command": "ls"}', '{"cmd": "ls"}')
    calls = [{"type": "function_call", "call_id": "c", "name": name, "arguments": form} for form in forms]
    assert any(isinstance(item_of_call(call, "/"), CommandExecution) for call in calls)


NO_ITEMS: Final = {
    *("write_stdin", "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "update_plan"),
    *("grep_files", "read_file", "list_dir", "request_user_input", "get_goal", "create_goal", "update_goal"),
}
"""Tools whose calls are no items: those of MCP resources are items of the server's, the others are not shown."""


ARGUMENTS: Final[Json] = {
    "command": ["ls"],
    "cmd": "ls",
    "path": "a.png",
    "input": "*** Begin Patch\n*** Delete File: a\n*** End Patch",
}
"""Arguments that each of the tools finds its own among."""
CALLS: Final[list[dict[str, Json]]] = [
    *({"type": "local_shell_call", "name": "local_shell", "action": {"command": ["ls"]}},),
    *({"type": "web_search_call", "name": "web_search"},),
    *(
        {"type": "function_call", "name": tool.name, "arguments": json.dumps({**ARGUMENTS, **line})}
        for tool in (*TOOLS, *GOAL_TOOLS)
        for line in ({}, {"command": "ls"})
    ),
]


def test_stored_calls_of_each_tool_are_shown_again_or_are_no_items() -> None:
    """A call that is shown while it runs is shown again, too, if only the history has it."""
    shown = {call["name"] for call in CALLS if item_of_call({"call_id": "c", **call}, "/") is not None}
    assert {call["name"] for call in CALLS} - shown == NO_ITEMS


def test_stored_calls_are_over_once_they_have_an_output() -> None:
    calls = [item_of_call({"call_id": "c", **call}, "/") for call in CALLS]
    over = [ended_item(each, "text") for each in calls if each is not None]
    assert [each for each in over if getattr(each, "status", None) is ItemStatus.IN_PROGRESS] == []


NAMES_THAT_CLIENTS_MAY_TAKE: Final = {"grep_files", "read_file", "list_dir", "web_search", "view_image"}


def test_names_of_tools_that_clients_may_take_are_listed() -> None:
    """A name that becomes reserved refuses threads of clients that bring a tool of that name."""
    assert {tool.name for tool in TOOLS if tool.replaceable} == NAMES_THAT_CLIENTS_MAY_TAKE


# --- a command
RUN_BY_NAME: Final = {"login", "config edit", "mcp login"}
FAMILIES: Final = {
    "config": config_commands,
    "debug": debug_commands,
    "features": debug_commands,
    "login": login_commands,
    "logout": login_commands,
    "mcp": mcp_commands,
    "threads": thread_commands,
}


def test_each_subcommand_has_its_function() -> None:
    parsers = [each for each in all_parsers() if each.name.split()[0] in FAMILIES]
    found = {each.name for each in parsers if getattr(each.run, "__name__", "") == "run"}
    assert found - RUN_BY_NAME == {name for module in FAMILIES.values() for name in module.COMMANDS}


def test_each_slash_command_is_in_the_table_of_the_page_about_the_chat() -> None:
    page = (ROOT / "docs" / "chat.md").read_text("utf-8")
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `/")]
    assert slash_commands.COMMANDS.keys() <= {*re.findall(r"/(\w+)", " ".join(cells))}


# --- an event, a question
LEFT_OUT_OF_THREADS: Final = {
    *(notices.ProgressNotice, notices.UndoStarted, notices.SessionClosed, notices.HistoryEntryFound),
    *(notices.CustomPromptsListed, notices.McpToolsListed),
}
LEFT_OUT_OF_CONVERSATIONS: Final = {questions.ToolCallQuestion, questions.UserInputQuestion}
LEFT_OUT_OF_SESSIONS: Final = {questions.ToolCallQuestion, questions.UserInputQuestion}


def test_the_thread_api_shows_each_notice_or_leaves_it_out() -> None:
    shown: set[type[object]] = set()
    for event in EVENTS:
        seen = Recording(raw=True)
        if isinstance(event, notices.Notice) and seen.take(SessionEvent("7", TURN, event)):
            shown.add(type(event))
    assert shown == {*get_args(notices.Notice)} - LEFT_OUT_OF_THREADS


@pytest.mark.parametrize("kind", get_args(questions.Question), ids=lambda kind: kind.__name__)
def test_each_question_is_asked_or_left_out_and_can_be_declined(kind: type[questions.Question]) -> None:
    [asking] = [event for event in EVENTS if isinstance(event, questions.Question) and type(event) is kind]
    live = LiveTurn()
    assert Recording().adapter.question(asking, TURN, live) is not None
    of_conversation = ConversationAdapter(THREAD).question(asking, TURN, live)
    assert (of_conversation is None) == (kind in LEFT_OUT_OF_CONVERSATIONS)
    assert (SessionRecording().adapter.question(asking, TURN, live) is None) == (kind in LEFT_OUT_OF_SESSIONS)

    session = Heard()
    requests = ServerRequests(cast("Any", session), cast("Any", None), None, lambda: None)
    requests.open.append(
        PendingRequest(SessionEvent("7", TURN, asking), asking, cast("Any", None), QuestionKind.INPUT)
    )
    requests.decline_all()
    assert len(session.commands) == 1


class Heard:
    """Session that keeps what it is told."""

    def __init__(self) -> None:
        self.commands: list[object] = []

    def do(self, command: object) -> None:
        self.commands.append(command)


# --- when a rollout is flushed
def test_a_decision_of_the_user_is_stored_before_it_takes_effect() -> None:
    """The client runs its tools itself: `client_tool` asks for no decision."""
    unsafe: set[str] = set()
    for word in (".questions.ask(", ".request_decision("):
        for module in with_word(word, "app_server.engine"):
            for function in nodes(module):
                body = ast.unparse(function) if isinstance(function, ast.AsyncFunctionDef) else ""
                if word in body and ".flush()" not in body:
                    unsafe.add(module.rpartition(".")[2])
    assert unsafe == {"client_tool"}


# --- a rule of the sandbox
NOT_OF_THE_PROFILE: Final = {
    *("foreign_files", "indispensable", "links", "notices", "private_temp", "profile", "refused", "rules"),
    "subtracts",
}
"""Parts of a plan that the profile of sandbox-exec has no use for, or that are read before a command starts."""


def test_each_part_of_a_plan_is_enforced_on_macos_too_or_listed() -> None:
    read = {
        node.attr
        for node in nodes("app_server.engine.sandbox.sandbox_exec")
        if isinstance(node, ast.Attribute)
    }
    parts = {*SandboxPlan.__struct_fields__, *FileView.__struct_fields__} - {"view"}
    assert parts - read == NOT_OF_THE_PROFILE


NOT_FOR_THE_LAUNCHER: Final = {"indispensable", "notices", "profile", "refused", "rules", "subtracts"}
"""Parts of a plan that are read before a command starts."""


def test_each_part_of_a_plan_is_enforced_on_linux_or_listed() -> None:
    """The plan reaches the launcher as a dictionary, which no type compares with the places that read it."""
    [confine] = [
        function
        for function in nodes("app_server.engine.sandbox.exec.launcher_process")
        if isinstance(function, ast.FunctionDef) and function.name == "_confine"
    ]
    passed = {node.attr for node in ast.walk(confine) if isinstance(node, ast.Attribute)}
    parts = {*SandboxPlan.__struct_fields__, *FileView.__struct_fields__} - {"view"}
    assert parts - passed == NOT_FOR_THE_LAUNCHER
    [sent] = [node for node in ast.walk(confine) if isinstance(node, ast.Dict)]
    keys = {key.value for key in sent.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    launcher = "\n".join(
        modules()[name].read_text("utf-8")
        for name in with_word("confine", "app_server.engine.sandbox.launcher")
    )
    assert {key for key in keys if f'["{key}"]' not in launcher} == set()


PAGES_WITH_PROTECTED_NAMES: Final = (
    "README.md",
    "SECURITY.md",
    "docs/sandbox.md",
    "docs/moving-from-codex.md",
)


@pytest.mark.parametrize("page", PAGES_WITH_PROTECTED_NAMES)
def test_pages_that_list_protected_names_have_all_of_them(page: str) -> None:
    """A paragraph, or a row of a table, with the last but one of them is such a list."""
    text = re.sub(r"\n(?=\|)", "\n\n", (ROOT / page).read_text("utf-8"))
    lists = [each for each in re.split(r"\n\n+|\n(?=[-\d])", text) if "`.agents`" in each]
    assert lists
    for each in lists:
        assert [name for name in PROTECTED_FOLDERS if f"`{name}`" not in each] == []


def test_both_planners_make_all_parts_of_a_plan() -> None:
    made = [
        {keyword.arg for keyword in node.keywords}
        for module in ("plan", "profile_plan")
        for node in nodes(f"app_server.engine.sandbox.{module}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SandboxPlan"
    ]
    parts = {*SandboxPlan.__struct_fields__} - {"secrets"}  # the same for all plans
    assert made == [parts - {"view"}, parts]


# --- an event of hooks
def test_an_event_of_hooks_is_in_all_places() -> None:
    assert {name for name in HOOK_SETTINGS if name[0].isupper()} == {event.value for event in HookEvent}
    run = {
        node.args[0].attr
        for module in with_word("HookEvent.", "app_server.engine")
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run"
        if node.args and isinstance(node.args[0], ast.Attribute)
    }
    assert {event.name for event in HookEvent} - run == {"SUBAGENT_START", "SUBAGENT_STOP"}
    page = (ROOT / "docs" / "hooks.md").read_text("utf-8")
    assert [event for event in HookEvent if event.name in run and f"`{event.value}`" not in page] == []


def test_each_step_of_hooks_is_taken() -> None:
    """A step that is written, and that no turn takes, would run no hook."""
    own = "app_server.engine.session.hook_steps"
    [steps] = [node for node in nodes(own) if isinstance(node, ast.ClassDef) and node.name == "HookSteps"]
    named = {each.name for each in steps.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    taken = {
        node.attr
        for module in modules()
        if module.startswith("app_server.engine.") and module != own
        for node in nodes(module)
        if isinstance(node, ast.Attribute)
        and {"hooks", "hook", "steps"} & {*_last_name(node.value).split("_")}
    }
    own_use = {node.attr for node in nodes(own) if isinstance(node, ast.Attribute)}
    assert {name for name in named if not name.startswith("_")} - taken - own_use == set()


# --- a transport of MCP servers
@pytest.mark.parametrize("kind", TRANSPORTS, ids=lambda kind: kind.__name__)
def test_each_transport_of_mcp_servers_is_listed_with_its_main_setting(
    kind: type[McpTransportSettings],
) -> None:
    settings = {kind.KEY: "word"}
    assert mcp_commands.shown_transport(settings) == "word"
    assert mcp_commands.as_json("name", settings, None)["transport"][kind.KEY] == "word"


FOR_HTTP_ALONE: Final = {"mcp_errors", "mcp_requests", "mcp_server", "mcp_servers"}
"""Modules with something for streamable HTTP alone: logins, headers, a text about one server."""


def test_what_all_transports_of_mcp_servers_are_asked_is_said_by_their_classes() -> None:
    """mypy names what a new class does not say; a question for its class elsewhere would pass it over."""
    known = {each.__name__ for each in get_args(get_type_hints(McpServerConfig)["transport"])}
    asking = {
        module.rpartition(".")[2]
        for module in with_word("Transport)", "app_server")
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if getattr(node.args[1], "id", "") in known
    }
    assert asking == FOR_HTTP_ALONE
