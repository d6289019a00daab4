"""The import rules between modules. ARCHITECTURE.md has the reasons; docs/adr/0002-layers.md has the decision.

Every import counts, also one inside a function or under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib.util import find_spec

import pytest

from app_server.engine.support.helpers import APPLY_PATCH, LAUNCHER, READER, WRITER
from tests.support.loading import modules_loaded_by
from tests.support.source_modules import ROOT, SOURCES, imports, imports_in, modules, nodes

PACKAGES = tuple(source.name for source in SOURCES)

LEVELS: tuple[set[str], ...] = (
    {
        "app_server.__main__",
        "app_server.cli.settings_reference",
        "app_server.server.providers_reference",
    },
    {
        "app_server.cli.dispatch",
    },
    {
        "app_server.cli.parse_command",
    },
    {
        "app_server.cli.commands",
    },
    {
        "app_server.cli.command_parser",
        "app_server.cli.run_server",
        "app_server.cli.startup_options",
    },
    {
        "app_server.cli.arguments",
        "app_server.cli.command_table",
    },
    {
        "app_server.cli.batch",
    },
    {
        "app_server.cli.chat",
        "app_server.cli.admin",
        "app_server.cli.exec",
    },
    {
        "app_server.in_process",
    },
    {
        "app_server.server.daemon",
    },
    {
        "app_server.cli.demo",
        "app_server.cli.image_arguments",
        "app_server.cli.doctor.doctor_command",
        "app_server.cli.inspect",
        "app_server.server.proxy",
        "app_server.server.bootstrap",
    },
    {
        "app_server.client",
    },
    {
        "app_server.server.composition",
    },
    {
        "app_server.server.engine_loader",
        "app_server.server.server_settings",
    },
    {
        "app_server.server.engine_adapters",
        "app_server.server.model_clients",
    },
    {
        "app_server.server.apis",
    },
    {
        "app_server.server.conversations",
    },
    {
        "app_server.server.client_connection",
        "app_server.server.logs",
        "app_server.engine.system_ports",
        "app_server.cli.named_files",
        "app_server.server.bootstrap.claim",
        "app_server.server.bootstrap.standard_streams",
        "app_server.server.bootstrap.stdio",
    },
    {
        "app_server.server.rpc",
    },
    {
        "app_server.engine.engine",
        "app_server.server.transport",
    },
    {
        "app_server.engine.ports",
        "app_server.engine.thread_origin",
    },
    {
        "app_server.engine.session",
    },
    {
        "app_server.engine.turn",
    },
    {
        "app_server.engine.tools",
    },
    {
        "app_server.engine.client_services",
        "app_server.engine.hooks",
    },
    {
        "app_server.cli.doctor",
        "app_server.engine.session.goals",
        "app_server.engine.context.skills",
    },
    {
        "app_server.engine.approvals",
        "app_server.engine.checkpoints",
        "app_server.engine.context",
        "app_server.engine.mcp",
        "app_server.engine.storage",
        "app_server.server.proxy.probe_socket",
        "app_server.engine.storage.socket_folders",
        "app_server.server.proxy.spawn",
    },
    {
        "app_server.engine.workspace.fs",
        "app_server.engine.sandbox.exec",
        "app_server.engine.model",
    },
    {
        "app_server.engine.auth",
        "app_server.engine.context.custom_prompts",
        "app_server.engine.workspace.files",
        "app_server.engine.workspace.git",
        "app_server.engine.telemetry.notify",
        "app_server.engine.workspace.patch",
        "app_server.engine.sandbox",
        "app_server.engine.telemetry",
    },
    {
        "app_server.engine.config",
        "app_server.engine.http",
        "app_server.engine.sandbox.launcher",
        "app_server.engine.support.schema_match",
        "app_server.engine.approvals.shell",
    },
    {
        "app_server.engine.config.file_rules",
    },
    {
        "app_server.engine.support.engine_errors",
        "app_server.engine.support.lazy",
        "app_server.engine.support.lazy_imports",
        "app_server.engine.support.helpers",
        "app_server.engine.support.process_memory",
        "app_server.engine.support.real_path",
        "app_server.engine.support.similar_words",
        "app_server.engine.support.text_of_bytes",
        "app_server.engine.support.worker_threads",
    },
    {
        "app_server.engine.client_context",
        "app_server.engine.support.images",
        "app_server.engine.support.prompt_text",
        "app_server.engine.support.user_messages",
        "app_server.engine.support.schema_matcher",
    },
    {
        "app_server.engine.support.client_info",
        "app_server.engine.support.limits",
        "app_server.engine.storage.batch_folders",
        "app_server.engine.support.home",
        "app_server.engine.support.socket_paths",
    },
    {
        "app_server.engine.support.rooted_fs",
        "app_server.engine.support.redaction",
        "app_server.server.bootstrap.descriptors",
        "app_server.engine.support.private_folders",
    },
    {
        "app_server.engine.support.light_dataclasses",
        "app_server.engine.support.filelock",
        "app_server.engine.support.private_folder",
    },
)
"""Levels of the layers. Each level imports the levels below it. Parts of one level do not import one another. A module
belongs to the longest name here that is its own or contains it.
"""

FRONTENDS = {
    "app_server.cli.batch",
    "app_server.cli.chat",
    "app_server.cli.demo",
    "app_server.cli.admin",
    "app_server.cli.exec",
    "app_server.cli.image_arguments",
}
"""Users of the client library. Each is loaded for its own subcommand only."""

APIS = ("v1", "v2", "acp")
APIS_FOLDER = "app_server.server.apis"
"""Package of the APIs. Each API has a folder there and one in `app_server_protocol`, once it exists."""

WIRE = (
    *(f"app_server_protocol.{api}" for api in APIS),
    "app_server_protocol.framing",
    "app_server_protocol.jsonrpc",
    "app_server_protocol.method_table",
    "app_server_protocol.rpc_errors",
)
"""Modules of the wire format, which the engine does not know."""

USES_LEGACY_EVENTS = (
    "app_server.cli.inspect.shapes",
    "app_server.engine.storage",
    "app_server.server.apis.v1",
    "app_server_protocol.engine.legacy",
    "app_server_protocol.export",
    "app_server_protocol.rollout",
    "app_server_protocol.v1",
)
"""Modules that know the events of codex 0.58, which the conversation API sends and rollouts store."""

EFFECTS = {"anyio", "asyncio", "httpcore2", "httpx2", "socket", "subprocess"}

PURE = (
    "app_server.engine.checkpoints.attribution",
    "app_server.engine.checkpoints.history",
    "app_server.engine.checkpoints.merge",
    "app_server.engine.checkpoints.plan",
    "app_server.server.apis.acp.permission_requests",
    "app_server.server.apis.acp.tool_call_views",
    "app_server.server.apis.acp.acp_client",
    "app_server.server.apis.acp.acp_commands",
    "app_server.server.apis.acp.event_reducer",
    "app_server.server.apis.acp.inbound",
    "app_server.server.apis.acp.acp_adapter",
    "app_server.server.apis.acp.formatting",
    "app_server.server.apis.acp.updates",
    "app_server.server.conversations.item_text",
    "app_server.server.apis.v1.v1_requests",
    "app_server.server.apis.v1.v1_adapter",
    "app_server.server.apis.v2.v2_errors",
    "app_server.server.apis.v2.item_lines",
    "app_server.server.apis.v2.thread_items",
    "app_server.server.apis.v2.notices",
    "app_server.server.apis.v2.v2_adapter",
    "app_server.server.apis.v2.v2_requests",
    "app_server.server.apis.v2.thread_settings",
    "app_server.server.apis.v2.turn_shapes",
    "app_server.cli.batch.budget",
    "app_server.cli.batch.worker_messages",
    "app_server.cli.batch.scheduler",
    "app_server.cli.batch.batch_tasks",
    "app_server.client.approval_requests",
    "app_server.client.events",
    "app_server.client.plain_warnings",
    "app_server.client.failures",
    "app_server.client.options",
    "app_server.server.conversations.adapter",
    "app_server.engine.approvals.consent",
    "app_server.engine.approvals.decide",
    "app_server.engine.approvals.prefix_rules",
    "app_server.engine.approvals.rules_text",
    "app_server.engine.client_context",
    "app_server.engine.config.effective",
    "app_server.engine.config.features",
    "app_server.engine.config.setting_types",
    "app_server.engine.config.layers",
    "app_server.engine.config.model_tables",
    "app_server.engine.config.permission_profiles",
    "app_server.engine.config.resolve",
    "app_server.engine.config.settings_reader",
    "app_server.engine.config.settings_table",
    "app_server.engine.config.tolerance",
    "app_server.engine.config.toml_text",
    "app_server.engine.config.config_values",
    "app_server.engine.context.environment_context",
    "app_server.engine.context.history",
    "app_server.engine.context.permission_text",
    "app_server.engine.context.text_for_model",
    "app_server.cli.doctor.machine_checks",
    "app_server.engine.support.engine_errors",
    "app_server.engine.config.file_rules",
    "app_server.engine.workspace.files.fuzzy",
    "app_server.engine.workspace.files.ignore",
    "app_server.engine.session.goals",
    "app_server.engine.hooks.decision",
    "app_server.engine.hooks.hook_definitions",
    "app_server.engine.hooks.hook_entries",
    "app_server.engine.hooks.hook_input",
    "app_server.engine.hooks.hook_notice",
    "app_server.engine.hooks.hook_output",
    "app_server.engine.hooks.matching",
    "app_server.engine.http.address",
    "app_server.engine.http.interface",
    "app_server.engine.http.sse",
    "app_server.engine.support.lazy",
    "app_server.engine.mcp.mcp_errors",
    "app_server.engine.mcp.tool_catalog",
    "app_server.engine.model.api_failures",
    "app_server.engine.model.catalogue",
    "app_server.engine.model.chat_reader",
    "app_server.engine.model.chat_writer",
    "app_server.engine.model.messages_blocks",
    "app_server.engine.model.messages_options",
    "app_server.engine.model.messages_reader",
    "app_server.engine.model.messages_writer",
    "app_server.engine.model.model_facts",
    "app_server.engine.model.event_json",
    "app_server.engine.model.prompt",
    "app_server.engine.model.responses_reader",
    "app_server.engine.model.responses_writer",
    "app_server.engine.model.served_models",
    "app_server.engine.workspace.patch.changes",
    "app_server.engine.workspace.patch.diff",
    "app_server.engine.workspace.patch.hunks",
    "app_server.engine.workspace.patch.parse",
    "app_server.engine.workspace.patch.planner",
    "app_server.engine.workspace.patch.safety",
    "app_server.engine.workspace.patch.shell_forms",
    "app_server.engine.support.images",
    "app_server.engine.support.prompt_text",
    "app_server.engine.support.user_messages",
    "app_server.engine.storage.pagination",
    "app_server.engine.storage.record",
    "app_server.engine.storage.rollout_names",
    "app_server.engine.storage.encode",
    "app_server.engine.storage.decode",
    "app_server.engine.storage.turn_fold",
    "app_server.engine.sandbox.make_plan",
    "app_server.engine.sandbox.plan",
    "app_server.engine.sandbox.profile_plan",
    "app_server.engine.sandbox.sandbox_exec",
    "app_server.engine.session.session_commands",
    "app_server.engine.session.review_texts",
    "app_server.engine.approvals.shell",
    "app_server.engine.context.skills.skill",
    "app_server.engine.support.text_of_bytes",
    "app_server.engine.turn.stream_assembler",
    "app_server.engine.turn.turn_items",
    "app_server.engine.turn.token_counts",
    "app_server.engine.support.client_info",
    "app_server.engine.support.limits",
    "app_server.cli.inspect.analysis",
    "app_server.cli.inspect.rules",
    "app_server.cli.inspect.scenario",
    "app_server.cli.inspect.session_records",
    "app_server.cli.inspect.shapes",
    "app_server.engine.support.redaction",
    "app_server.server.rpc.backlog",
    "app_server_protocol",
)
"""Modules and folders that decide and never act. The same holds for everything that they import."""

LATE_IMPORTS = {
    "app_server.engine.support.lazy_imports": "behind the proxy, which needs none",
    "app_server.cli.dispatch": "behind lazy imports",
    "app_server.server.proxy": "parts of a proxy, which has no lazy imports: a proxy needs few of them, a server none",
    "tomli": "a proxy without lazy imports needs it only where the settings may say that servers are shared",
    "app_server.cli.commands": "the one that the command line names",
    "app_server.client.exports": "for other programs, which have no lazy imports; parts of the library are used alone",
    "app_server_protocol.v2.v2_table": "for the same programs, few of which get a notification that needs it",
    "landlock": "a package that only Linux has",
    "app_server.engine.telemetry.otlp": "an extra; a program around the engine may look into all of its modules",
}
"""Imports inside functions, and why they are not at the top. All other imports are at the top of their module."""

START = (
    *(
        "app_server.__main__",
        "app_server.cli.dispatch",
        "app_server.cli.arguments",
        "app_server.cli.command_parser",
        "app_server.cli.commands",
        "app_server.cli.run_server",
        "app_server.server.proxy",
        "app_server.server.bootstrap",
    ),
    "app_server.server.composition",
)
"""Modules in which the process starts. They decide themselves when others are loaded."""

NOT_LAZY = {
    "app_server.engine.telemetry.telemetry_events": "loaded once, in a thread; tried anew where an extra is missing",
}
"""Modules that import late without `Lazy`, and why."""

MOST_FIELDS = 12
"""Maximum number of arguments of a constructor. A class that needs more does more than one thing, or passes on what it
does not need.
"""

LARGE = {
    "Config": "every setting",
    "ModelRow": "every key of a row of the catalogue",
    "Quirks": "every quirk of a provider",
    "ProcessOptions": "all that the command line and the environment say",
    "ProviderConfig": "every setting of a provider",
    "ToolContext": "every part of a turn that some tool uses",
    "Result": "every field of a line of a batch's results",
}


MOST_LINES, FEW_LINES, MOST_SMALL = 400, 60, 90
"""Maximum number of lines of a module, which holds one idea; number of lines below which a module is small; and maximum
number of small modules, which nearly always belong to their one user.
"""

SEAMS = {
    "app_server.engine.http.status_lines": "http",
    "app_server.engine.session.answer_schema": "jsonschema",
    "app_server.engine.support.similar_words": "difflib",
    "app_server.engine.telemetry.otlp_grpc": "grpc",
    "app_server.server.proxy.refusals": "json",
}
"""Small modules that are apart from their users because they import a library that these seldom need (ADR 162), and the
library.
"""

PRIVATE = {"app_server.engine.telemetry": "OpenTelemetry's logs have no public names yet"}
"""Modules that use names of libraries that begin with an underscore, and why."""


LONGEST_CLASS = 200
"""Maximum number of lines of a class. A class that needs more does more than one thing."""

LONG_CLASSES = {
    "RootDir": "each name of a path is opened by the one before, so that none of its steps is of use alone",
}

FACES = {
    "app_server.engine.system_ports",
    "app_server.engine.auth.accounts",
    "app_server.engine.config.settings_service",
    "app_server.engine.client_services",
    "app_server.engine.hooks.listed_hooks",
    "app_server.engine.model.catalogue",
    "app_server.engine.model.model_facts",
    "app_server.engine.thread_origin",
    "app_server.engine.storage.stored_conversations",
    "app_server.engine.session.facade",
    "app_server.engine.session.rewind",
}
"""Interfaces of the engine for the APIs: a conversation, its checkpoints, how one is opened, models, and a class each
for stored conversations, settings, accounts and the machine.
"""

DISK = {
    *("stat", "lstat", "listdir", "scandir", "readlink", "realpath", "exists", "isfile", "isdir", "islink"),
    *("is_file", "is_dir", "samestat", "mkdir", "makedirs", "unlink", "rename", "rmtree", "symlink"),
}
"""Functions that read or change the disk, besides opening a file."""

OPENS_FILES = {
    "app_server.engine.support.rooted_fs": "the opener",
    "app_server.cli.batch": "a folder that the user named for results, checkouts of its own, files of the command line",
    "app_server.client.write_sync": "a tool for building",
    "app_server.engine.checkpoints.kept_files": "a folder in the home that is the user's alone",
    "app_server.client.options": "the beginning of a picture that the program names, with its own rights",
    "app_server.engine.approvals.exec_policy": "rules in the home, from the folder that was opened",
    "app_server.engine.hooks.context_files": "a long context in the home, for the model",
    "app_server.engine.model.catalogue": "the file of models of the package",
    "app_server.engine.workspace.fs": "what a client names, with the rights of the user",
    "app_server.engine.config.settings_file": "a lock in the home",
    "app_server.engine.config.safe_file": "the few small files of the home, credentials too",
    "app_server.engine.context.instructions": "texts of the package",
    "app_server.engine.sandbox.exec": "files in the home for commands; /proc",
    "app_server.engine.workspace.files.model_reads": "runs confined",
    "app_server.engine.workspace.git.snapshot": "a temporary file of its own",
    "app_server.engine.sandbox.launcher": "another process, before it is a command",
    "app_server.engine.workspace.patch.atomic_writer": "runs confined; from folder to folder without links",
    "app_server.engine.workspace.patch.write_steps": "the same",
    "app_server.engine.storage": "transcripts in the home",
    "app_server.engine.sandbox.inspect_profile": "the kernel's list of mounts",
    "app_server.engine.tools.patch_tool": "a plan in the home, for the writer",
    "app_server.cli.demo": "its own workspace",
    "app_server.cli.chat.demo_chat": "the same, to check it",
    "app_server.cli.admin.settings_draft": "a draft of the settings, in a folder of its own in the home",
    "app_server.cli.named_files": "devices and pipes that a command line names; a file goes by the opener",
    "app_server.cli.inspect": "recordings named on the command line; a terminal",
    "app_server.engine.support.filelock": "locks in a folder of the home that is the user's alone",
    "app_server.server.proxy.probe_socket": "facts of a server, in the same folder",
    "app_server.engine.support.private_folder": "a folder of the user alone, not followed where it is a link",
    "app_server.engine.support.private_folders": "locks of such folders",
    "app_server.server.proxy.spawn": "a log in a folder of the home that is the user's alone; /dev/null",
    "app_server.server.proxy": "the user's settings, before anything else is loaded; a pipe",
    "app_server.server.providers_reference": "a tool for building",
    "app_server.cli.settings_reference": "a tool for building",
    "app_server.server.daemon": "a lock and a log in a folder of the home that is the user's alone; /proc",
    "app_server.server.bootstrap.standard_streams": "/dev/null, stdout and stderr",
    "app_server.server.bootstrap.descriptors": "stdout and stderr, once more",
}
"""Modules that open files by other means than `app_server.engine.support.rooted_fs`, and why that is safe: a name in
a workspace may refer to another file each time it is used.
"""

READS_FOR_THE_MODEL = {
    "app_server.engine.context.project_docs": "documents of the project are asked about with `may_read`",
    "app_server.engine.context.skills.skill_catalog": "so are skills",
    "app_server.engine.workspace.git.snapshot": "so are files of a snapshot, which commands can read in the repository",
    "app_server.engine.workspace.patch.disk_files": "patches are judged by the plan; their program in scripts runs "
    "confined",
}
"""Modules of the engine that open files of a workspace for the model, and how the rules of a permission profile hold
there. Tools that read run in the sandbox: `tests/engine/sandbox/test_scenario_profiles.py` lists these.
"""

READS_FOR_OTHERS = {
    "app_server.engine.approvals.program_trust": "whether a repository was planted, for a judgement",
    "app_server.engine.workspace.fs.client_files": "files for clients, with the rights of the user",
    "app_server.engine.config": "settings, and texts that they name",
    "app_server.engine.hooks": "hook files, and digests of the files that hooks name",
    "app_server.engine.context.custom_prompts": "prompts of the user, who chooses one by its name",
    "app_server.engine.workspace.files.walk": "searches of clients, and of a program in the sandbox",
    "app_server.engine.workspace.git.ghost": "objects that a snapshot wrote",
    "app_server.engine.workspace.git.repository": "where a repository is; commit and branch for lists",
    "app_server.engine.checkpoints": "restores, to contents that were not hidden; what is hidden is not copied",
    "app_server.engine.workspace.git.safe_directories": "git settings of the user",
    "app_server.engine.workspace.git.worktree_files": "files of a snapshot, by its walk; the diff to a remote for "
    "clients",
    "app_server.engine.sandbox": "pointers to repositories, for plans",
    "app_server.engine.session.user_input": "pictures that the client names, with the rights of the user",
}
"""Other modules of the engine that use the opener, and the files that they open."""


SAME_NAME = {
    "GitInfo": "a commit and a branch",
    "HookPromptFragment": "words of one hook",
    "HookRunStatus": "how a run of a hook ended",
    "McpAuthStatus": "of one server",
    "RateLimitSnapshot": "of an account",
    "RateLimitWindow": "of an account",
    "Resource": "of an MCP server",
    "ResourceTemplate": "of an MCP server",
    "ThreadSettings": "what a turn runs with",
    "TurnError": "why a turn failed",
    "TurnStatus": "how a turn ended",
}
"""Classes of the engine whose name the wire prescribes for a class of an API, and the meaning of both."""


@cache
def late_imports(module: str) -> Set[str]:
    functions = (
        node
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    return {name for function in functions for name in imports_in(ast.walk(function))}


def loads_late_by_itself(module: str) -> bool:
    """Return whether a function imports something and is not one that a `Lazy` of the module calls."""
    loaders = {
        node.args[0].id
        for node in nodes(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Lazy"
        and isinstance(node.args[0], ast.Name)
    }
    inner = {
        id(each)
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef) and node.name in loaders
        for each in ast.walk(node)
    }
    return any(
        isinstance(each, ast.Import | ast.ImportFrom) and id(each) not in inner
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for each in ast.walk(node)
    )


def constructors(module: str) -> Iterator[tuple[str, int]]:
    """Yield each class with a constructor of its own, a dataclass or a struct, and the number of its arguments."""
    for node in nodes(module):
        if not isinstance(node, ast.ClassDef):
            continue
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and not is_made_inside(each)]
        struct = any(ast.unparse(base) in ("Struct", "Redacted") for base in node.bases)
        if struct or any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            yield node.name, len(fields)
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                yield node.name, len(each.args.args) + len(each.args.kwonlyargs) - 1


def is_made_inside(annotated: ast.AnnAssign) -> bool:
    """Return whether a field is the state of its class, which no caller passes in."""
    match annotated:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(keywords=keywords)):
            inits = {each.arg: ast.unparse(each.value) for each in keywords}
            return name.startswith("_") or inits.get("init") == "False"
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name.startswith("_") and annotated.value is not None
        case _:
            return False


def cycles(graph: Mapping[str, Set[str]]) -> list[set[str]]:
    """Return groups of nodes, each of which leads to every other of its group."""
    reached = {node: reachable(graph, node) for node in graph}
    groups = {
        frozenset({other for other in reached[node] if node in reached[other]} | {node}) for node in graph
    }
    return [set(group) for group in groups if len(group) > 1]


def reachable(graph: Mapping[str, Set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in graph[waiting.pop()]:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def edges(package: str) -> Iterator[tuple[str, str]]:
    """Yield every import of a module inside the package."""
    for module in modules():
        if inside(module, package):
            yield from ((module, imported) for imported in sorted(imports(module)))


def part_of(module: str) -> str | None:
    """Return the longest name in LEVELS that a module has or is inside of; None if there is none."""
    names = [each for level in LEVELS for each in level if inside(module, each)]
    return max(names, key=len, default=None)


def test_every_part_has_its_level_and_imports_downward() -> None:
    rank = {part: depth for depth, parts in enumerate(LEVELS) for part in parts}
    packages = {module for module, path in modules().items() if path.name == "__init__.py"}
    assert {name for name in modules() if inside(name, "app_server") and not part_of(name)} <= packages
    wrong = [
        f"{module} imports {imported}"
        for module, imported in edges("app_server")
        if (above := part_of(module))
        and (below := part_of(imported))
        and above != below
        and rank[above] >= rank[below]
    ]
    assert wrong == []


def test_the_engine_knows_nothing_of_the_wire() -> None:
    known = [pair for pair in edges("app_server.engine") if any(inside(pair[1], face) for face in WIRE)]
    assert known == []


def test_events_of_the_conversation_api_are_known_where_they_are_sent_and_stored() -> None:
    """The engine emits events of its own; `engine.legacy` converts them."""
    events = "app_server_protocol.events"
    users = {
        module
        for module in modules()
        if not inside(module, events) and any(inside(each, events) for each in imports(module))
    }
    assert {
        module for module in users if not any(inside(module, each) for each in USES_LEGACY_EVENTS)
    } == set()
    assert {each for each in USES_LEGACY_EVENTS if not any(inside(module, each) for module in users)} == set()


def test_an_api_is_known_in_its_own_folder_only() -> None:
    """Neither another API nor the shared part names one; the composition root knows all of them."""
    wrong = []
    for module, imported in [
        *edges("app_server.server.apis"),
        *edges("app_server.server.conversations"),
        *edges("app_server.server.rpc"),
    ]:
        for api in APIS:
            home = f"{APIS_FOLDER}.{api}"
            if (inside(imported, home) or inside(imported, f"app_server_protocol.{api}")) and not inside(
                module, home
            ):
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_the_shapes_of_an_api_are_its_own() -> None:
    wrong = []
    for module, imported in edges("app_server_protocol"):
        for api in APIS:
            home = f"app_server_protocol.{api}"
            if (
                inside(imported, home)
                and not inside(module, home)
                and not inside(module, "app_server_protocol.export")
            ):
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_the_protocol_knows_nobody() -> None:
    assert [pair for pair in edges("app_server_protocol") if inside(pair[1], "app_server")] == []


@pytest.mark.parametrize(
    ("package", "users"),
    [
        ("app_server_protocol.export", {"app_server.cli.commands.generate"}),
        ("app_server.cli.settings_reference", set()),
        ("app_server.server.providers_reference", set()),
        ("app_server.client.write_sync", set()),
        ("app_server.cli.doctor.doctor_command", {"app_server.cli.commands.doctor"}),
    ],
)
def test_a_tool_or_command_is_used_by_few(package: str, users: set[str]) -> None:
    found = {module for top in PACKAGES for module, used in edges(top) if inside(used, package)}
    assert {module for module in found if not inside(module, package)} == users


@pytest.mark.parametrize(
    ("package", "known"),
    [
        # They reach the server as an editor does, on the wire, in a process of its own or in this one.
        (
            "app_server.cli.demo",
            (
                "app_server.client",
                "app_server.engine.support.home",
                "app_server.engine.support.private_folders",
            ),
        ),
        ("app_server.client", ("app_server.server.rpc", "app_server.server.transport")),
        # It shows any server, and checks this one against the protocol.
        (
            "app_server.cli.inspect",
            (
                "app_server.server.transport",
                "app_server.engine.support.lazy_imports",
                "app_server.engine.support.rooted_fs",
                "app_server.engine.support.redaction",
                "app_server.cli.named_files",
                "app_server.server.bootstrap.claim",
                "app_server.server.bootstrap.standard_streams",
                "app_server.server.bootstrap.stdio",
            ),
        ),
    ],
)
def test_a_front_end_knows_little_of_the_server(package: str, known: tuple[str, ...]) -> None:
    used = {each for _, each in edges(package) if inside(each, "app_server")} - {"app_server"}
    assert {each for each in used if not any(inside(each, one) for one in (package, *known))} == set()


def test_a_server_does_not_load_the_client_library() -> None:
    users = {module for module, imported in edges("app_server") if inside(imported, "app_server.client")}
    outside = {module for module in users if not inside(module, "app_server.client")}
    assert {module for module in outside if not any(inside(module, each) for each in FRONTENDS)} == set()


def test_no_modules_import_one_another() -> None:
    found = {
        frozenset(group) for group in cycles({name: imports(name) & modules().keys() for name in modules()})
    }
    assert found == set()


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"d"}}) == [{"a", "b", "c"}]


def test_imports_are_at_the_top_but_for_what_is_loaded_late() -> None:
    late = [(module, name) for module in modules() for name in sorted(late_imports(module))]
    assert [pair for pair in late if not any(inside(pair[1], allowed) for allowed in LATE_IMPORTS)] == []


def test_what_is_loaded_late_is_loaded_in_one_way() -> None:
    """Modules of the package are imported at the top as modules (`lazy_imports`), and others use `Lazy`, except where
    the process starts.
    """
    found = {
        module
        for module in modules()
        if loads_late_by_itself(module) and not any(inside(module, start) for start in START)
    }
    assert found == NOT_LAZY.keys()


def test_no_reason_for_a_late_import_is_left_over() -> None:
    late = {name for module in modules() for name in late_imports(module)}
    assert {allowed for allowed in LATE_IMPORTS if not any(inside(name, allowed) for name in late)} == set()


def test_constructors_are_small() -> None:
    sizes = [pair for module in modules() if inside(module, "app_server") for pair in constructors(module)]
    assert {name for name, size in sizes if size > MOST_FIELDS} == LARGE.keys()


def test_modules_have_a_good_size() -> None:
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name for name, count in lines.items() if count > MOST_LINES} == set()
    small = {name for name, count in lines.items() if 0 < count < FEW_LINES}
    assert small >= SEAMS.keys()
    assert len(small - SEAMS.keys()) <= MOST_SMALL


def test_what_imports_a_library_for_others_is_imported_as_a_module() -> None:
    """Whoever imports a name of it loads it, and the library, at once."""
    assert {name: library for name, library in SEAMS.items() if library not in imports(name)} == {}
    at_once = {
        (module, node.module)
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.ImportFrom) and node.module in SEAMS
    }
    assert at_once == set()


def private_names(module: str) -> Iterator[str]:
    """Yield the private names that a module uses of third-party libraries."""
    foreign = {name for name in imports(module) if name.split(".")[0] not in sys.stdlib_module_names}
    foreign = {name for name in foreign if name.split(".")[0] not in PACKAGES}
    tops = {name.split(".")[0] for name in foreign}
    for node in nodes(module):
        match node:
            case ast.Import(names=aliases):
                yield from (each.name for each in aliases if each.name in foreign and "._" in each.name)
            case ast.ImportFrom(module=str(source), names=aliases) if source in foreign:
                full = (f"{source}.{each.name}" for each in aliases)
                yield from (name for name in full if "._" in name)
            case ast.Attribute(attr=attr) if attr.startswith("_") and not attr.startswith("__"):
                text = ast.unparse(node)
                if text.split(".")[0] in tops:
                    yield text


def test_no_private_names_of_libraries_are_used() -> None:
    users = {module for module in modules() if list(private_names(module))}
    assert {module for module in users if not any(inside(module, each) for each in PRIVATE)} == set()
    assert {each for each in PRIVATE if not any(inside(module, each) for module in users)} == set()


def test_classes_are_small() -> None:
    classes = [
        node
        for module in modules()
        if inside(module, "app_server")
        for node in nodes(module)
        if isinstance(node, ast.ClassDef)
    ]
    assert {each.name for each in classes if lines_of(each) > LONGEST_CLASS} == LONG_CLASSES.keys()


def lines_of(node: ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@cache
def acts(module: str) -> bool:
    """Return whether a module does more than compute: it waits, has tasks, threads or processes, or uses the disk."""
    touched = {node.attr for node in nodes(module) if isinstance(node, ast.Attribute)} & DISK
    effects = {each for each in imports(module) if each.split(".")[0] in EFFECTS}
    return bool(touched or effects) or opens_files(module)


def reached(module: str) -> set[str]:
    graph = {name: imports(name) & modules().keys() for name in modules()}
    return {module} | reachable(graph, module)


def is_value_module(module: str) -> bool:
    """Return whether a module has only values and computations of them: no module that it reaches acts."""
    return not any(acts(each) for each in reached(module))


def names_in_signatures(module: str) -> Iterator[str]:
    """Yield the names in the annotations of the public parts of a module's classes: their fields, and the parameters
    and results of their methods.
    """
    for owner in (node for node in nodes(module) if isinstance(node, ast.ClassDef)):
        for member in owner.body:
            match member:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if name[0] != "_":
                    annotations = [annotation]
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name[0] != "_":
                    arguments = (*member.args.args, *member.args.kwonlyargs)
                    annotations = [
                        each for each in (*(one.annotation for one in arguments), member.returns) if each
                    ]
                case _:
                    continue
            yield from (
                node.id for each in annotations for node in ast.walk(each) if isinstance(node, ast.Name)
            )


def test_what_acts_is_no_value() -> None:
    assert is_value_module("app_server.engine.support.engine_errors")
    assert not is_value_module("app_server.engine.support.real_path")
    assert not is_value_module("app_server.engine.support.worker_threads")


def taken_from_the_engine(module: str) -> Iterator[tuple[str, str]]:
    """Yield what a module imports from `core`: the module that has it, and its name."""
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module and inside(node.module, "app_server.engine"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else node.module, alias.name


def test_apis_use_the_engine_by_its_faces() -> None:
    """They import the interfaces with the names of their signatures, errors, and value modules. Nothing else of the
    engine.
    """
    named = {name for face in FACES for name in names_in_signatures(face)}
    wrong = [
        f"{module} imports {name} of {source}"
        for module in modules()
        if inside(module, "app_server.server.apis")
        for source, name in taken_from_the_engine(module)
        if source not in FACES and name not in named and not is_value_module(source)
    ]
    assert wrong == []


def test_a_class_name_stands_for_one_thing() -> None:
    """Each API has its own names, which the wire prescribes; apart from them a name is used once."""
    homes: dict[str, set[str]] = {}
    for module in modules():
        api = next((api for api in APIS if f".{api}." in f"{module}."), "shared")
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                assert api not in homes.setdefault(node.name, set()), f"{module}: {node.name} is taken"
                homes[node.name].add(api)
    assert {name for name, taken in homes.items() if len(taken) > 1 and "shared" in taken} == set(SAME_NAME)


STANDARD_VALUES = {"NamedTuple", "TypedDict", "dataclass"}
"""Ways of the standard library to write a value; `dataclass` is also that of `light_dataclasses`."""

STANDARD_MAKERS = {"namedtuple", "typeddict", "make_dataclass"}
"""Names of the functions that make such a class, in lower case."""

PROGRAMS = (LAUNCHER, WRITER, APPLY_PATCH, READER)
"""Programs that run without site-packages."""

FIRST_LOADED = """
import app_server.cli.dispatch, app_server.cli.parse_command
"""
"""Imports of what runs before msgspec is loaded, whose import takes as long as half of the interpreter's start: help,
completion, errors of a command line.
"""

OTHER_VALUES = {
    "app_server.client.app_server": "keyword arguments of a method, which only a TypedDict can declare",
    "app_server.client.options": "the same",
}
"""Further modules that use a way of the standard library, and why."""


def standard_values(module: str) -> set[str]:
    """Return the ways of the standard library by which a module writes values."""
    found: set[str] = set()
    for node in nodes(module):
        match node:
            case ast.ClassDef(bases=bases, decorator_list=decorators):
                names = {ast.unparse(each).split("(")[0].split(".")[-1] for each in (*bases, *decorators)}
                found |= names & STANDARD_VALUES
            case ast.Call(func=function) if (
                name := ast.unparse(function).split(".")[-1].lower()
            ) in STANDARD_MAKERS:
                found.add(name)
    return found


def test_a_value_is_written_in_one_of_three_ways() -> None:
    """A value is a struct, or a pydantic model if it comes in over a wire. The standard library is for code that runs
    without msgspec, or before it is loaded.
    """
    without = {module for program in PROGRAMS for module in reached(program)}
    first = modules_loaded_by(FIRST_LOADED)
    assert "msgspec" not in first
    found = {module for module in modules() if standard_values(module)}
    assert found - without - first == OTHER_VALUES.keys()


def test_ways_of_the_standard_library_are_found() -> None:
    assert standard_values("app_server.cli.command_table") == {"NamedTuple"}
    assert standard_values("app_server.client.options") == {"TypedDict"}
    assert standard_values("app_server.engine.sandbox.launcher.seccomp") == {"dataclass"}
    assert standard_values("app_server_protocol.engine.events") == set()


JOINS_PIECES = {
    "answers.ModelAnswer.text": "parts of stored messages, for a request",
    "answers.plain_text": "parts of a stored message, for a request",
    "call_ids._hashed": "letters of an id",
    "chat_calls.ChatCall.has_whole_arguments": "arguments of a call, which no item shows while they come",
    "chat_calls.ChatCall.repeats": "arguments of a call",
    "chat_reader.ChatDecoder._function_call": "arguments of a call",
    "chat_reader._flat": "parts of one piece",
    "chat_writer._Writing._thoughts": "parts of stored thoughts, for a request",
    "messages_writer.MessageWriting._thought": "parts of a stored thought, for a request",
    "turn_items.last_assistant_text": "parts of a complete message",
}
"""Functions of the engine's models and turns that join texts without a separator, and what they join."""


