"""Setup of threads over the thread API, and one conversation that several APIs continue in turn."""

import json
import stat
from collections.abc import Awaitable, Callable

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.editor import Editor
from tests.support.scripted_model import Reply, done, patches, reply, says, script
from tests.support.thread_client import ended, start, talk, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

LOGIN = {"requires_openai_auth": True}


def told(w: World, *methods: str) -> list[Json]:
    return [(m["method"], m["params"]) for m in w.client.received() if m.get("method") in methods]


async def test_a_key_is_stored_and_forgotten(world: MakeWorld) -> None:
    async with world(provider=LOGIN) as w:
        started = await w.client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-mine"})
        assert started == {"type": "apiKey"}
        await w.client.expect("account/updated")
        assert (await w.client.call("account/read"))["account"] == {"type": "apiKey"}
        path = w.home / "auth.json"
        assert json.loads(path.read_text())["OPENAI_API_KEY"] == "sk-mine"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(Refused, match="chatgpt authentication required to read rate limits"):
            await w.client.call("account/rateLimits/read")
        await w.client.call("account/logout")
        await w.client.expect("account/updated")
        assert (await w.client.call("account/read"))["account"] is None
        assert not path.exists()
    assert told(w, "account/login/completed", "account/updated") == [
        ("account/login/completed", {"loginId": None, "success": True, "error": None}),
        ("account/updated", {"authMode": "apikey", "planType": None, "reason": None}),
        ("account/updated", {"authMode": None, "planType": None, "reason": None}),
    ]


async def test_a_login_through_the_browser_can_be_given_up(world: MakeWorld) -> None:
    async with world(provider=LOGIN) as w:
        started = await w.client.call("account/login/start", {"type": "chatgpt"})
        assert started["authUrl"].startswith("https://")
        id = started["loginId"]
        assert await w.client.call("account/login/cancel", {"loginId": id}) == {"status": "canceled"}
        ended = (await w.client.expect("account/login/completed"))["params"]
        assert (ended["loginId"], ended["success"]) == (id, False)
        assert await w.client.call("account/login/cancel", {"loginId": id}) == {"status": "notFound"}
    assert told(w, "account/updated") == []


@pytest.mark.parametrize(
    ("method", "params", "message", "kind"),
    [
        ("account/login/start", {"type": "apiKey", "apiKey": " "}, "not an API key", "account"),
        ("account/login/start", {"type": "smokeSignals"}, "unknown variant", "invalid_params"),
        ("account/login/cancel", {"loginId": "x"}, "invalid login id: x", "invalid_params"),
        ("account/rateLimits/read", None, "codex account authentication required", "login_required"),
        ("account/usage/read", None, "authentication required to read token usage", "login_required"),
    ],
)
async def test_what_cannot_be_done_with_the_account(
    world: MakeWorld, method: str, params: Json, message: str, kind: str
) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=message) as refused:
            await w.client.call(method, params)
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, kind)


async def test_a_login_that_the_settings_forbid_is_refused(world: MakeWorld) -> None:
    async with world(config={"forced_login_method": "chatgpt"}) as w:
        with pytest.raises(Refused, match="forced_login_method"):
            await w.client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-mine"})
        assert not (w.home / "auth.json").exists()


async def test_limits_of_the_account_are_told_once_for_all_threads(world: MakeWorld) -> None:
    headers = [("x-codex-primary-used-percent", "12"), ("x-codex-primary-window-minutes", "300")]
    replies = [reply(says("a"), headers=headers) for _ in range(3)]
    async with world(*replies) as w:
        for _ in range(3):
            await talk(w.client)
    (one,) = told(w, "account/rateLimits/updated")
    assert one[1]["rateLimits"]["primary"]["usedPercent"] == 12


async def write(w: World, key: str, value: Json, **more: Json) -> Json:
    params = {"keyPath": key, "value": value, "mergeStrategy": "replace", **more}
    return await w.client.call("config/value/write", params)


async def test_what_is_written_holds_for_the_next_thread(world: MakeWorld) -> None:
    async with world(reply(says("a"))) as w:
        text = (w.home / "config.toml").read_text()
        (w.home / "config.toml").write_text("# mine\n" + text)
        written = await write(w, "model", "another", filePath=str(w.home / "config.toml"))
        assert (written["status"], written["overriddenMetadata"]) == ("ok", None)
        assert written["filePath"] == str(w.home / "config.toml")
        assert (w.home / "config.toml").read_text() == "# mine\n" + text.replace('"scripted"', '"another"', 1)
        read = await w.client.call("config/read", {"includeLayers": True})
        assert (read["config"]["model"], read["layers"][0]["version"]) == ("another", written["version"])
        assert (await w.client.call("thread/start", {}))["model"] == "another"
        merged = {"keyPath": "sandbox_workspace_write", "value": {"network_access": True}}
        batch = {"edits": [{**merged, "mergeStrategy": "upsert"}], "expectedVersion": written["version"]}
        await w.client.call("config/batchWrite", batch)
        after = await w.client.call("config/read", {})
        assert after["config"]["sandbox_workspace_write"]["network_access"] is True


