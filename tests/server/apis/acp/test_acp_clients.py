"""Third-party clients of the Agent Client Protocol: the official Python client, and codex-acp."""

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import acp
import anyio
import pytest
from acp import schema
from acp.client import ClientSideConnection
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from app_server_protocol.encoding import Json
from tests.support.npm import npm_packages
from tests.support.program import SCRIPT
from tests.support.scripted_model import (
    Hold,
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
from tests.support.shared import shared_by_wish
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.process, pytest.mark.integration]


class Editor:
    """Editor that records what it receives, as the package parsed it."""

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
    tmp_path: Path, editor: Editor, *replies: Reply, settings: str = "", shared: bool = False
) -> AsyncIterator[ClientSideConnection]:
    """Connect the editor. With `shared` its command is the proxy of a server that others may use, too."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(ScriptedModel(list(replies)).serving())
        (home / "config.toml").write_text(
            f'model = "scripted"\nmodel_provider = "scripted"\n{settings}\n[model_providers.scripted]\n'
            f'name = "Scripted"\nbase_url = "{url}"\nwire_api = "responses"\nrequest_max_retries = 0\n'
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(home)}
        words = ("proxy", "acp") if shared else ("acp",)
        if shared:
            environment = await stack.enter_async_context(shared_by_wish(environment))
        async with acp.spawn_agent_process(
            cast("acp.Client", editor), SCRIPT, *words, env=environment, cwd=tmp_path
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


@pytest.mark.parametrize("shared", [False, True])
async def test_a_turn_with_commands_patches_and_permission(tmp_path: Path, shared: bool) -> None:
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
    async with connected(tmp_path, editor, *replies, settings=settings, shared=shared) as connection:
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


PACKAGES = ("@agentclientprotocol/codex-acp@2.6.0", "@agentclientprotocol/sdk@2.4.0")
CLIENT = Path(__file__).with_name("acp_sdk_client.mjs")
TITLE_MODEL = "gpt-5.6-luna"
"""Model that the adapter asks for a title, beside the first turn of a session or not at all."""
MAX_LINE = 1 << 24
PATIENCE = 60.0


@dataclass(frozen=True)
class Installed:
    node: str
    adapter: str
    sdk: str


@pytest.fixture(scope="session")
def installed(pytestconfig: pytest.Config) -> Installed:
    scripts = ("codex-acp/dist/index.js", "sdk/dist/v1/stable/acp.js")
    # The optional packages are left out: they are the programs of codex itself, which this server replaces.
    node, (adapter, sdk) = npm_packages(
        pytestconfig,
        "codex-acp",
        PACKAGES,
        [f"@agentclientprotocol/{script}" for script in scripts],
        "--ignore-scripts",
        "--omit=optional",
    )
    return Installed(node, adapter, sdk)


@dataclass
class Adapter:
    process: Process
    printed: list[Json] = field(default_factory=list)
    _ids: int = 0

    def __post_init__(self) -> None:
        assert self.process.stdout is not None
        self._lines = BufferedByteReceiveStream(self.process.stdout)

    async def send(self, method: str, params: Json, *, notify: bool = False) -> int:
        assert self.process.stdin is not None
        self._ids += 1
        message = {"method": method, "params": params} | ({} if notify else {"id": self._ids})
        await self.process.stdin.send(json.dumps(message).encode() + b"\n")
        return self._ids

    async def until(self, matches: Callable[[Json], bool]) -> Json:
        with anyio.fail_after(PATIENCE):
            while True:
                line = json.loads(await self._lines.receive_until(b"\n", MAX_LINE))
                self.printed.append(line)
                if matches(line):
                    return line

    async def answer(self, id: int) -> Json:
        answer = await self.until(lambda line: line.get("id") == id)
        assert "error" not in answer, answer
        return answer["result"]

    async def call(self, method: str, params: Json) -> Json:
        return await self.answer(await self.send(method, params))

    def updates(self, kind: str) -> list[Json]:
        found = [line["update"] for line in self.printed if "update" in line]
        return [update for update in found if update["sessionUpdate"] == kind]

    def said(self) -> str:
        return "".join(each["content"]["text"] for each in self.updates("agent_message_chunk"))


@asynccontextmanager
async def editor(w: World, installed: Installed, *, answers: str = "allow_once") -> AsyncIterator[Adapter]:
    """Run the adapter over this server; yield it initialized."""
    title = reply(says(json.dumps({"title": "A title"})))
    w.model.aside = lambda body: title if body["model"] == TITLE_MODEL else None
    more = {"CODEX_PATH": SCRIPT, "MODEL_PROVIDER": "scripted", "NO_BROWSER": "1"}
    path = f"{os.path.dirname(installed.node)}:{w.environment['PATH']}"
    command = (installed.node, str(CLIENT), installed.sdk, answers, installed.node, installed.adapter)
    with (w.root / "adapter.log").open("ab") as log:
        process = await anyio.open_process(
            command, stderr=log, cwd=w.workspace, env={**w.environment, **more, "PATH": path}
        )
    try:
        made = Adapter(process)
        await made.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        yield made
        assert process.stdin is not None
        await process.stdin.aclose()
        with anyio.fail_after(PATIENCE):
            await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def session(e: Adapter, w: World) -> Json:
    return await e.call("session/new", {"cwd": str(w.workspace), "mcpServers": []})


def prompt(id: str, text: str = "hi") -> Json:
    return {"sessionId": id, "prompt": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(("answers", "made"), [("allow_once", True), ("reject_once", False)])
async def test_a_prompt_with_an_approval(
    world: MakeWorld, installed: Installed, answers: str, made: bool
) -> None:
    asks = script("echo hi > made", with_escalated_permissions=True, justification="it writes")
    replies = reply(asks), reply(says("It is done."))
    async with (
        world(*replies) as w,
        editor(w, installed, answers=answers) as e,
    ):
        id = (await session(e, w))["sessionId"]
        await e.call("session/set_mode", {"sessionId": id, "modeId": "read-only"})
        done = await e.call("session/prompt", prompt(id))
        assert [line["asked"]["sessionId"] for line in e.printed if "asked" in line] == [id]
        assert (w.workspace / "made").exists() is made
        assert done["stopReason"] == "end_turn", "a refusal does not end the turn"
        ends = [update["status"] for update in e.updates("tool_call_update") if update.get("status")]
        assert ends[-1] == ("completed" if made else "failed")
        assert e.said() == "It is done."


async def test_a_prompt_is_cancelled(world: MakeWorld, installed: Installed) -> None:
    async with world(reply(begins_to_say(), word("half"), Hold())) as w, editor(w, installed) as e:
        id = (await session(e, w))["sessionId"]
        running = await e.send("session/prompt", prompt(id))
        await e.until(lambda line: line.get("update", {}).get("sessionUpdate") == "agent_message_chunk")
        await e.send("session/cancel", {"sessionId": id}, notify=True)
        assert (await e.answer(running))["stopReason"] == "cancelled"


async def test_a_session_is_loaded_by_another_adapter(world: MakeWorld, installed: Installed) -> None:
    async with world(reply(says("first answer")), reply(says("second answer"))) as w:
        async with editor(w, installed) as e:
            id = (await session(e, w))["sessionId"]
            await e.call("session/prompt", prompt(id, "first question"))
        async with editor(w, installed) as e:
            await e.call("session/load", {"sessionId": id, "cwd": str(w.workspace), "mcpServers": []})
            told = [update["content"]["text"] for update in e.updates("user_message_chunk")]
            assert (told, e.said()) == (["first question"], "first answer")
            await e.call("session/prompt", prompt(id, "second question"))
            # An adapter may set a feature that is unknown here. The thread warns of it.
            warning = r"Warning: unknown setting `features\.\w+` is ignored\n+"
            assert re.sub(warning, "", e.said()) == "first answersecond answer"
            listed = await e.call("session/list", {"cwd": str(w.workspace)})
            assert [each["sessionId"] for each in listed["sessions"]] == [id]
            await e.call("session/delete", {"sessionId": id})
            assert (await e.call("session/list", {"cwd": str(w.workspace)}))["sessions"] == []
        assert w.model.requests[-1].texts()[-1] == "second question"


async def test_modes_and_models_are_chosen(world: MakeWorld, installed: Installed) -> None:
    async with world(reply(says("ok"))) as w, editor(w, installed) as e:
        made = await session(e, w)
        id = made["sessionId"]
        modes = {mode["id"] for mode in made["modes"]["availableModes"]}
        assert {"read-only", "agent", "agent-full-access"} <= modes
        options = {option["id"]: option for option in made["configOptions"]}
        models = [each["value"] for each in options["model"]["options"]]
        await e.call("session/set_mode", {"sessionId": id, "modeId": "agent-full-access"})
        await e.call("session/set_config_option", {"sessionId": id, "configId": "model", "value": models[0]})
        await e.call("session/prompt", prompt(id))
        assert w.model.requests[-1].body["model"] == models[0]
