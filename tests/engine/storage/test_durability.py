"""The end of a server and its durability: it ends in time, with everything stored and no child left."""

import json
import os
import resource
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Client, Refused
from tests.support.pipes import INITIALIZE, Piped
from tests.support.places import OURS, Place, place_in
from tests.support.processes import alive
from tests.support.program import SCRIPT
from tests.support.scripted_model import reply, says, script
from tests.support.waiting import until, wait_until
from tests.support.world import PATH

pytestmark = pytest.mark.process


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def stored_warnings(client: Client) -> list[str]:
    return [w["message"] for w in client.events("warning") if "cannot be stored" in w["message"]]


async def test_stored_conversations_are_readable_by_their_owner_only_whatever_the_umask(
    tmp_path: Path,
) -> None:
    careless = ("sh", "-c", 'umask 0; exec "$@"', "sh", *OURS)
    async with place_in(tmp_path) as place, place.server(command=careless) as server:
        place.model.replies[:] = [reply(says("one"))]
        conversation = await server.open()
        await server.client.turn(conversation)
        await server.client.submit(conversation, {"type": "add_to_history", "text": "words"})
        await server.client.call("loginApiKey", {"apiKey": "sk-test"})
        await until((place.home / "history.jsonl").exists, "the message history is written")
    private = [*place.rollouts(), place.home / "history.jsonl", place.home / "auth.json"]
    assert {path.name: oct(mode(path)) for path in private} == {path.name: "0o600" for path in private}
    folders = [
        path for path in (place.home / "sessions", *(place.home / "sessions").rglob("*")) if path.is_dir()
    ]
    assert {oct(mode(path)) for path in folders} == {"0o700"}


async def test_a_turn_is_on_the_disk_once_it_has_ended(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        place.watch()
        async with place.server() as server:
            conversation = await server.open()
            (path,) = place.rollouts()
            place.model.replies[:] = [reply(says("one"))]
            await server.client.turn(conversation)
            await until(lambda: str(path) in place.calls("fsync"), "the rollout is brought to the disk")


async def test_what_is_approved_is_on_the_disk_before_it_is_done(tmp_path: Path) -> None:
    """The command itself reads what is synced by then: the rollout, and the file beside it with the pending call."""
    async with place_in(tmp_path, approval="untrusted") as place:
        place.watch()
        async with place.server() as server:
            server.client.decide("execCommandApproval", "approved")
            conversation = await server.open()
            (path,) = place.rollouts()
            looks = script(f"cp {place.root}/calls {place.root}/seen")
            place.model.replies[:] = [reply(looks), reply(says("one"))]
            await server.client.turn(conversation)
        seen = (place.root / "seen").read_text()
        assert f'"{path}"' in seen
        assert f'"{path.with_name("." + path.name + ".pending")}"' in seen


async def test_a_conversation_goes_on_with_a_full_disk_and_is_whole_when_there_is_space_again(
    tmp_path: Path,
) -> None:
    questions = [f"question-{n}" for n in range(4)]
    async with place_in(tmp_path) as place:
        async with place.server() as server:
            place.model.replies[:] = [reply(says(f"answer-{n}")) for n in range(4)]
            conversation = await server.open()
            await server.client.turn(conversation, questions[0])
            (path,) = place.rollouts()
            before = path.read_bytes()
            # A file with a size limit refuses writes like a full disk, and accepts a part of a write first.
            unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (len(before) + 100, unlimited[1]))
            for n in (1, 2):
                turn = await server.client.turn(conversation, questions[n])
                assert turn.last_message == f"answer-{n}"
            assert len(stored_warnings(server.client)) == 1, "it is told once"
            assert path.read_bytes().startswith(before), "what was stored is unharmed"
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
            await server.client.turn(conversation, questions[3])
        assert await remembered(place, path) == questions
        assert place.model.requests[-1].texts("assistant") == [f"answer-{n}" for n in range(4)]


async def remembered(place: Place, path: Path) -> list[str]:
    """Return the messages of the user that the model receives in the next server."""
    async with place.server() as server:
        resumed = await server.client.resume(path=str(path))
        place.model.replies[:] = [reply(says("the last"))]
        await server.client.turn(resumed["conversationId"], "the last question")
    return place.model.requests[-1].texts()[:-1]


