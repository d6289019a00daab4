"""A canary in every place where a key can be, and a run that meets every kind of failure. Nothing that the run produces
contains a canary.
"""

import contextlib
import json
import sys
from pathlib import Path

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.places import Place, served
from tests.support.scripted_model import ScriptedModel, calls, failure, reply, says, script

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from tests.engine.telemetry.collector import Collector

pytestmark = [pytest.mark.process, pytest.mark.faults]

CANARY = "canary"


def canary(place: str) -> str:
    return f"sk-{CANARY}-{place}-0123456789abcdef"


ENVIRONMENT = {
    "OPENAI_API_KEY": canary("openai"),
    "PROVIDER_KEY": canary("provider"),
    "HEADER_VALUE": canary("header-env"),
    "MCP_BEARER": canary("mcp-bearer"),
    "MCP_HEADER": canary("mcp-header-env"),
    "SERVICE_PASSWORD": canary("password"),
    "AWS_SECRET_ACCESS_KEY": canary("aws"),
    "GH_TOKEN": canary("token"),
    "HTTPS_PROXY": f"http://user:{canary('proxy')}@127.0.0.1:9",
}

TABLES = """
env_key = "PROVIDER_KEY"
http_headers = {{ X-Static = "{static}" }}
env_http_headers = {{ X-Env = "HEADER_VALUE" }}
query_params = {{ key = "{query}" }}

[mcp_servers.program]
command = {python}
args = ["-I", "-S", {fake}, {told}]
env = {{ MCP_KEY = "{mcp_env}" }}

[mcp_servers.broken]
command = "/no/such/program"
env = {{ MCP_KEY = "{mcp_env}" }}

[mcp_servers.web]
url = "http://user:{mcp_url}@127.0.0.1:9/mcp?key={mcp_query}"
bearer_token_env_var = "MCP_BEARER"
http_headers = {{ X-Static = "{mcp_static}" }}
env_http_headers = {{ X-Env = "MCP_HEADER" }}
startup_timeout_sec = 5

[otel]
exporter = {{ otlp-http = {{ endpoint = "{endpoint}", protocol = "binary", headers = {{ x-token = "{otel}" }} }} }}
"""

FAKE = """\
import json, os, sys
open(sys.argv[1], "w").write(json.dumps(dict(os.environ)))
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    me = {"name": "fake", "version": "1"}
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": me}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "looked"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
TELLS = "env; cat /proc/$PPID/environ; cat /proc/self/environ"
GIVEN_BY_THE_USER = ("config.toml", "auth.json")
"""Files into which the user writes a key himself."""


def settings(root: Path, endpoint: str) -> str:
    named = ("static", "query", "mcp_env", "mcp_url", "mcp_query", "mcp_static", "otel")
    paths = {"python": sys.executable, "fake": str(root / "fake.py"), "told": str(root / "told.json")}
    return TABLES.format(
        endpoint=endpoint,
        **{name: canary(name.replace("_", "-")) for name in named},
        **{name: json.dumps(path) for name, path in paths.items()},
    )


async def converse(place: Place, model: ScriptedModel) -> list[Json]:
    async with served(place) as server:
        client = server.client
        conversation = await server.open()
        turn = await client.turn(conversation, "look around")
        assert turn.last_message == "seen"
        echo = model.requests[-1]
        assert canary("provider") in echo.headers["authorization"], "the canaries were not used"
        assert canary("static") in echo.headers["x-static"]
        model.replies.append(failure(401, {"error": {"message": f"bad key {canary('provider')}"}}))
        await client.turn(conversation, "be refused")
        model.replies.append(failure(400, {"error": {"message": f"no such {canary('provider')}"}}))
        await client.turn(conversation, "be refused again")
        for method, params in (
            ("getAuthStatus", {"includeToken": False, "refreshToken": False}),
            ("getUserSavedConfig", {}),
            ("listConversations", {"pageSize": 5}),
            ("gitDiffToRemote", {"cwd": str(place.workspace)}),
            ("newConversation", {"config": {"model_provider": "nobody"}}),
            ("execOneOffCommand", {"command": ["sh", "-c", TELLS], "cwd": str(place.workspace)}),
        ):
            with contextlib.suppress(Refused):
                await client.call(method, params)
        await client.operate(conversation, {"type": "list_mcp_tools"}, until="mcp_list_tools_response")
        await client.submit(conversation, {"type": "add_to_history", "text": "remember this"})
        model.replies.append(reply(says("bye")))
        await client.turn(conversation, "bye")
        return client.received()


async def test_no_key_leaves_its_place(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    place = Place(tmp_path, environment={**ENVIRONMENT, "APP_SERVER_LOG": "debug"})
    (place.home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": canary("auth-json")}))
    (place.home / "auth.json").chmod(0o600)
    model = ScriptedModel(
        [
            reply(script(TELLS, "env"), calls("mcp__program__look", {}, "mcp")),
            reply(script("git status", "git"), script("exit 3", "failing")),
            reply(says("seen")),
        ]
    )
    collector = Collector()
    with collector.running() as endpoint:
        place.model, place.tables = model, settings(tmp_path, endpoint)
        async with place.serving_model():
            received = await converse(place, model)
    assert collector.events, "nothing was reported"
    assert "mcp" in model.requests[1].outputs()
    mcp_environment = json.loads((tmp_path / "told.json").read_text())
    assert mcp_environment.pop("MCP_KEY") == canary("mcp-env"), "the program was not given its own key"
    produced = {
        "stdout": "\n".join(map(json.dumps, received)),
        "stderr": place.log.read_text(),
        "telemetry": json.dumps([collector.events, collector.resources]),
        "the MCP program's environment": json.dumps(mcp_environment),
        "what the model was sent": json.dumps([request.body for request in model.requests]),
        **{
            str(path): path.read_bytes().decode(errors="replace")
            for path in place.home.rglob("*")
            if path.is_file() and path.name not in GIVEN_BY_THE_USER
        },
    }
    assert any("rollout-" in name for name in produced)
    assert any("history.jsonl" in name for name in produced)
    leaks = {
        name: text[max(0, text.find(CANARY) - 200) :][:300]
        for name, text in produced.items()
        if CANARY in text
    }
    assert not leaks, json.dumps(leaks, indent=1)


async def test_arguments_of_processes_name_no_key(tmp_path: Path) -> None:
    """Every user of the machine can read the arguments of a process."""
    place = Place(tmp_path, environment=ENVIRONMENT, tables='env_key = "PROVIDER_KEY"')
    seen: list[bytes] = []
    model = ScriptedModel([reply(script("sleep 1000", timeout_ms=100_000))])
    place.model = model
    async with place.serving_model(), served(place) as server:
        conversation = await server.open()
        await server.client.say(conversation)
        await server.client.expect("exec_command_begin")
        with anyio.fail_after(20):
            while not any(b"sleep 1000" in each for each in seen):
                seen = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
                await anyio.sleep(0.05)
        await server.client.interrupt(conversation)
    assert not [each for each in seen if b"sk-canary" in each]
