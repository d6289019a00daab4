"""Services without a conversation: commands, searches, diffs, models, and the login status."""

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

TREE = {
    "alpha/beta.txt": "",
    "alphabet.txt": "",
    "src/main.py": "",
    ".hidden/alpha.txt": "",
    "ignored/alpha.log": "",
    ".gitignore": "ignored/\n",
}


# --- commands


@pytest.mark.parametrize(
    ("policy", "inside", "outside"),
    [
        (None, False, False),
        ({"mode": "read-only"}, False, False),
        ({"mode": "workspace-write", "exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}, True, False),
        ({"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}, True, False),
        ({"mode": "danger-full-access"}, True, True),
    ],
    ids=str,
)
async def test_a_command_runs_in_the_sandbox_it_is_asked_for_or_the_configured_one(
    world: MakeWorld, policy: Json, inside: bool, outside: bool
) -> None:
    async with world(config={"sandbox_mode": "read-only"}) as w:
        command = ["sh", "-c", "echo > inside; echo > ../outside; true"]
        params = {"command": command, "cwd": str(w.workspace), "sandboxPolicy": policy}
        await w.client.call("execOneOffCommand", params)
        assert ((w.workspace / "inside").exists(), (w.root / "outside").exists()) == (inside, outside)


@pytest.mark.parametrize(
    "params",
    [{"command": []}, {"command": ["/no/such/program"]}, {"command": ["true"], "cwd": "/no/such/folder"}],
)
async def test_a_command_that_cannot_run_is_an_error(world: MakeWorld, params: Json) -> None:
    async with world() as w:
        with pytest.raises(Refused):
            await w.client.call("execOneOffCommand", params)


async def test_a_long_command_holds_up_nothing_else(world: MakeWorld) -> None:
    async with world() as w:
        command = ["sh", "-c", "read line < gate; echo went"]
        w.fifo("gate")
        params = {"command": command, "cwd": str(w.workspace), "timeoutMs": 60_000}
        id = await w.client.send("execOneOffCommand", params)
        assert await w.client.call("getUserAgent")
        await w.client.call("newConversation", {})
        await w.open_gate("gate")
        assert (await w.client.answer_to(id))["result"]["stdout"] == "went\n"


# --- files
async def test_files_are_found_by_a_rough_spelling(world: MakeWorld) -> None:
    async with world(files=TREE, git=True) as w:

        async def search(query: str) -> list[str]:
            answer = await w.client.call("fuzzyFileSearch", {"query": query, "roots": [str(w.workspace)]})
            return [each["path"] for each in answer["files"]]

        assert set(await search("alp")) == {"alpha/beta.txt", "alphabet.txt", ".hidden/alpha.txt"}
        assert await search("mainpy") == ["src/main.py"]
        assert await search("zzz") == []
        assert not [path for path in await search("HEAD") if path.startswith(".git/")]


async def test_a_search_with_the_same_token_ends_the_one_before(world: MakeWorld) -> None:
    files = {f"{a}/{b}/file{c}.txt": "" for a in range(10) for b in range(10) for c in range(5)}
    async with world(files=files) as w:
        params = {"query": "file", "roots": [str(w.workspace)], "cancellationToken": "t"}
        ids = [await w.client.send("fuzzyFileSearch", params) for _ in range(20)]
        found = [len((await w.client.answer_to(id))["result"]["files"]) for id in ids]
        assert found[-1] > 0, "the last is never ended"
        assert min(found) == 0, "those before are"


# --- git
async def test_the_difference_to_the_remote_has_new_files_too(world: MakeWorld) -> None:
    async with world(files={"a.txt": "one\n"}, git=True) as w:
        w.git("clone", "-q", "--bare", str(w.workspace), str(w.root / "remote.git"))
        w.git("remote", "add", "origin", str(w.root / "remote.git"))
        w.git("fetch", "-q", "origin")
        w.git("branch", "-q", "-u", "origin/main")
        sha = w.git("rev-parse", "HEAD").strip()
        w.write({"a.txt": "one\ntwo\n", "new.txt": "new\n"})
        w.git("commit", "-qam", "local")
        answer = await w.client.call("gitDiffToRemote", {"cwd": str(w.workspace)})
        assert answer["sha"] == sha
        assert "+two" in answer["diff"]
        assert "+new" in answer["diff"]


async def test_where_there_is_no_remote_the_difference_is_an_error(world: MakeWorld) -> None:
    async with world(git=True) as w:
        for folder in (w.workspace, w.root, w.root / "nowhere"):
            with pytest.raises(Refused, match="git diff to remote"):
                await w.client.call("gitDiffToRemote", {"cwd": str(folder)})


# --- accounts
async def test_where_no_login_is_needed_it_says_so(world: MakeWorld) -> None:
    async with world() as w:
        status = await w.client.call("getAuthStatus", {})
        assert status["requiresOpenaiAuth"] is False
        assert await w.client.call("userInfo") == {"allegedUserEmail": None}
        with pytest.raises(Refused, match="login id not found"):
            await w.client.call("cancelLoginChatGpt", {"loginId": "00000000-0000-7000-8000-000000000000"})