async def test_a_home_that_cannot_store_conversations_causes_a_warning(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        (place.home / "sessions").write_text("in the way")
        async with place.server() as server:
            place.model.replies[:] = [reply(says("one")), reply(says("two"))]
            conversation = await server.open()
            for text in ("one", "two"):
                assert (await server.client.turn(conversation)).last_message == text
            assert len(stored_warnings(server.client)) == 1
        assert place.model.requests[1].texts("assistant") == ["one"]


async def test_a_message_history_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        (place.home / "history.jsonl").mkdir()
        async with place.server() as server:
            place.model.replies[:] = [reply(says("one"))]
            conversation = await server.open()
            await server.client.submit(conversation, {"type": "add_to_history", "text": "words"})
            told = (await server.client.expect("warning"))["params"]["msg"]["message"]
            assert "history" in told
            assert (await server.client.turn(conversation)).last_message == "one"


async def test_a_conversation_that_ran_no_turn_survives_sigkill(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        async with place.server() as server:
            opened = await server.client.call("newConversation", {"cwd": str(place.workspace)})
            await server.kill()
        assert await remembered(place, Path(opened["rolloutPath"])) == []


async def test_one_conversation_has_one_writer_until_it_is_gone(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place, place.server() as second:
        async with place.server() as first:
            place.model.replies[:] = [reply(says("one"))]
            conversation = await first.open()
            await first.client.turn(conversation, "first")
            with pytest.raises(Refused, match="active writer"):
                await second.client.resume(conversationId=conversation)
            await first.kill()
        await second.client.resume(conversationId=conversation)
        place.model.replies[:] = [reply(says("two"))]
        await second.client.turn(conversation, "second")
        assert place.model.requests[-1].texts() == ["first", "second"]


WITHIN = 2.0
"""Time that clients grant before they kill, in seconds; a loaded machine gets more."""
SLACK = 5.0

ENDS = ["eof", "mid-line", "SIGTERM", "SIGINT", "SIGHUP"]


@pytest.fixture(autouse=True)
def signals_count() -> Iterator[None]:
    """Let children receive SIGHUP and SIGINT. Under nohup, or in a shell's background, a child ignores one of them
    until the server has set its own handler.
    """
    deaf = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


def depart(server: Piped, how: str) -> None:
    match how:
        case "eof":
            server.leave()
        case "mid-line":
            server.write(b'{"id":1,"method":"getUserAg')
            server.leave()
        case _:
            server.tell(signal.Signals[how])


@pytest.mark.parametrize("how", ENDS)
def test_it_leaves_with_a_conversation_stored_and_no_child(how: str, tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        server.initialize()
        opened = server.call("newConversation", {"cwd": str(server.workspace)})
        server.call(
            "execOneOffCommand", {"command": ["true"], "sandboxPolicy": {"mode": "danger-full-access"}}
        )
        children = server.descendants()
        depart(server, how)
        assert server.status(WITHIN + SLACK) == 0
        assert alive(children) == []
        first = Path(opened["rolloutPath"]).read_text().splitlines()[0]
        assert json.loads(first)["type"] == "session_meta"


@pytest.mark.parametrize("how", ENDS)
def test_it_leaves_before_anything_was_said(how: str, tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        depart(server, how)
        status = server.status(WITHIN + SLACK)
        # A signal may come before the first line of the program. Then Python itself ends it, in its own way.
        assert status == 0 or how.startswith("SIG")


def test_it_takes_a_one_off_command_along(tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        server.initialize()
        command = ["sh", "-c", "sleep 1000 & echo $$ > pid; sleep 1000"]
        params = {"command": command, "cwd": str(server.workspace), "timeoutMs": 1_000_000}
        params["sandboxPolicy"] = {"mode": "danger-full-access"}
        server.write(json.dumps({"id": 1, "method": "execOneOffCommand", "params": params}).encode() + b"\n")
        wait_until(lambda: (server.workspace / "pid").exists())
        children = server.descendants()
        assert len(children) >= 3
        server.leave()
        assert server.status(WITHIN + SLACK) == 0
        assert alive(children) == []


@pytest.mark.parametrize("stdin", ["file", "null", "closed"])
def test_stdin_may_be_anything_that_ends(stdin: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked.jsonl"
    lines = [{"id": 1, "method": "initialize", "params": INITIALIZE}, {"id": 2, "method": "getUserAgent"}]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"file": str(asked), "null": "/dev/null", "closed": ""}[stdin]
    command = f'exec "{SCRIPT}" ' + (f'< "{source}"' if source else "<&-")
    done = subprocess.run(
        ("sh", "-c", command), capture_output=True, timeout=30, check=False, env=environment(tmp_path)
    )
    answers = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert answers == ([1, 2] if stdin == "file" else [])


def test_a_log_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    """A pipe holds 64 KiB. The server does not wait to write what does not fit."""
    read, write = os.pipe()
    try:
        with os.fdopen(write, "wb") as stderr:
            server = Piped(tmp_path, environment={"APP_SERVER_LOG": "debug"}, stderr=stderr)
        with server:
            server.initialize()
            answers = server.answers_to(b"no json\n" * 3000)
            assert len(answers) == 3000
            assert server.healthy(10)
            server.leave()
            assert server.status(WITHIN + SLACK) == 0
    finally:
        os.close(read)


def test_a_log_that_is_closed_holds_up_nothing(tmp_path: Path) -> None:
    asked = json.dumps({"id": 1, "method": "initialize", "params": INITIALIZE}) + "\nno json\n"
    asked += '{"id":2,"method":"getUserAgent"}\n'
    done = subprocess.run(
        ("sh", "-c", f'exec "{SCRIPT}" 2>&-'),
        input=asked.encode(),
        capture_output=True,
        timeout=30,
        check=False,
        env={**environment(tmp_path), "APP_SERVER_LOG": "debug"},
    )
    assert done.returncode == 0
    assert 2 in [json.loads(line)["id"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}], ids=str)
def test_what_it_says_is_utf_8_in_every_locale(locale: dict[str, str], tmp_path: Path) -> None:
    with Piped(tmp_path, environment=locale) as server:
        server.initialize()
        answer = server.ask("ünï/☃")
        assert "ünï/☃" in answer["error"]["message"]


def environment(root: Path) -> dict[str, str]:
    return {"PATH": PATH, "HOME": str(root), "CODEX_HOME": str(root / "home")}