@pytest.mark.parametrize(
    ("params", "message", "code"),
    [
        ({"expectedVersion": "sha256:0"}, "was modified since last read", "configVersionConflict"),
        ({"value": {"a": 1}}, "Invalid configuration: `model` must be a string", "configValidationError"),
        ({"keyPath": ""}, "keyPath must not be empty", "configValidationError"),
        ({"keyPath": "model.x"}, "cannot set value on non-table parent", "configValidationError"),
        ({"filePath": "/etc/config.toml"}, "Only writes to the user config", "configLayerReadonly"),
        ({"filePath": "config.toml"}, "Only writes to the user config", "configLayerReadonly"),
    ],
)
async def test_a_refused_write_says_why_and_changes_nothing(
    world: MakeWorld, params: dict[str, Json], message: str, code: str
) -> None:
    async with world() as w:
        before = (w.home / "config.toml").read_text()
        with pytest.raises(Refused, match=message) as refused:
            await write(w, **{"key": "model", "value": "x", **_renamed(params)})
        assert refused.value.data["config_write_error_code"] == code
        assert refused.value.data["kind"] == "config_write"
        assert (w.home / "config.toml").read_text() == before


def _renamed(params: dict[str, Json]) -> dict[str, Json]:
    return {"key" if name == "keyPath" else name: value for name, value in params.items()}


async def test_credentials_are_not_shown_and_survive_being_written_back(world: MakeWorld) -> None:
    table = '[mcp_servers.x]\ncommand = "c"\nenabled = false\nenv = { TOKEN = "s3cr3t" }\n'
    async with world(tables=table) as w:
        read = await w.client.call("config/read", {"includeLayers": True})
        assert "s3cr3t" not in json.dumps(read)
        server = read["config"]["mcp_servers"]["x"]
        await write(w, "mcp_servers.x", server | {"args": ["new"]})
        assert 's3cr3t"' in (w.home / "config.toml").read_text()
        with pytest.raises(Refused, match="stands for a value that is not there"):
            await write(w, "mcp_servers.y", server)


async def test_warnings_about_settings_are_told_once(world: MakeWorld) -> None:
    async with world(config={"mdoel": "x"}) as w:
        await w.client.call("account/read")
        (warning,) = told(w, "configWarning")
        assert warning[1]["summary"] == "unknown setting `mdoel` is ignored; did you mean `model`?"
        assert warning[1]["path"] == str(w.home / "config.toml")
        line = (w.home / "config.toml").read_text().splitlines()[warning[1]["range"]["start"]["line"] - 1]
        assert line.startswith("mdoel")
        await w.client.call("thread/start", {})
        with pytest.raises(Refused, match="mdoel"):
            await w.client.call("thread/start", {"config": {"model_provider": "mdoel"}})
    assert len(told(w, "configWarning")) == 1
    assert not [m for _, m in told(w, "warning") if "mdoel" in m["message"]]


async def test_settings_that_cannot_be_used_are_told_with_their_place(world: MakeWorld) -> None:
    def spoil(w: World) -> None:
        (w.home / "config.toml").write_text('model = "m"\nsandbox_mode = "zzz"\n')

    async with world(before=spoil) as w:
        await w.client.call("hooks/list")
        (warning,) = told(w, "configWarning")
        assert warning[1]["path"] == str(w.home / "config.toml")
        assert warning[1]["range"]["start"] == {"line": 2, "column": 1}
        assert "must be one of `read-only`" in warning[1]["details"]


async def test_features_can_be_switched_for_the_next_threads(world: MakeWorld) -> None:
    async with world() as w:
        before = (await w.client.call("thread/start", {}))["thread"]["id"]
        asked = {"enablement": {"unified_exec": True, "of_another_server": True}}
        answer = await w.client.call("experimentalFeature/enablement/set", asked)
        assert answer == {"enablement": {"unified_exec": True}}
        after = (await w.client.call("thread/start", {}))["thread"]["id"]

        async def has(**params: Json) -> bool:
            listed = await w.client.call("experimentalFeature/list", params)
            return any(each["name"] == "unified_exec" and each["enabled"] for each in listed["data"])

        assert [await has(), await has(threadId=before), await has(threadId=after)] == [True, False, True]
        with pytest.raises(Refused, match="thread not found"):
            await has(threadId="019dd4d6-5fd5-7513-993d-a12d87d9c1c7")