def joins_of(module: str) -> Iterator[str]:
    """Yield the functions of a module that join texts without a separator, by their place in it."""
    tree = next(node for node in nodes(module) if isinstance(node, ast.Module))
    owners: list[tuple[str, ast.AST]] = [(module.rpartition(".")[2], tree)]
    while owners:
        name, owner = owners.pop()
        for node in ast.iter_child_nodes(owner):
            match node:
                case ast.ClassDef(name=inner) | ast.FunctionDef(name=inner):
                    owners.append((f"{name}.{inner}", node))
                case ast.Call(func=ast.Attribute(value=ast.Constant(value=""), attr="join")):
                    owners.append((name, node))
                    yield name
                case _:
                    owners.append((name, node))


def keeps_pieces(module: str) -> Iterator[str]:
    """Yield what a module declares as a list of texts."""
    for node in nodes(module):
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name) | ast.Name(id=name), annotation=kind):
                if ast.unparse(kind) == "list[str]":
                    yield f"{module.rpartition('.')[2]}.{name}"
            case _:
                pass


def test_the_text_of_a_running_item_is_kept_and_joined_in_one_place() -> None:
    """It is an `ItemText` from the decoder of the answer on."""
    reading = [
        module
        for module in modules()
        if inside(module, "app_server.engine.model") or inside(module, "app_server.engine.turn")
    ]
    joins = {name for module in reading for name in joins_of(module)}
    assert joins == JOINS_PIECES.keys()
    assert {name for module in reading for name in keeps_pieces(module)} == {"chat_calls.arguments"}
    assert set(joins_of("app_server_protocol.engine.item_text")) == {"item_text.joined"}


