"""The official Python client of the Agent Client Protocol, which validates every message, with the installed server."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
import pytest
from acp import schema
from acp.client import ClientSideConnection

from protocol.base import Json
from tests.support.scripted_model import (
    Reply,
    ScriptedModel,
    begins_to_say,
    calls,
    patches,
    reply,
    says,
    script,
    word,
)
from tests.support.world import SCRIPT


class Editor:
    """Keeps what it is told, as the package understood it."""

    def __init__(self, folder: Path, choice: str) -> None:
        self.folder, self.choice = folder, choice
        self.updates: list[Any] = []
        self.asked: list[schema.ToolCallUpdate] = []
        self.files: dict[str, str] = {}

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **more: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        chosen = next(option for option in options if option.kind == self.choice)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **more: Any
    ) -> schema.ReadTextFileResponse:
        return schema.ReadTextFileResponse(content=self.files.get(path, Path(path).read_text()))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **more: Any
    ) -> schema.WriteTextFileResponse:
        self.files[path] = content
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    def of(self, kind: type[Any]) -> list[Any]:
        return [update for update in self.updates if isinstance(update, kind)]


@asynccontextmanager
async def connected(
    tmp_path: Path, editor: Editor, *replies: Reply, settings: str = ""
) -> AsyncIterator[ClientSideConnection]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    async with ScriptedModel(list(replies)).serving() as url:
        (home / "config.toml").write_text(
            f'model = "scripted"\nmodel_provider = "scripted"\n{settings}\n[model_providers.scripted]\n'
            f'name = "Scripted"\nbase_url = "{url}"\nwire_api = "responses"\nrequest_max_retries = 0\n'
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(home)}
        async with acp.spawn_agent_process(
            cast(acp.Client, editor), SCRIPT, "acp", env=environment, cwd=tmp_path
        ) as (
            connection,
            _,
        ):
            files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
            answer = await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=schema.ClientCapabilities(fs=files),
            )
            assert answer.protocol_version == 1
            assert answer.agent_capabilities is not None
            assert answer.agent_capabilities.load_session
            yield connection


async def test_a_turn_with_commands_patches_and_permission(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    update = "*** Begin Patch\n*** Update File: a.txt\n@@\n-unsaved\n+patched\n*** End Patch"
    plan: Json = {"plan": [{"step": "one", "status": "in_progress"}]}
    editor = Editor(tmp_path, "allow_once")
    editor.files[str(tmp_path / "a.txt")] = "unsaved\n"
    replies = (
        reply(begins_to_say(), word("I "), word("look"), says("I look"), script("true > /dev/null", "c1")),
        reply(patches(update, "c2")),
        reply(calls("update_plan", plan, "c3")),
        reply(says("done")),
    )
    settings = 'approval_policy = "untrusted"\nsandbox_mode = "read-only"'
    async with connected(tmp_path, editor, *replies, settings=settings) as connection:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        done = await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("please")])
        assert done.stop_reason == "end_turn"
        listed = await connection.list_sessions()
        assert [each.session_id for each in listed.sessions] == [session.session_id]
    assert [call.tool_call_id for call in editor.asked] == ["c1", "c2"]
    assert editor.files[str(tmp_path / "a.txt")] == "patched\n"
    assert [call.kind for call in editor.of(schema.ToolCallStart)] == ["execute", "edit"]
    assert editor.of(schema.AgentPlanUpdate)[0].entries[0].content == "one"
    assert editor.of(schema.UsageUpdate)


async def test_a_session_is_loaded_by_another_process(tmp_path: Path) -> None:
    editor = Editor(tmp_path, "allow_once")
    settings = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"'
    replies = reply(script("echo out")), reply(says("done"))
    async with connected(tmp_path, editor, *replies, settings=settings) as connection:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("please")])
    again = Editor(tmp_path, "allow_once")
    async with connected(tmp_path, again, settings=settings) as connection:
        loaded = await connection.load_session(
            session_id=session.session_id, cwd=str(tmp_path), mcp_servers=[]
        )
        assert loaded.modes is not None
        assert loaded.modes.current_mode_id == "agent-full-access"
        await connection.set_session_mode(session_id=session.session_id, mode_id="read-only")
        await connection.close_session(session_id=session.session_id)
    assert [each.content.text for each in again.of(schema.UserMessageChunk)] == ["please"]
    assert [call.status for call in again.of(schema.ToolCallStart)] == ["completed"]


async def test_an_error_is_an_exception_with_its_reason(tmp_path: Path) -> None:
    editor = Editor(tmp_path, "allow_once")
    fails = Reply(status=400, body=b'{"error":{"message":"the model fell over"}}')
    async with connected(tmp_path, editor, fails) as connection:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        with pytest.raises(acp.RequestError, match="the model fell over"):
            await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("please")])
        with pytest.raises(acp.RequestError):
            await connection.load_session(
                session_id="01990000-0000-7000-8000-000000000000", cwd=str(tmp_path), mcp_servers=[]
            )