async def test_what_there_is_none_of_is_listed_as_empty(world: MakeWorld) -> None:
    async with world() as w:
        hooks = await w.client.call("hooks/list", {"cwds": ["/"]})
        assert hooks == {"data": [{"cwd": "/", "hooks": [], "warnings": [], "errors": []}]}
        assert await w.client.call("app/list") == {"data": [], "nextCursor": None}
        assert await w.client.call("app/installed") == {"apps": []}
        assert (await w.client.call("plugin/list"))["marketplaces"] == []
        assert (await w.client.call("plugin/installed"))["marketplaces"] == []
        assert await w.client.call("windowsSandbox/readiness") == {"status": "notConfigured"}


async def test_an_import_is_refused_with_the_code_for_missing_methods(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(
            Refused, match="unknown variant `externalAgentConfig/import`: Method not"
        ) as refused:
            await w.client.call("externalAgentConfig/import", {"migrationItems": []})
        assert (refused.value.code, refused.value.data) == (-32601, {"kind": "unknown_method"})


async def test_the_setting_of_the_address_moves_the_built_in_provider(world: MakeWorld) -> None:
    """Clients name `openai` whatever provider the user has configured."""

    def move(w: World) -> None:
        path = w.home / "config.toml"
        text = path.read_text()
        url = text.partition('base_url = "')[2].partition('"')[0]
        path.write_text(f'openai_base_url = "{url}"\n{text}')

    async with world(reply(says("a")), before=move, environment={"OPENAI_API_KEY": "sk-mine"}) as w:
        started = await w.client.call("thread/start", {"modelProvider": "openai"})
        assert started["modelProvider"] == "openai"
        done = await ended(w.client, await turn(w.client, started["thread"]["id"]))
        assert done["status"] == "completed"
    assert len(w.model.requests) == 1


@pytest.mark.parametrize(
    ("claim", "serves"),
    [
        (
            '[model_providers.window]\nname = "w"\nbase_url = "http://127.0.0.1:9"\nenv_key = "OPENAI_API_KEY"\n',
            False,
        ),
        (
            '[model_providers.window]\nname = "w"\nbase_url = "http://127.0.0.1:9"\n'
            'env_http_headers = { api-key = "OPENAI_API_KEY" }\n',
            False,
        ),
        ("", True),
    ],
)
async def test_a_key_of_the_environment_is_no_account_and_serves_openai_alone(
    world: MakeWorld, claim: str, serves: bool
) -> None:
    def move(w: World) -> None:
        path = w.home / "config.toml"
        text = path.read_text()
        url = text.partition('base_url = "')[2].partition('"')[0]
        text = text.replace('model_provider = "scripted"\n', "")
        path.write_text(f'openai_base_url = "{url}"\n{text}\n{claim}')

    environment = {"OPENAI_API_KEY": "sk-nonce"}
    async with world(reply(says("a")), before=move, environment=environment) as w:
        shown = await w.client.call("account/read")
        assert (shown["account"], shown["requiresOpenaiAuth"]) == (None, True)
        status = await w.client.call("getAuthStatus", {"includeToken": True})
        assert (status["authMethod"], status["authToken"]) == (None, None)
        assert status["requiresOpenaiAuth"] is True
        with pytest.raises(Refused, match="codex account authentication required"):
            await w.client.call("account/rateLimits/read")
        started = await w.client.call("thread/start", {"modelProvider": "openai"})
        done = await ended(w.client, await turn(w.client, started["thread"]["id"]))
        assert done["status"] == ("completed" if serves else "failed")
    assert "sk-nonce" not in json.dumps(w.client.received())
    assert len(w.model.requests) == int(serves)


Before = tuple[str, ...]
"""APIs that made the turns so far."""

PATCH = "*** Begin Patch\n*** Add File: made-{0}.txt\n+one\n*** End Patch"


def work(n: int) -> tuple[Reply, ...]:
    """Return the replies of a turn with a thought, a command that fails, a patch and two messages."""
    thought = {
        "type": "reasoning",
        "id": f"rs-{n}",
        "summary": [{"type": "summary_text", "text": f"thought {n}"}],
    }
    return (
        reply(done(thought), says(f"begun {n}", f"begun-{n}"), script(f"echo out-{n}; exit 3", f"run-{n}")),
        reply(patches(PATCH.format(n), f"edit-{n}")),
        reply(says(f"done {n}", f"done-{n}")),
    )


def said_in(turns: int) -> list[str]:
    return [text for n in range(turns) for text in (f"begun {n}", f"done {n}")]


async def by_sessions(w: World, id: str | None, before: Before) -> str:
    editor = Editor(w)
    await editor.start()
    if id is None:
        id = await editor.session()
    else:
        (listed,) = (await w.client.call("session/list", {}))["sessions"]
        assert (listed["sessionId"], listed["title"]) == (id, "words 0")
        await w.client.call("session/load", editor.opening(sessionId=id))
        _told_to_an_editor(w, editor, len(before))
    assert await editor.ends(id, f"words {len(before)}") == "end_turn"
    return id


def _told_to_an_editor(w: World, editor: Editor, turns: int) -> None:
    assert editor.text("user_message_chunk") == "".join(f"words {n}" for n in range(turns))
    assert editor.text("agent_thought_chunk") == "".join(f"thought {n}" for n in range(turns))
    assert editor.text() == "".join(said_in(turns))
    told = list(editor.calls().values())
    assert [(call["kind"], call["status"]) for call in told] == [
        ("execute", "failed"),
        ("edit", "completed"),
    ] * turns
    for n in range(turns):
        command, patch = told[2 * n : 2 * n + 2]
        assert f"out-{n}" in command["content"][0]["content"]["text"]
        assert patch["content"][0]["path"] == str(w.workspace / f"made-{n}.txt")


async def by_threads(w: World, id: str | None, before: Before) -> str:
    await w.client.initialize()
    if id is None:
        id = await start(w.client, cwd=str(w.workspace))
    else:
        (listed,) = (await w.client.call("thread/list", {}))["data"]
        assert (listed["id"], listed["preview"]) == (id, "words 0")
        thread = (await w.client.call("thread/resume", {"threadId": id}))["thread"]
        assert len(thread["turns"]) == len(before)
        _resumed_as_a_thread(w, thread["turns"])
    done = await ended(w.client, await turn(w.client, id, f"words {len(before)}"))
    assert done["status"] == "completed"
    return id


def _resumed_as_a_thread(w: World, turns: list[Json]) -> None:
    """Check the turns that the thread API shows. The conversation API stores commands and patches only as entries of
    the history, as codex 0.58 does.
    """
    for n, each in enumerate(turns):
        items = {item["type"]: item for item in each["items"]}
        assert [item["type"] for item in each["items"]] == [
            *("userMessage", "reasoning", "agentMessage"),
            *("commandExecution", "fileChange", "agentMessage"),
        ]
        said = [item["text"] for item in each["items"] if item["type"] == "agentMessage"]
        assert said == [f"begun {n}", f"done {n}"]
        command, change = items["commandExecution"], items["fileChange"]["changes"][0]
        assert (command["exitCode"], command["aggregatedOutput"]) == (3, f"out-{n}\n")
        assert change["path"] == str(w.workspace / f"made-{n}.txt")


async def by_conversations(w: World, id: str | None, before: Before) -> str:
    n = len(before)
    await w.client.initialize()
    if id is None:
        id = await w.open()
    else:
        (listed,) = (await w.client.call("listConversations", {}))["items"]
        assert (listed["conversationId"], listed["preview"]) == (id, "words 0")
        resumed = await w.client.call("resumeConversation", {"conversationId": id})
        told: list[Json] = resumed["initialMessages"]
        assert [e["message"] for e in told if e["type"] == "user_message"] == [f"words {m}" for m in range(n)]
        assert [e["message"] for e in told if e["type"] == "agent_message"] == said_in(n)
        assert [e["text"] for e in told if e["type"] == "agent_reasoning"] == [
            f"thought {m}" for m in range(n)
        ]
        ran = [(e["exit_code"], e["aggregated_output"]) for e in told if e["type"] == "exec_command_end"]
        assert ran == [(3, f"out-{m}\n") for m in range(n)]
        assert len([e for e in told if e["type"] == "patch_apply_end" and e["success"]]) == n
        await w.client.listen(id)
    assert (await w.client.turn(id, f"words {n}")).last_message == f"done {n}"
    return id


APIS: dict[str, Callable[[World, str | None, Before], Awaitable[str]]] = {
    "sessions": by_sessions,
    "threads": by_threads,
    "conversations": by_conversations,
}


@pytest.mark.parametrize(
    "order",
    [
        ("sessions", "threads", "conversations", "sessions"),
        ("conversations", "sessions", "threads"),
        ("threads", "sessions", "conversations"),
    ],
    ids="-".join,
)
async def test_each_api_goes_on_with_what_the_others_did(world: MakeWorld, order: tuple[str, ...]) -> None:
    id: str | None = None
    for n, api in enumerate(order):
        async with world(*work(n), acp=api == "sessions", initialize=False) as w:
            id = await APIS[api](w, id, order[:n])
            request = w.model.requests[-1]
            assert request.texts() == [f"words {m}" for m in range(n + 1)]
            assert request.texts("assistant") == [*said_in(n), f"begun {n}"]
            assert list(request.outputs()) == [
                each for m in range(n + 1) for each in (f"run-{m}", f"edit-{m}")
            ]
            assert [path.name.count(id) for path in w.rollouts()] == [1], "one file, whoever goes on"
            assert (w.workspace / f"made-{n}.txt").exists()