POINTING = {"As", "How", "Of", "That", "Those", "These", "What", "Whether", "Where", "Who"}
"""Words with which a docstring describes a result instead of an action, or continues a text that stands elsewhere."""


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """A property that is a flag may say *Whether*."""
    found = [
        f"{module}: {node.name}"
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and (word := text.split()[0]) in POINTING
        and not (word == "Whether" and any("property" in ast.unparse(each) for each in node.decorator_list))
    ]
    assert found == []


def opens_files(module: str) -> bool:
    for node in nodes(module):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                return True
            case ast.Attribute(value=ast.Name(id="os" | "io"), attr="open" | "fdopen"):
                return True
            case ast.Attribute(attr="read_text" | "read_bytes" | "write_text" | "write_bytes"):
                return True
    return False


def test_files_are_opened_by_the_one_opener() -> None:
    found = {module for module in modules() if inside(module, "app_server") and opens_files(module)}
    assert {module for module in found if not any(inside(module, each) for each in OPENS_FILES)} == set()
    assert {each for each in OPENS_FILES if not any(inside(module, each) for module in found)} == set()


def test_it_is_known_for_whom_the_engine_opens_files() -> None:
    openers = {
        module
        for module in modules()
        if inside(module, "app_server.engine") and "app_server.engine.support.rooted_fs" in imports(module)
    }
    known = [*READS_FOR_THE_MODEL, *READS_FOR_OTHERS]
    assert {module for module in openers if not any(inside(module, each) for each in known)} == set()
    assert [each for each in known if not any(inside(module, each) for module in openers)] == []


