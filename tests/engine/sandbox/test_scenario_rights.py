"""Settings and rights: where they come from, which one has priority, and the files that the server never reads for a
client.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.editor import Editor, opened
from tests.support.scripted_model import Reply, failure, patches, reply, says, script
from tests.support.thread_client import ended, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

NO_TEMPORARY: Json = {"excludeTmpdirEnvVar": True, "excludeSlashTmp": True}
OUTSIDE = "echo x > ../outside"
FENCE = "[app_server]\nclient_rights = false\n"
TEMPORARY = "[sandbox_workspace_write]\nexclude_tmpdir_env_var = true\nexclude_slash_tmp = true\n"
UNTRUSTED = {"approval_policy": "untrusted", "sandbox_mode": "read-only"}
FULL: Json = {"type": "dangerFullAccess"}


def workspace(*roots: str) -> Json:
    return {"type": "workspaceWrite", "writableRoots": [*roots], **NO_TEMPORARY}


async def refused(w: World, method: str, params: Json, match: str = "expected an absolute path") -> None:
    with pytest.raises(Refused, match=match):
        await w.client.call(method, params)


@pytest.mark.parametrize("root", ["..", "", "relative", "~", "~/x"])
async def test_a_relative_root_is_refused_over_every_method_of_threads(world: MakeWorld, root: str) -> None:
    async with world(reply(script(OUTSIDE)), reply(says("ok"))) as w:
        thread, policy = await start(w.client), workspace("/var/empty", root)
        words = [{"type": "text", "text": "go"}]
        await refused(w, "turn/start", {"threadId": thread, "input": words, "sandboxPolicy": policy})
        await refused(w, "thread/settings/update", {"threadId": thread, "sandboxPolicy": policy})
        await refused(w, "command/exec", {"command": ["sh", "-c", OUTSIDE], "sandboxPolicy": policy})
        given = {"sandbox_workspace_write.writable_roots": [root], "sandbox_mode": "workspace-write"}
        if root not in ("~", "~/x"):  # as in the file, `~` is the user's home
            await refused(w, "thread/start", {"config": given}, "must hold absolute paths")
        assert not (w.root / "outside").exists()


@pytest.mark.parametrize("root", ["..", "", "~/x"])
async def test_a_relative_root_is_refused_over_every_method_of_conversations(
    world: MakeWorld, root: str
) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        policy = {"mode": "workspace-write", "writable_roots": [root]}
        change = {"type": "override_turn_context", "sandbox_policy": policy}
        await refused(w, "sendUserTurn", w.user_turn(conversation, sandboxPolicy=policy))
        await refused(w, "submit", {"conversationId": conversation, "op": change})
        await refused(w, "execOneOffCommand", {"command": ["sh", "-c", OUTSIDE], "sandboxPolicy": policy})
        assert not (w.root / "outside").exists()


async def test_a_stored_root_that_is_relative_is_none(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        policy = workspace("/var/empty")
        await say(w.client, thread, sandboxPolicy=policy)
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        lines = stored.read_text().replace('["/var/empty"]', '["..", "/var/empty", "", "sub"]')
        assert lines != stored.read_text()
        stored.write_text(lines)
        for method in ("thread/fork", "thread/resume"):
            opened = await w.client.call(method, {"threadId": thread})
            assert opened["sandbox"]["writableRoots"] == ["/var/empty"]


async def test_a_fenced_client_of_threads_gets_at_most_what_is_configured(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=UNTRUSTED, tables=FENCE, capabilities=EXPERIMENTAL) as w:
        thread, made = await start(w.client), str(w.root / "made")
        await ended(w.client, await turn(w.client, thread))
        run: Json = {"command": ["touch", made], "cwd": str(w.workspace)}
        go: Json = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
        for method, params in (
            ("command/exec", {**run, "sandboxPolicy": FULL}),
            ("command/exec", {**run, "sandboxPolicy": workspace(str(w.root))}),
            ("command/exec", {**run, "permissionProfile": ":danger-full-access"}),
            ("thread/start", {"sandbox": "danger-full-access"}),
            ("thread/start", {"permissions": ":workspace"}),
            ("thread/start", {"approvalPolicy": "never"}),
            ("thread/start", {"config": {"notify": ["touch", made]}}),
            ("thread/start", {"config": {"mcp_servers.e.command": "touch"}}),
            ("thread/fork", {"threadId": thread, "sandbox": "workspace-write"}),
            ("turn/start", {**go, "sandboxPolicy": FULL}),
            ("turn/start", {**go, "approvalPolicy": "on-request"}),
            ("turn/start", {**go, "permissions": ":workspace"}),
            ("thread/settings/update", {"threadId": thread, "sandboxPolicy": workspace()}),
        ):
            await refused(w, method, params, "client_rights")
        assert (await w.client.call("command/exec", {"command": ["true"]}))["exitCode"] == 0
        assert not (w.root / "made").exists()


async def test_a_fenced_client_of_conversations_gets_at_most_what_is_configured(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=UNTRUSTED, tables=FENCE) as w:
        conversation, made = await w.open(), str(w.root / "made")
        full: Json = {"mode": "danger-full-access"}
        wide: Json = {"mode": "workspace-write", "writable_roots": [str(w.root)]}
        within: Json = {"approvalPolicy": "untrusted", "sandboxPolicy": {"mode": "read-only"}}
        turn_of = w.user_turn(conversation, items=[], **within)
        change: Json = {"type": "override_turn_context"}
        for method, params in (
            ("execOneOffCommand", {"command": ["touch", made], "sandboxPolicy": full}),
            ("execOneOffCommand", {"command": ["touch", made], "sandboxPolicy": wide}),
            ("newConversation", {"sandbox": "workspace-write"}),
            ("newConversation", {"config": {"notify": ["touch", made]}}),
            (
                "resumeConversation",
                {"conversationId": conversation, "overrides": {"approvalPolicy": "never"}},
            ),
            ("sendUserTurn", {**turn_of, "sandboxPolicy": full}),
            ("sendUserTurn", {**turn_of, "approvalPolicy": "never"}),
            ("submit", {"conversationId": conversation, "op": {**change, "sandbox_policy": wide}}),
            ("submit", {"conversationId": conversation, "op": {**change, "approval_policy": "never"}}),
        ):
            await refused(w, method, params, "client_rights")
        await w.client.call("sendUserTurn", turn_of)
        assert not (w.root / "made").exists()


async def test_a_fenced_client_of_sessions_gets_at_most_what_is_configured(world: MakeWorld) -> None:
    settings = {"approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    async with world(config=settings, tables=FENCE + TEMPORARY, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        made = await w.client.call("session/new", editor.opening())
        offered = [mode["id"] for mode in made["modes"]["availableModes"]]
        assert (offered, made["modes"]["currentModeId"]) == (
            ["read-only", "workspace-write"],
            "workspace-write",
        )
        session: Json = {"sessionId": made["sessionId"]}
        await refused(w, "session/set_mode", {**session, "modeId": "agent-full-access"}, "unknown mode")
        await w.client.call("session/set_mode", {**session, "modeId": "read-only"})
        server: Json = {"name": "e", "command": "touch", "args": [str(w.root / "made")], "env": []}
        await refused(w, "session/new", editor.opening(mcpServers=[server]), "client_rights")
        await refused(w, "session/new", editor.opening(additionalDirectories=[str(w.root)]), "client_rights")
        await refused(w, "session/new", {**editor.opening(), "cwd": str(w.root)}, "client_rights")
        assert not (w.root / "made").exists()


async def test_a_stored_thread_goes_on_with_what_a_fence_leaves_it(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=UNTRUSTED) as w:
        thread = await start(w.client, sandbox="danger-full-access", approvalPolicy="never", cwd=str(w.root))
        await ended(w.client, await turn(w.client, thread))
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        config = w.home / "config.toml"
        config.write_text(config.read_text() + FENCE)
        for method in ("thread/fork", "thread/resume"):
            opened = await w.client.call(method, {"threadId": thread})
            assert (opened["sandbox"]["type"], opened["approvalPolicy"]) == ("readOnly", "untrusted")
            assert opened["cwd"] == str(w.root)


async def test_a_file_that_anybody_may_have_written_grants_a_thread_nothing(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=UNTRUSTED, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, sandbox="danger-full-access", approvalPolicy="never", cwd=str(w.root))
        await ended(w.client, await turn(w.client, thread))
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        planted = w.workspace / stored.name
        planted.write_bytes(stored.read_bytes())
        (w.home / "sessions/link").symlink_to(w.workspace)
        for path, granted in (
            (stored, True),
            (planted, False),
            (w.home / "sessions/link" / stored.name, False),
        ):
            fork = await w.client.call("thread/fork", {"threadId": thread, "path": str(path)})
            shown = fork["sandbox"]["type"], fork["approvalPolicy"], fork["cwd"]
            here = ("readOnly", "untrusted", str(w.workspace))
            assert shown == (("dangerFullAccess", "never", str(w.root)) if granted else here)
        await w.client.call("thread/archive", {"threadId": thread})
        opened = await w.client.call("thread/resume", {"threadId": thread, "path": str(planted)})
        assert (opened["sandbox"]["type"], opened["approvalPolicy"], opened["cwd"]) == here


DEEP = '[profiles.deep]\nmodel = "deep-model"\nmodel_reasoning_effort = "high"\n'


async def test_instructions_of_a_request_reach_the_model(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        told: Json = {"baseInstructions": "You are a tester.", "developerInstructions": "Be brief."}
        await w.client.turn(await w.open(**told))
    assert w.model.requests[0].body["instructions"] == "You are a tester."
    assert w.model.requests[0].texts("developer") == ["Be brief."]


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"profile": "missing"}, "missing"),
        ({"modelProvider": "nobody"}, "nobody"),
        ({"config": {"approval_policy": "sometimes"}}, "approval_policy"),
        ({"config": {"model_context_window": "large"}}, "model_context_window"),
    ],
)
async def test_a_setting_that_is_wrong_is_named(world: MakeWorld, params: Json, word: str) -> None:
    async with world() as w:
        with pytest.raises(Refused) as refused:
            await w.client.call("newConversation", params)
        assert word in refused.value.message
        assert await w.client.call("newConversation", {})


@pytest.mark.parametrize(
    "content",
    [
        b'model = "x"\nmodel = [\n',
        b'model = "a"\nmodel = "b"\n',
        b'model = "\xff"\n',
        b"\x00",
    ],
)
async def test_a_broken_file_is_an_answer_and_a_mended_one_works(world: MakeWorld, content: bytes) -> None:
    async with world(reply(says("ok"))) as w:
        good = (w.home / "config.toml").read_bytes()
        (w.home / "config.toml").write_bytes(content)
        with pytest.raises(Refused, match=r"config\.toml|`model`"):
            await w.client.call("newConversation", {})
        (w.home / "config.toml").write_bytes(good)
        assert (await w.client.turn(await w.open())).last_message == "ok"


async def test_saved_settings_are_shown_and_the_default_model_is_kept(world: MakeWorld) -> None:
    async with world(tables="# mine\n[tools]\nweb_search = true\n") as w:
        await w.client.call("setDefaultModel", {"model": "newer", "reasoningEffort": "low"})
        saved = (await w.client.call("getUserSavedConfig"))["config"]
        assert (saved["model"], saved["modelReasoningEffort"]) == ("newer", "low")
        assert saved["tools"]["webSearch"] is True
        assert (await w.client.call("newConversation", {}))["model"] == "newer"
        await w.client.call("setDefaultModel", {"model": None, "reasoningEffort": None})
        assert (await w.client.call("getUserSavedConfig"))["config"]["model"] is None
        assert "# mine" in (w.home / "config.toml").read_text()


async def test_what_a_provider_needs_is_sent(world: MakeWorld) -> None:
    provider = {
        "env_key": "MY_KEY",
        "http_headers": {"x-mine": "yes"},
        "env_http_headers": {"x-from-env": "MY_EXTRA"},
        "query_params": {"api-version": "1"},
    }
    environment = {"MY_KEY": "key-1", "MY_EXTRA": "extra"}
    async with world(reply(says("ok")), provider=provider, environment=environment) as w:
        await w.client.turn(await w.open())
    (request,) = w.model.requests
    assert request.path.endswith("/responses?api-version=1")
    assert request.headers["authorization"] == "Bearer key-1"
    assert (request.headers["x-mine"], request.headers["x-from-env"]) == ("yes", "extra")


async def test_a_missing_key_is_reported_with_its_instructions(world: MakeWorld) -> None:
    provider = {"env_key": "MY_KEY", "env_key_instructions": "Get one at the desk."}
    async with world(provider=provider) as w:
        turn = await w.client.turn(await w.open())
    (error,) = turn.of("error")
    assert "MY_KEY" in error["message"]
    assert "Get one at the desk." in error["message"]
    assert w.model.requests == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (failure(400, {"error": {"message": "boom-7"}}), "boom-7"),
        (failure(401, {"error": {"message": "boom-7"}}), "401"),
        (failure(500, {"error": {"message": "boom-7"}}), "500"),
        (Reply(body=b"data: {broken\n\n"), "response.completed"),
        (
            Reply(({"type": "response.failed", "response": {"error": {"code": "x", "message": "boom-7"}}},)),
            "boom-7",
        ),
    ],
)
async def test_a_failure_of_the_model_is_reported_and_the_next_turn_works(
    world: MakeWorld, bad: Reply, word: str
) -> None:
    async with world(bad, reply(says("again"))) as w:
        conversation = await w.open()
        turn = await w.client.turn(conversation, "first")
        assert word in turn.of("error")[-1]["message"]
        assert turn.last_message is None
        assert (await w.client.turn(conversation, "second")).last_message == "again"
    assert w.model.requests[1].texts() == ["first", "second"]


async def test_a_stream_that_breaks_is_tried_again(world: MakeWorld) -> None:
    cut = Reply(reply(says("half")).events[:1], cut=True)
    async with world(cut, reply(says("whole")), provider={"stream_max_retries": 2}) as w:
        turn = await w.client.turn(await w.open())
    assert turn.last_message == "whole"
    assert [e["message"] for e in turn.of("stream_error")] == ["Reconnecting... 1/2"]


async def test_the_environment_of_commands_has_no_keys(world: MakeWorld) -> None:
    environment = {"MY_API_KEY": "secret-1", "MY_PLAIN": "plain-1"}
    async with world(reply(script("env")), reply(says("ok")), environment=environment) as w:
        await w.client.turn(await w.open())
    output = w.model.requests[1].outputs()["c1"]
    assert "plain-1" in output
    assert "secret-1" not in output


CANARY = "sk-canary-0123456789"
CREDENTIALS = ("auth.json", ".credentials.json", "app-server-control/ws-token")
API = ("v1", "v2", "acp")
CONFINED = {"sandbox_mode": "workspace-write", "approval_policy": "never"}


def plant(w: World) -> None:
    if (w.workspace / "link").is_symlink():
        return
    (w.home / "app-server-control").mkdir()
    for name in CREDENTIALS:
        (w.home / name).write_text(f'{{"OPENAI_API_KEY": "{CANARY}"}}\n')
    (w.workspace / "link").symlink_to(w.home / "auth.json")
    (w.workspace / "folder").symlink_to(w.home)
    os.link(w.home / "auth.json", w.workspace / "hard")


async def talk(w: World, api: str) -> None:
    """Run one turn over an API; every client that is asked declines."""
    match api:
        case "v1":
            w.client.decide("applyPatchApproval", {"decision": "denied"})
            await w.client.turn(await w.open())
        case "v2":
            w.client.decide("item/fileChange/requestApproval", {"decision": "decline"})
            await say(w.client, await start(w.client, cwd=str(w.workspace)))
        case _:
            editor, session = await opened(w)
            editor.permit("reject_once")
            await editor.ends(session)


def told(w: World) -> str:
    """Return everything that the model and the client received, and that was stored."""
    stored = [path.read_text() for path in (w.home / "sessions").rglob("*") if path.is_file()]
    return json.dumps([[each.body for each in w.model.requests], w.client.received(), stored])


@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize("policy", ["never", "on-request", "untrusted"])
@pytest.mark.parametrize(
    "change",
    [
        "*** Delete File: {home}/auth.json",
        "*** Delete File: {home}/.credentials.json",
        "*** Delete File: {home}/app-server-control/ws-token",
        "*** Delete File: link",
        "*** Delete File: folder/auth.json",
        "*** Delete File: hard",
        "*** Update File: {home}/auth.json\n*** Move to: moved\n@@\n-{{\n+x",
        "*** Add File: {home}/auth.json\n+x",
    ],
)
async def test_a_patch_shows_no_credentials(
    world: MakeWorld, tmp_path: Path, api: str, policy: str, change: str
) -> None:
    text = f"*** Begin Patch\n{change.format(home=tmp_path / 'home')}\n*** End Patch"
    replies, config = (reply(patches(text)), reply(says("ok"))), CONFINED | {"approval_policy": policy}
    async with world(*replies, config=config, acp=api == "acp", before=plant) as w:
        await talk(w, api)
        assert CANARY not in told(w)
        assert CANARY in (w.home / "auth.json").read_text()


@pytest.mark.parametrize("policy", ["never", "on-request"])
@pytest.mark.parametrize("name", ["{home}/auth.json", "link", "hard"])
async def test_hunks_do_not_tell_what_credentials_are(
    world: MakeWorld, tmp_path: Path, policy: str, name: str
) -> None:
    said = set()
    for guess in (f'{{"OPENAI_API_KEY": "{CANARY}"}}', "wrong"):
        change = f"*** Update File: {name.format(home=tmp_path / 'home')}\n@@\n-{guess}\n+x"
        replies = reply(patches(f"*** Begin Patch\n{change}\n*** End Patch")), reply(says("ok"))
        async with world(*replies, config=CONFINED | {"approval_policy": policy}, before=plant) as w:
            await talk(w, "v1")
            said.add(json.dumps(w.model.requests[1].body["input"][-1]))
    assert len(said) == 1


LEASES = """
import fcntl, pathlib
for path in pathlib.Path({home!r}).rglob("*.jsonl"):
    file = path.open()
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        print("leased")
    except PermissionError:
        print("refused")
"""


async def test_no_command_takes_a_lease_on_the_files_of_other_threads(world: MakeWorld) -> None:
    """A writer of the file would have to wait for the holder of a lease."""
    async with world(config={"sandbox_mode": "read-only", "approval_policy": "never"}) as w:
        attack = f"{sys.executable} -I - <<'END'{LEASES.format(home=str(w.home))}END\n"
        w.model.replies.extend(
            (reply(says("one")), reply(script(attack, "c")), reply(says("ok")), reply(says("two")))
        )
        first, second = await start(w.client), await start(w.client)
        await say(w.client, first)
        await say(w.client, second)
        output = w.model.requests[2].outputs()["c"]
        assert "refused" in output
        assert "leased" not in output
        await say(w.client, first)
        [file] = w.home.rglob(f"*{first}.jsonl")
        assert "two" in file.read_text()
