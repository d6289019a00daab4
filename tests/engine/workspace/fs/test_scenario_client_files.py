"""Requests of clients outside of any thread: files, searches of files, commands."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.thread_client import notified
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

OFF = "[app_server]\nclient_rights = false\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def refusal(w: World, method: str, params: Json) -> tuple[int, str, str]:
    with pytest.raises(Refused) as refused:
        await w.client.call(method, params)
    return refused.value.code, refused.value.data["kind"], refused.value.message


async def test_files_are_written_read_listed_copied_and_removed(world: MakeWorld) -> None:
    async with world(config={"sandbox_mode": "read-only"}) as w:
        call, path = w.client.call, str(w.workspace / "d" / "f")
        assert await call("fs/createDirectory", {"path": str(w.workspace / "d")}) == {}
        assert await call("fs/writeFile", {"path": path, "dataBase64": b64("hello")}) == {}
        assert await call("fs/readFile", {"path": path}) == {"dataBase64": b64("hello")}
        listed = await call("fs/readDirectory", {"path": str(w.workspace / "d")})
        assert listed == {"entries": [{"fileName": "f", "isDirectory": False, "isFile": True}]}
        found = await call("fs/getMetadata", {"path": path})
        assert (found["isFile"], found["createdAtMs"] >= 0, found["modifiedAtMs"] > 0) == (True, True, True)
        copy = {"sourcePath": str(w.workspace / "d"), "destinationPath": str(w.workspace / "e")}
        assert await call("fs/copy", {**copy, "recursive": True}) == {}
        assert await call("fs/remove", {"path": str(w.workspace / "d")}) == {}
        assert [child.name for child in w.workspace.iterdir()] == ["e"]


async def test_requests_about_one_path_keep_their_order(world: MakeWorld) -> None:
    async with world() as w:
        path = str(w.workspace / "f")
        writes = [
            await w.client.send("fs/writeFile", {"path": path, "dataBase64": b64("x" * n)}) for n in range(40)
        ]
        read = await w.client.ask("fs/readFile", {"path": path})
        assert read["result"]["dataBase64"] == b64("x" * 39)
        assert [(await w.client.answer_to(id))["result"] for id in writes] == [{}] * 40


async def test_errors_say_what_is_wrong(world: MakeWorld) -> None:
    async with world(files={"f": "old"}) as w:
        f, absent = str(w.workspace / "f"), str(w.workspace / "absent")
        for method in ("fs/readFile", "fs/getMetadata", "fs/readDirectory"):
            told = await refusal(w, method, {"path": absent})
            assert told == (-32603, "io", "No such file or directory (os error 2)")
        bad = await refusal(w, "fs/writeFile", {"path": f, "dataBase64": "no base64!"})
        assert bad[:2] == (-32600, "invalid_params")
        assert bad[2].startswith("fs/writeFile requires valid base64 dataBase64: ")
        assert Path(f).read_text() == "old"
        relative = await refusal(w, "fs/readFile", {"path": "f"})
        assert "AbsolutePathBuf deserialized without a base path" in relative[2]
        os.mkfifo(w.workspace / "fifo")
        told = await refusal(w, "fs/readFile", {"path": str(w.workspace / "fifo")})
        assert told == (-32600, "not_a_file", f"path `{w.workspace}/fifo` is not a file")


async def test_the_users_configuration_switches_it_off(world: MakeWorld) -> None:
    async with world(tables=OFF, files={"f": "old"}) as w:
        f = str(w.workspace / "f")
        for method, params in (
            ("fs/readFile", {"path": f}),
            ("fs/writeFile", {"path": f, "dataBase64": b64("new")}),
            ("fs/createDirectory", {"path": f"{f}d"}),
            ("fs/getMetadata", {"path": f}),
            ("fs/readDirectory", {"path": str(w.workspace)}),
            ("fs/remove", {"path": f}),
            ("fs/copy", {"sourcePath": f, "destinationPath": f"{f}2"}),
            ("fs/watch", {"path": f, "watchId": "w"}),
        ):
            code, kind, text = await refusal(w, method, params)
            assert (code, kind) == (-32600, "client_rights")
            assert text.startswith(f"{method} is switched off")
        assert [child.name for child in w.workspace.iterdir()] == ["f"]
        assert Path(f).read_text() == "old"


async def test_changes_are_told_until_they_are_not_wanted(world: MakeWorld) -> None:
    async with world() as w:
        path = str(w.workspace)
        assert await w.client.call("fs/watch", {"path": f"{path}/.", "watchId": "w"}) == {"path": path}
        told = await refusal(w, "fs/watch", {"path": path, "watchId": "w"})
        assert told == (-32600, "watch_exists", "watchId already exists: w")
        (w.workspace / "f").write_text("x")
        changed = await w.client.expect("fs/changed")
        assert changed["params"] == {"watchId": "w", "changedPaths": [f"{path}/f"]}
        for _ in range(2):
            assert await w.client.call("fs/unwatch", {"watchId": "w"}) == {}
        seen = len(w.client.received())
        (w.workspace / "g").write_text("x")
        await w.client.call("fs/watch", {"path": f"{path}/h", "watchId": "x"})
        (w.workspace / "h").write_text("x")
        await w.client.expect("fs/changed")
        ids = [m["params"]["watchId"] for m in w.client.received()[seen:] if m.get("method") == "fs/changed"]
        assert set(ids) == {"x"}


TREE = {"src/client.py": "", "src/server.py": "", "docs/client/x": ""}


def search(w: World, query: str) -> Json:
    return {"query": query, "roots": [str(w.workspace)], "cancellationToken": None}


async def test_who_names_capabilities_is_given_folders_and_kinds(world: MakeWorld) -> None:
    async with world(files=TREE, capabilities={}) as w:
        found = await w.client.call("fuzzyFileSearch", search(w, "client"))
        assert [(f["path"], f["match_type"], f["file_name"]) for f in found["files"]] == [
            ("docs/client", "directory", "client"),
            ("src/client.py", "file", "client.py"),
            ("docs/client/x", "file", "x"),
        ]
        assert found["files"][1]["indices"] == [4, 5, 6, 7, 8, 9]


async def test_others_are_given_files_also_beside_the_thread_api(world: MakeWorld) -> None:
    async with world(files=TREE) as w:
        for _ in range(2):
            found = await w.client.call("fuzzyFileSearch", search(w, "client"))
            assert [set(f) for f in found["files"]] == [{"root", "path", "file_name", "score", "indices"}] * 2
            await w.client.call("thread/loaded/list", {})


async def test_a_session_tells_what_it_finds_for_each_query(world: MakeWorld) -> None:
    async with world(files=TREE, capabilities=EXPERIMENTAL) as w:
        start = {"sessionId": "s", "roots": [str(w.workspace)]}
        assert await w.client.call("fuzzyFileSearch/sessionStart", start) == {}
        first = await w.client.expect("fuzzyFileSearch/sessionUpdated")
        assert first["params"] == {"sessionId": "s", "query": "", "files": []}
        await w.client.expect("fuzzyFileSearch/sessionCompleted")
        for query, best in (("serv", "src/server.py"), ("cli", "src/client.py")):
            update = {"sessionId": "s", "query": query}
            assert await w.client.call("fuzzyFileSearch/sessionUpdate", update) == {}
            found = (await w.client.expect("fuzzyFileSearch/sessionUpdated"))["params"]
            assert (found["query"], found["files"][0]["path"]) == (query, best)
            completed = await w.client.expect("fuzzyFileSearch/sessionCompleted")
            assert completed["params"] == {"sessionId": "s"}
        for _ in range(2):
            assert await w.client.call("fuzzyFileSearch/sessionStop", {"sessionId": "s"}) == {}
        with pytest.raises(Refused, match="fuzzy file search session not found: s"):
            await w.client.call("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": "x"})


async def test_the_last_query_is_answered_when_many_come(world: MakeWorld) -> None:
    async with world(files=TREE, capabilities=EXPERIMENTAL) as w:
        await w.client.call("fuzzyFileSearch/sessionStart", {"sessionId": "s", "roots": [str(w.workspace)]})
        queries = ["c", "cl", "cli", "clie"]
        for query in queries:
            await w.client.send("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": query})
        await w.client.expect(
            lambda m: m.get("method") == "fuzzyFileSearch/sessionUpdated" and m["params"]["query"] == "clie"
        )
        told = [
            m["params"]["query"]
            for m in w.client.received()
            if m.get("method", "").endswith("sessionUpdated")
        ]
        assert told == [query for query in ["", *queries] if query in told], "in their order"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"sessionId": "", "roots": ["/"]}, "sessionId must not be empty"),
        ({"sessionId": "s", "roots": []}, "at least one search directory is required"),
    ],
)
async def test_a_session_needs_a_name_and_a_root(world: MakeWorld, params: Json, text: str) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        with pytest.raises(Refused, match=text):
            await w.client.call("fuzzyFileSearch/sessionStart", params)


WRITE: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}


async def run(w: World, script: str, **params: Json) -> Json:
    return await w.client.call("command/exec", {"command": ["sh", "-c", script], **params})


async def begin(w: World, script: str, id: str = "p", **params: Json) -> int | str:
    command = {"command": ["sh", "-c", script], "processId": id, "disableTimeout": True}
    return await w.client.send("command/exec", {**command, **params})


async def command_refusal(w: World, method: str, params: Json) -> tuple[int, str]:
    code, _, message = await refusal(w, method, params)
    return code, message


def heard(w: World, stream: str = "stdout", id: str = "p") -> str:
    deltas = notified(w, "command/exec/outputDelta")
    parts = [d["deltaBase64"] for d in deltas if (d["processId"], d["stream"]) == (id, stream)]
    return b"".join(base64.b64decode(part) for part in parts).decode()


def says(word: str) -> Callable[[Json], bool]:
    def match(message: Json) -> bool:
        if message.get("method") != "command/exec/outputDelta":
            return False
        return word in base64.b64decode(message["params"]["deltaBase64"]).decode()

    return match


async def test_a_command_gives_its_output(world: MakeWorld) -> None:
    async with world(environment={"OPENAI_API_KEY": "sk-canary", "KEPT": "kept"}) as w:
        script = "pwd; echo $A$KEPT$OPENAI_API_KEY; echo err >&2; exit 5"
        done = await run(w, script, cwd="..", env={"A": "a", "KEPT": None})
        assert done == {"exitCode": 5, "stdout": f"{w.root}\na\n", "stderr": "err\n"}


@pytest.mark.parametrize(
    ("chosen", "inside", "outside"),
    [
        ({}, False, False),
        ({"sandboxPolicy": {"type": "readOnly"}}, False, False),
        ({"sandboxPolicy": WRITE}, True, False),
        ({"sandboxPolicy": {"type": "dangerFullAccess"}}, True, True),
        ({"permissionProfile": ":read-only"}, False, False),
        ({"permissionProfile": ":danger-full-access"}, True, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("tty", [False, True])
async def test_the_sandbox_is_the_one_that_is_named_or_configured(
    world: MakeWorld, chosen: dict[str, Json], inside: bool, outside: bool, tty: bool
) -> None:
    async with world(config={"sandbox_mode": "read-only"}, capabilities=EXPERIMENTAL) as w:
        await run(w, "echo > inside; echo > ../outside; true", tty=tty, processId="p", **chosen)
        assert ((w.workspace / "inside").exists(), (w.root / "outside").exists()) == (inside, outside)


async def test_output_is_streamed_and_input_typed(world: MakeWorld) -> None:
    async with world() as w:
        ask = await begin(w, "cat; echo end >&2", streamStdin=True, streamStdoutStderr=True)
        assert await w.client.call("command/exec/write", {"processId": "p", "deltaBase64": b64("one ")}) == {}
        await w.client.expect(says("one "))
        last = {"processId": "p", "deltaBase64": b64("two"), "closeStdin": True}
        assert await w.client.call("command/exec/write", last) == {}
        done = await w.client.answer_to(ask)
        assert done["result"] == {"exitCode": 0, "stdout": "", "stderr": ""}
        assert (heard(w), heard(w, "stderr")) == ("one two", "end\n")
        assert "result" in w.client.received()[-1], "all output comes before the answer"


async def test_a_terminal_is_resized(world: MakeWorld) -> None:
    async with world() as w:
        script = "stty size; echo TERM:$TERM; read word; stty size"
        ask = await begin(w, script, tty=True, size={"rows": 7, "cols": 9})
        await w.client.expect(says("TERM:xterm"))
        resize: Json = {"processId": "p", "size": {"rows": 11, "cols": 13}}
        assert await w.client.call("command/exec/resize", resize) == {}
        await w.client.call("command/exec/write", {"processId": "p", "deltaBase64": b64("x\n")})
        assert (await w.client.answer_to(ask))["result"]["exitCode"] == 0
        assert "7 9" in heard(w)
        assert "11 13" in heard(w)


async def test_output_ends_at_the_cap(world: MakeWorld) -> None:
    async with world() as w:
        done = await run(w, "yes é | head -c 5000; echo ok >&2", outputBytesCap=100)
        assert (len(done["stdout"].encode()), done["stderr"]) == (99, "ok\n")  # no character is cut in half
        flood = "yes | head -c 500000"
        await w.client.answer_to(await begin(w, flood, streamStdoutStderr=True, outputBytesCap=100))
        deltas = notified(w, "command/exec/outputDelta")
        assert [delta["capReached"] for delta in deltas] == [False] * (len(deltas) - 1) + [True]
        assert len(heard(w)) == 100
        await w.client.answer_to(
            await begin(w, flood, id="q", streamStdoutStderr=True, disableOutputCap=True)
        )
        assert len(heard(w, id="q")) == 500_000
        assert max(len(str(m)) for m in w.client.received()) < 64 * 1024


async def test_a_command_ends_when_it_is_told_to_or_its_time_is_up(world: MakeWorld) -> None:
    async with world() as w:
        assert (await run(w, "echo x; sleep 100", timeoutMs=300))["exitCode"] == 124
        ask = await begin(w, "echo up; sleep 100", streamStdoutStderr=True)
        await w.client.expect(says("up"))
        code, text = await command_refusal(
            w, "command/exec", {"command": ["touch", "made"], "processId": "p"}
        )
        assert (code, text) == (-32600, 'duplicate active command/exec process id: "p"')
        assert await w.client.call("command/exec/terminate", {"processId": "p"}) == {}
        assert (await w.client.answer_to(ask))["result"]["exitCode"] == 137
        told = await command_refusal(w, "command/exec/terminate", {"processId": "p"})
        assert told == (-32600, 'no active command/exec for process id "p"')
        assert list(w.workspace.iterdir()) == []


async def test_a_client_that_leaves_leaves_nothing_running(world: MakeWorld) -> None:
    """Every scenario checks that nothing is left."""
    async with world(transport="process") as w:
        for tty in (False, True):
            await begin(
                w, "setsid sleep 100 & echo up; sleep 100", f"p{tty}", streamStdoutStderr=True, tty=tty
            )
            await w.client.expect(says("up"))
        await w.client.leave()


@pytest.mark.parametrize(
    ("params", "code", "text"),
    [
        ({"command": []}, -32600, "command must not be empty"),
        ({"tty": True}, -32600, "command/exec tty or streaming requires a client-supplied processId"),
        ({"streamStdin": True}, -32600, "command/exec tty or streaming requires a client-supplied processId"),
        ({"timeoutMs": -1}, -32602, "command/exec timeoutMs must be non-negative, got -1"),
        (
            {"timeoutMs": 1, "disableTimeout": True},
            -32602,
            "command/exec cannot set both timeoutMs and disableTimeout",
        ),
        (
            {"outputBytesCap": 1, "disableOutputCap": True},
            -32602,
            "command/exec cannot set both outputBytesCap and disableOutputCap",
        ),
        ({"size": {"rows": 1, "cols": 1}}, -32602, "command/exec size requires tty: true"),
        (
            {"tty": True, "processId": "p", "size": {"rows": 0, "cols": 1}},
            -32602,
            "command/exec size rows and cols must be greater than 0",
        ),
        (
            {"sandboxPolicy": {"mode": "danger-full-access"}},
            -32600,
            "Invalid request: `sandboxPolicy`: expected a policy with a `type`, "
            "one of dangerFullAccess, readOnly, externalSandbox, workspaceWrite",
        ),
        (
            {"sandboxPolicy": {"type": "danger-full-access"}},
            -32600,
            "Invalid request: `sandboxPolicy`: expected a policy with a `type`, "
            "one of dangerFullAccess, readOnly, externalSandbox, workspaceWrite",
        ),
        (
            {"command": ["/no/such"], "sandboxPolicy": {"type": "dangerFullAccess"}},
            -32603,
            "failed to spawn command: No such file or directory (os error 2)",
        ),
        ({"cwd": "/no/such"}, -32603, "failed to spawn command: No such file or directory (os error 2)"),
    ],
    ids=str,
)
async def test_errors_are_printed(world: MakeWorld, params: dict[str, Json], code: int, text: str) -> None:
    async with world() as w:
        assert await command_refusal(w, "command/exec", {"command": ["touch", "made"], **params}) == (
            code,
            text,
        )
        assert list(w.workspace.iterdir()) == []


@pytest.mark.parametrize(("program", "code"), [("/no/such", 127), ("no-such-program", 127), ("/etc", 126)])
@pytest.mark.parametrize(
    "stream", [{}, {"processId": "p", "streamStdoutStderr": True}, {"processId": "p", "tty": True}]
)
async def test_what_is_no_program_is_a_result_in_the_sandbox(
    world: MakeWorld, program: str, code: int, stream: dict[str, Json]
) -> None:
    async with world() as w:
        answer = await w.client.call(
            "command/exec", {"command": [program], "sandboxPolicy": {"type": "readOnly"}, **stream}
        )
        assert answer["exitCode"] == code
        assert program in answer["stderr"] + heard(w) + heard(w, "stderr")


async def test_writing_says_what_is_wrong(world: MakeWorld) -> None:
    async with world() as w:
        ask = await begin(w, "sleep 100")
        write = "command/exec/write"
        for params, code, text in (
            ({"processId": "p"}, -32602, "command/exec/write requires deltaBase64 or closeStdin"),
            ({"processId": "p", "deltaBase64": "!!"}, -32602, "invalid deltaBase64: "),
            ({"processId": "p", "closeStdin": True}, -32600, "stdin streaming is not enabled"),
            ({"processId": "q", "closeStdin": True}, -32600, "no active command/exec for process id"),
        ):
            told = await command_refusal(w, write, params)
            assert (told[0], told[1].startswith(text)) == (code, True), told
        resize = {"processId": "p", "size": {"rows": 1, "cols": 1}}
        assert (await command_refusal(w, "command/exec/resize", resize))[1].startswith("failed to resize PTY")
        await w.client.call("command/exec/terminate", {"processId": "p"})
        await w.client.answer_to(ask)


async def test_texts_that_no_command_can_have_are_refused(world: MakeWorld) -> None:
    async with world() as w:
        commands: list[Json] = [
            {"command": ["true", "\ud800"]},
            {"command": ["true"], "env": {"X": "\ud800"}},
        ]
        for params in commands:
            code, message = await command_refusal(w, "command/exec", params)
            assert "not valid Unicode" in message
        named = "n" * 100_000
        requests: list[tuple[str, Json]] = [
            ("command/exec/terminate", {"processId": named}),
            ("command/exec", {"command": ["true"], "permissionProfile": named}),
        ]
        for method, params in requests:
            code, message = await command_refusal(w, method, params)
            assert code == -32600
            assert len(message) < 300