def test_only_a_session_looks_into_its_services() -> None:
    wrong = [
        module
        for module in modules()
        if not inside(module, "app_server.engine.session")
        and any(isinstance(node, ast.Attribute) and node.attr == "services" for node in nodes(module))
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_do_nothing(name: str) -> None:
    reached = [module for module in modules() if inside(module, name)]
    assert reached, f"there is no {name}"
    acting = set()
    for module in reached:  # the list grows during the loop
        acting |= {f"{module} imports {each}" for each in imports(module) if each.split(".")[0] in EFFECTS}
        reached.extend(each for each in imports(module) if each in modules() and each not in reached)
    assert acting == set()


LAUNCHED = ("app_server.engine.sandbox.launcher", "app_server.engine.support.light_dataclasses")
"""Modules that run in the launcher's process and its children, without site-packages."""

LAUNCHED_MODULES = sorted(name for name in modules() if any(inside(name, room) for room in LAUNCHED))


def test_the_launcher_imports_the_standard_library_and_itself_only() -> None:
    foreign = [
        f"{module} imports {imported}"
        for module in LAUNCHED_MODULES
        for imported in imports(module)
        if imported.split(".")[0] not in sys.stdlib_module_names
        and not any(inside(imported, room) for room in LAUNCHED)
    ]
    assert foreign == []


@pytest.mark.skipif(sys.platform != "linux", reason="the layers are made of Linux's system calls")
@pytest.mark.parametrize("module", LAUNCHED_MODULES)
def test_the_launcher_runs_without_site_packages(module: str) -> None:
    code = "import sys; sys.path.append(sys.argv[1]); __import__(sys.argv[2])"
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT), module]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


