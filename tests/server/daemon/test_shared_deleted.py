"""A shared server whose installation is deleted while it runs: everything still works that worked before."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server_protocol.acp import acp_table
from app_server_protocol.encoding import Json
from app_server_protocol.export.guide import EXAMPLES
from app_server_protocol.export.schemas import params_name
from app_server_protocol.method_table import NoParams
from app_server_protocol.v1 import v1_table
from app_server_protocol.v2 import v2_table
from tests.support.pictures import PNG
from tests.support.published import definitions
from tests.support.schema_examples import THREAD, examples
from tests.support.scripted_model import ScriptedModel, calls, patches, reply, runs, says
from tests.support.shared import SharedHome, shared_home
from tests.support.socket_clients import Lines, installed

pytestmark = pytest.mark.process

INTERNAL_ERROR = -32603
PATCH = "*** Begin Patch\n*** Add File: made\n+by a patch\n*** End Patch"
NOT_ASKED = {
    *("initialize", "account/logout", "logoutChatGpt"),  # done once; what follows needs the login
    *("loginChatGpt", "account/login/start"),  # listen on a port of the machine
    *("account/rateLimits/read", "account/usage/read"),  # ask another party's server
}

NOT_THERE = {
    "fs/readFile": "No such file or directory (os error 2)",
    "fs/copy": "No such file or directory (os error 2)",
    "fuzzyFileSearch/sessionStart": (
        "failed to start fuzzy file search session: at least one search directory is required"
    ),
    "mcpServer/resource/read": "unknown MCP server '/ü'",
}
"""Error messages for objects that an example names and that do not exist. Any server answers them with this code."""


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(short_folder: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    async with shared_home(short_folder, model, {"sandbox_mode": "workspace-write"}) as home:
        yield home


async def test_every_method_and_every_tool_works_without_the_installation(
    shared: SharedHome, model: ScriptedModel
) -> None:
    (shared.root / "picture.png").write_bytes(PNG)
    model.replies += [
        reply(
            runs("echo", "by a command", call_id="runs"),
            patches(PATCH, "patches"),
            calls("view_image", {"path": str(shared.root / "picture.png")}, "views"),
        ),
        reply(says("done")),
    ]
    model.aside = lambda body: None if len(model.replies) else reply(says("more"))
    await anyio.to_thread.run_sync(use_without_installation, shared)
    outputs = model.requests[1].outputs()
    assert "by a command" in outputs["runs"]
    assert "made" in outputs["patches"]
    assert (shared.root / "made").read_text() == "by a patch\n"
    assert "input_image" in json.dumps(model.requests[1].body["input"])


def use_without_installation(shared: SharedHome) -> None:
    with installed(shared) as package:
        shared.wait_until_loaded()
        shutil.rmtree(package.parent)
        client = Lines(shared)
        client.call(
            "initialize",
            clientInfo={"name": "tests", "version": "1"},
            capabilities={"experimentalApi": True},
        )
        thread = client.call("thread/start", cwd=str(shared.root), approvalPolicy="never")["thread"]["id"]
        client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        assert client.hear("turn/completed")["turn"]["status"] == "completed"
        faults = dict[str, str]()
        for method, params in requests(thread, str(shared.root)):
            error = client.ask(method, **params).get("error") or {}
            if error.get("code") == INTERNAL_ERROR:
                faults[method] = error["message"]
        assert faults == NOT_THERE, shared.log
        client.connection.close()
        use_sessions(shared)
        assert "Traceback" not in shared.log


def use_sessions(shared: SharedHome) -> None:
    """Call each method of the Agent Client Protocol; none fails."""
    editor = Lines(shared, api="acp", OPENAI_API_KEY="sk-of-the-editor")
    place: dict[str, Any] = {"cwd": str(shared.root), "mcpServers": []}
    editor.call("initialize", protocolVersion=1, clientCapabilities={})
    of: dict[str, Any] = {"sessionId": editor.call("session/new", **place)["sessionId"]}
    said = {"prompt": [{"type": "text", "text": "go"}], **of}
    given: dict[str, dict[str, Any]] = {
        "authenticate": {"methodId": "api-key"},
        "session/prompt": said,
        "_session/steering": said,
        "session/set_mode": {"modeId": "workspace-write", **of},
        "session/set_config_option": {"configId": "mode", "value": "read-only", **of},
        "session/list": {},
        "session/fork": {**of, **place},
        "session/set_title": {**of, "title": "A title"},
        "session/close": of,
        "session/resume": {**of, **place},
        "session/load": {**of, **place},
        "session/delete": of,
        "logout": {},
    }
    assert {*given, "initialize", "session/new"} == acp_table.TABLE.client_requests.keys()
    failed = {method: editor.ask(method, **params).get("error") for method, params in given.items()}
    assert {method: error for method, error in failed.items() if error is not None} == {}
    editor.connection.close()


def requests(thread: str, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield one request of each method of both APIs, with the example of the guide or of the schema."""
    given: dict[str, Json] = {method: params for method, (params, _) in EXAMPLES["requests"].items()}
    assert given.keys() == v1_table.TABLE.client_requests.keys()
    shapes = definitions(v2_table.TABLE.api)
    for method, row in v2_table.TABLE.client_requests.items():
        given.setdefault(method, {} if row.params is NoParams else examples(params_name(row), shapes)[0])
    conversation = EXAMPLES["requests"]["getConversationSummary"][0]["conversationId"]
    for method, params in given.items():
        if method not in NOT_ASKED:
            text = json.dumps(params or {}).replace(THREAD, thread).replace(conversation, thread)
            yield method, json.loads(text.replace("/home/me/project", folder))
