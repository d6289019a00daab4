"""Rights that clients and stored threads name: paths are absolute, and a fence holds in every API."""

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.editor import Editor
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import ended, start, turn
from tests.support.world import MakeWorld, World

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
        if root not in ("~", "~/x"):  # as in the file, where the home of the user is meant
            await refused(w, "thread/start", {"config": given}, "must hold absolute paths")
        assert not (w.root / "outside").exists()


@pytest.mark.parametrize("root", ["..", "", "~/x"])
async def test_a_relative_root_is_refused_over_every_method_of_conversations(
    world: MakeWorld, root: str
) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        policy = {"mode": "workspace-write", "writable_roots": [root]}
        turn_of = {
            "conversationId": conversation,
            "items": [],
            "cwd": str(w.workspace),
            "approvalPolicy": "never",
            "sandboxPolicy": policy,
            "model": "m",
            "summary": "auto",
        }
        change = {"type": "override_turn_context", "sandbox_policy": policy}
        await refused(w, "sendUserTurn", turn_of)
        await refused(w, "submit", {"conversationId": conversation, "op": change})
        await refused(w, "execOneOffCommand", {"command": ["sh", "-c", OUTSIDE], "sandboxPolicy": policy})
        assert not (w.root / "outside").exists()


async def test_a_stored_root_that_is_relative_is_none(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        policy = workspace("/var/empty")
        words = [{"type": "text", "text": "go"}]
        begun = {"threadId": thread, "input": words, "sandboxPolicy": policy}
        await ended(w.client, (await w.client.call("turn/start", begun))["turn"]["id"])
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
    async with world(reply(says("ok")), config=UNTRUSTED, tables=FENCE, initialize=False) as w:
        await w.client.initialize(capabilities={"experimentalApi": True})
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
        turn_of: Json = {
            "conversationId": conversation,
            "items": [],
            "cwd": str(w.workspace),
            "approvalPolicy": "untrusted",
            "sandboxPolicy": {"mode": "read-only"},
            "model": "m",
            "summary": "auto",
        }
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
    async with world(reply(says("ok")), config=UNTRUSTED, initialize=False) as w:
        await w.client.initialize(capabilities={"experimentalApi": True})
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