def test_the_server_takes_threads_in_one_place() -> None:
    """One place handles the system's refusal of another thread. The client library has threads for the handlers of its
    users.
    """
    users = {
        module for module, path in modules().items() if "anyio.to_thread" in path.read_text(encoding="utf-8")
    }
    assert users == {"app_server.engine.support.worker_threads", "app_server.client.answering"}


def test_the_engine_does_not_look_at_the_process() -> None:
    """The environment of the process is passed in."""
    words = ("os.environ", "os.getenv", "create_default_context(", "trust_env=True")
    found = [
        (module, word)
        for module, path in modules().items()
        if inside(module, "app_server.engine")
        for word in words
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []


CONTEXTS = {"ConnectionContext", "ConversationContext"}
"""Classes of the contexts that handlers take (`server/apis/contexts.py`)."""


def handlers(module: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the handlers of a module's routes, with the class of the context that each one takes; without
    handlers of other modules.
    """
    functions = {
        node.name: node for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in nodes(module):
        match node:
            case ast.Call(func=ast.Name(id="route" | "route_in"), args=[_, ast.Name(id=name), *_]):
                if name in functions:
                    annotation = functions[name].args.args[0].annotation
                    yield name, ast.unparse(annotation) if annotation is not None else ""


def test_handlers_take_one_of_two_contexts() -> None:
    taken = {
        (f"{module}.{name}", context)
        for module in modules()
        if inside(module, "app_server.server.apis") and ".handlers." in module
        for name, context in handlers(module)
    }
    assert len(taken) > 100
    assert {pair for pair in taken if pair[1] not in CONTEXTS} == set()


def test_who_begins_a_turn_says_over_which_api_it_is_asked() -> None:
    """The engine begins turns for a `TurnCaller` only. If one is made elsewhere, questions of the turn may be asked
    over another API than the one that began it.
    """
    makers = {
        module
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Call) and "TurnCaller" in ast.unparse(node.func)
    }
    assert makers == {"app_server.server.apis.contexts"}


ENGINE = "app_server.engine.engine, app_server.server.model_clients, app_server.server.engine_adapters"
"""Modules that the composition root loads with the first conversation."""

FIRST_TURN = "app_server.engine.turn.loop", "app_server.engine.tools.runtime"


@pytest.mark.parametrize(
    ("code", "others"),
    [
        # A client that only requests stored data does not wait for the agent.
        (
            "import app_server.server.bootstrap.full_server",
            (
                *FIRST_TURN,
                "app_server.engine.engine",
                "app_server.engine.session.session",
                "app_server.engine.mcp.mcp_manager",
                "app_server.engine.model.model_client",
            ),
        ),
        # Opening a conversation loads nothing that only turns need.
        (
            f"import {ENGINE}",
            FIRST_TURN,
        ),
        # A client of threads does not load conversations.
        (
            f"import app_server.server.bootstrap.full_server, {ENGINE}\n"
            "from app_server.server.apis.v2.v2_routes import HANDLERS; HANDLERS.load_for('thread/start')",
            ("app_server.server.apis.v1", "app_server_protocol.v1"),
        ),
        # `exec` loads only what one turn needs.
        (
            "from app_server.cli.parse_command import parse; parse(['exec', 'hi'])\n"
            f"import app_server.cli.exec.exec_run, {ENGINE}\n"
            "from app_server.server.apis.v2.v2_routes import HANDLERS\n"
            "HANDLERS.load_for('thread/start'); HANDLERS.load_for('turn/start')",
            (
                "app_server.cli.chat",
                "app_server.cli.demo",
                "app_server.cli.inspect",
                "app_server.cli.exec.output_schema",
                *(
                    "app_server.server.apis.v1",
                    "app_server.server.apis.acp",
                    "app_server_protocol.v1",
                    "app_server_protocol.acp",
                ),
                *(f"app_server_protocol.v2.{name}" for name in ("account", "commands", "config", "files")),
                *("app_server_protocol.v2.skills", "jsonschema", "prompt_toolkit", "rich"),
            ),
        ),
        # A first prompt over ACP loads no other API and no client of MCP servers.
        (
            "import app_server.server.bootstrap.full_server, app_server.server.apis.acp.acp_routes\n"
            f"import {ENGINE}, "
            "app_server.engine.session.operations, app_server.engine.http.http_transport",
            (
                "app_server.server.apis.v1",
                "app_server.server.apis.v2",
                "app_server_protocol.v1",
                "app_server_protocol.v2",
                "app_server_protocol.acp.requests",
                "app_server.engine.mcp.mcp_server",
                "app_server.engine.mcp.tool_catalog",
                "app_server.engine.mcp.mcp_requests",
                # Nor what only calls, failures and stored items need.
                "app_server.server.apis.acp.tool_call_views",
                "app_server.engine.model.answers",
                "app_server.engine.workspace.patch.diff",
                "app_server_protocol.parse",
                "pydantic.type_adapter",
            ),
        ),
    ],
    ids=["what is stored", "a conversation", "a thread", "exec", "a prompt over ACP"],
)
def test_what_comes_first_loads_nothing_of_what_comes_later(code: str, others: tuple[str, ...]) -> None:
    loaded = modules_loaded_by(code)
    assert {other for other in others if find_spec(other) is None} == set(), "there is no such module"
    loaded -= {
        name for name, path in modules().items() if path.stem == "__init__"
    }  # importers of their modules
    assert {name for name in loaded if any(inside(name, other) for other in others)} == set()


def test_a_server_loads_nothing_that_only_few_need() -> None:
    """Each of these modules takes memory for as long as the server runs."""
    libraries = "argparse difflib html jsonschema tomlkit app_server.cli.command_parser"
    rare = {
        *libraries.split(),
        "app_server.engine.auth.account_usage",
        "app_server.engine.auth.issuer",
        "app_server.engine.auth.login",
        "app_server.engine.auth.mcp_tokens",
        "app_server.engine.auth.oauth_http",
        "app_server.engine.mcp.mcp_server",
        "app_server.engine.mcp.mcp_requests",
    }
    assert {name for name in rare if find_spec(name) is None} == set()
    code = f"""
import app_server.cli.dispatch
import app_server.server.bootstrap.full_server
from app_server.server.apis.v1.v1_routes import HANDLERS; HANDLERS.load_for("newConversation")
from app_server.server.apis.v2.v2_routes import HANDLERS; HANDLERS.load_for("thread/start")
import {ENGINE}, app_server.engine.session.operations, app_server.engine.http.http_transport
from app_server_protocol.v1.conversation import NEW_CONVERSATION
NEW_CONVERSATION.params.model_rebuild()
"""
    assert modules_loaded_by(code) & rare == set()


def test_a_first_turn_loads_no_other_resources() -> None:
    """Shapes and handlers of the thread API are loaded with the first method of their family."""
    loaded = modules_loaded_by(
        "from app_server.server.apis.v2.v2_routes import HANDLERS; HANDLERS.load_for('thread/start')"
    )
    handlers = {
        name.rpartition(".")[2] for name in loaded if name.startswith("app_server.server.apis.v2.handlers.")
    }
    shapes = {name.rpartition(".")[2] for name in loaded if name.startswith("app_server_protocol.v2.")}
    assert handlers == {"threads", "turns"}
    served = "fields item_parts items server settings thread thread_open turn"
    assert shapes == set(served.split())
