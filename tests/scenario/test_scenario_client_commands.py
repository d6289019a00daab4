"""`command/exec`: commands of the client, outside of any thread."""

import base64
from collections.abc import Callable

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.world import MakeWorld, World

WRITE: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def run(w: World, script: str, **params: Json) -> Json:
    return await w.client.call("command/exec", {"command": ["sh", "-c", script], **params})


async def begin(w: World, script: str, id: str = "p", **params: Json) -> int | str:
    command = {"command": ["sh", "-c", script], "processId": id, "disableTimeout": True}
    return await w.client.send("command/exec", {**command, **params})


async def refusal(w: World, method: str, params: Json) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        await w.client.call(method, params)
    assert refused.value.data["kind"]
    return refused.value.code, refused.value.message


def heard(w: World, stream: str = "stdout", id: str = "p") -> str:
    deltas = [m["params"] for m in w.client.received() if m.get("method") == "command/exec/outputDelta"]
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
    async with world(config={"sandbox_mode": "read-only"}, initialize=False) as w:
        await w.client.initialize(capabilities={"experimentalApi": True})
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
        assert (len(done["stdout"].encode()), done["stderr"]) == (99, "ok\n")  # no half of a character
        flood = "yes | head -c 500000"
        await w.client.answer_to(await begin(w, flood, streamStdoutStderr=True, outputBytesCap=100))
        deltas = [m["params"] for m in w.client.received() if m.get("method") == "command/exec/outputDelta"]
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
        code, text = await refusal(w, "command/exec", {"command": ["touch", "made"], "processId": "p"})
        assert (code, text) == (-32600, 'duplicate active command/exec process id: "p"')
        assert await w.client.call("command/exec/terminate", {"processId": "p"}) == {}
        assert (await w.client.answer_to(ask))["result"]["exitCode"] == 137
        told = await refusal(w, "command/exec/terminate", {"processId": "p"})
        assert told == (-32600, 'no active command/exec for process id "p"')
        assert list(w.workspace.iterdir()) == []


async def test_a_client_that_leaves_leaves_nothing_running(world: MakeWorld) -> None:
    """That nothing is left is an invariant of every scenario."""
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
        assert await refusal(w, "command/exec", {"command": ["touch", "made"], **params}) == (code, text)
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
        told = [
            m["params"]["deltaBase64"]
            for m in w.client.received()
            if m.get("method") == "command/exec/outputDelta"
        ]
        assert program in answer["stderr"] + "".join(base64.b64decode(each).decode() for each in told)


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
            told = await refusal(w, write, params)
            assert (told[0], told[1].startswith(text)) == (code, True), told
        resize = {"processId": "p", "size": {"rows": 1, "cols": 1}}
        assert (await refusal(w, "command/exec/resize", resize))[1].startswith("failed to resize PTY")
        await w.client.call("command/exec/terminate", {"processId": "p"})
        await w.client.answer_to(ask)


async def test_texts_that_no_command_can_have_are_refused(world: MakeWorld) -> None:
    async with world() as w:
        commands: list[Json] = [
            {"command": ["true", "\ud800"]},
            {"command": ["true"], "env": {"X": "\ud800"}},
        ]
        for params in commands:
            code, message = await refusal(w, "command/exec", params)
            assert "not valid Unicode" in message
        named = "n" * 100_000
        requests: list[tuple[str, Json]] = [
            ("command/exec/terminate", {"processId": named}),
            ("command/exec", {"command": ["true"], "permissionProfile": named}),
        ]
        for method, params in requests:
            code, message = await refusal(w, method, params)
            assert code == -32600
            assert len(message) < 300
