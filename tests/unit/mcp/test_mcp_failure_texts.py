"""The texts that clients match and models read."""

import os
from pathlib import Path

import pytest

from app_server.core.config.types import McpHttpTransport, McpServerConfig, McpStdioTransport
from app_server.core.mcp.faults import GITHUB_URL, duration_text, start_failure, timed_out, tool_call_error
from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.launch import (
    display_url,
    find_program,
    process_environment,
    request_headers,
    starting_folder,
)

STDIO = McpStdioTransport(command="x")


def message(name: str, reason: str, transport: McpStdioTransport | McpHttpTransport = STDIO) -> str:
    return start_failure(McpServerConfig(name=name, transport=transport), reason).message


def test_users_of_github_are_told_how_to_log_in() -> None:
    assert message("github", "OAuth is unsupported", McpHttpTransport(url=GITHUB_URL)) == (
        "GitHub MCP does not support OAuth. Log in by adding a personal access token "
        "(https://github.com/settings/personal-access-tokens) to your environment and config.toml:\n"
        "[mcp_servers.github]\nbearer_token_env_var = CODEX_GITHUB_PERSONAL_ACCESS_TOKEN"
    )


def test_a_server_that_wants_a_login_says_so() -> None:
    expected = "The example MCP server is not logged in. Run `codex mcp login example`."
    assert message("example", "Auth required for server") == expected


def test_a_slow_server_leads_to_its_limit() -> None:
    assert message("slow", "request timed out") == (
        "MCP client for `slow` timed out after 10 seconds. Add or adjust `startup_timeout_sec` in your config.toml:\n"
        "[mcp_servers.slow]\nstartup_timeout_sec = XX"
    )


def test_any_other_failure_is_passed_unchanged() -> None:
    transport = McpHttpTransport(url="https://example.com", bearer_token_env_var="TOKEN")
    assert message("custom", "boom", transport) == "MCP client for `custom` failed to start: boom"


def test_one_cause_stands_alone_and_several_are_numbered() -> None:
    head = "tool call error: tool call failed for `s/t`\n\nCaused by:\n"
    assert tool_call_error("s", "t", ("tools/call failed: x",)) == head + "    tools/call failed: x"
    numbered = head + "    0: timed out awaiting tools/call after 2s\n    1: deadline has elapsed"
    assert tool_call_error("s", "t", timed_out("tools/call", 2)) == numbered


@pytest.mark.parametrize(
    ("seconds", "expected"), [(60, "60s"), (2.5, "2.5s"), (0.5, "500ms"), (0.0015, "1.5ms")]
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected


def test_a_process_sees_an_allow_list_and_what_its_table_names() -> None:
    user = {
        "HOME": "/h",
        "PATH": "/bin",
        "OPENAI_API_KEY": "k",
        "MINE": "m",
        "LC_ALL": "C",
        "AWS_SECRET": "s",
    }
    transport = McpStdioTransport(
        command="x", env={"EXTRA": "e", "HOME": "/other"}, env_vars=("MINE", "MISSING")
    )
    seen = {"HOME": "/other", "PATH": "/bin", "LC_ALL": "C", "MINE": "m", "EXTRA": "e"}
    assert process_environment(transport, user, "/own", "/own/ws") == seen
    for inside in ("/ws", "/ws/sub"):
        assert process_environment(transport, user, inside, "/ws") == {**seen, "PYTHONSAFEPATH": "1"}
    wanted = McpStdioTransport(command="x", env={"PYTHONSAFEPATH": ""})
    assert process_environment(wanted, {}, "/ws", "/ws") == {"PYTHONSAFEPATH": ""}, (
        "the user's own word counts"
    )


def test_a_server_starts_in_the_workspace_only_where_the_user_says_so(tmp_path: Path) -> None:
    def folder(cwd: str | None = None, command: str = "x", home: Path = tmp_path) -> str:
        return starting_folder("a", McpStdioTransport(command=command, cwd=cwd), str(home), "/ws")

    assert folder() == str(tmp_path / "mcp" / "a")
    assert os.stat(tmp_path / "mcp" / "a").st_mode & 0o777 == 0o700
    assert folder(home=tmp_path / "none") == "/"
    assert folder(cwd="/srv") == "/srv"
    assert (folder(cwd="workspace"), folder(cwd="workspace", command="./x")) == ("/ws", "/ws")
    for cwd, command in ((".", "x"), ("tools", "x"), (None, "./x")):
        with pytest.raises(McpFailure, match=r'is relative: .* `cwd = "workspace"`'):
            folder(cwd, command)


def test_a_program_is_not_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    planted = tmp_path / "server"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    with pytest.raises(FileNotFoundError):
        find_program("server", {"PATH": ":.:/usr/bin"}, str(tmp_path))
    assert find_program("server", {"PATH": f".:{tmp_path}"}, "/") == str(planted)
    assert find_program("./server", {}, str(tmp_path)) == f"{tmp_path}/./server"


def test_a_token_comes_from_the_environment_and_wins_over_a_header() -> None:
    transport = McpHttpTransport(
        url="https://x",
        bearer_token_env_var="TOKEN",
        http_headers={"authorization": "old", "A": "1"},
        env_http_headers={"B": "FROM", "C": "MISSING"},
    )
    assert request_headers("s", transport, {"TOKEN": "t", "FROM": "2"}) == {
        "A": "1", "B": "2", "Authorization": "Bearer t",
    }  # fmt: skip
    with pytest.raises(McpFailure, match="Environment variable TOKEN for MCP server 's' is not set"):
        request_headers("s", transport, {})


def test_a_shown_url_has_no_secrets() -> None:
    assert display_url("https://me:secret@host:8/path?token=secret#x") == "https://host:8/path"
