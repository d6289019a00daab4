"""What a server promises of the files that it keeps, seen from outside: modes, locks, full disks, power cuts."""

import resource
import stat
from pathlib import Path

import pytest

from tests.process.servers import Place, place_in
from tests.support.client import Client, Refused
from tests.support.scripted_model import reply, says, script
from tests.support.waiting import until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def stored_warnings(client: Client) -> list[str]:
    return [w["message"] for w in client.events("warning") if "cannot be stored" in w["message"]]


async def test_stored_conversations_are_readable_by_their_owner_only_whatever_the_umask(
    tmp_path: Path,
) -> None:
    async with place_in(tmp_path) as place, place.server(shell="umask 0") as server:
        place.model.replies[:] = [reply(says("one"))]
        conversation = await place.open(server.client)
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
            conversation = await place.open(server.client)
            (path,) = place.rollouts()
            place.model.replies[:] = [reply(says("one"))]
            await server.client.turn(conversation)
            await until(lambda: str(path) in place.calls("fsync"), "the rollout is brought to the disk")


async def test_what_is_approved_is_on_the_disk_before_it_is_done(tmp_path: Path) -> None:
    """The command itself looks at what was brought to the disk by then: the rollout, and beside it the call."""
    async with place_in(tmp_path, policy="untrusted") as place:
        place.watch()
        async with place.server() as server:
            server.client.decide("execCommandApproval", "approved")
            conversation = await place.open(server.client)
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
            conversation = await place.open(server.client)
            await server.client.turn(conversation, questions[0])
            (path,) = place.rollouts()
            before = path.read_bytes()
            # A file that may not grow refuses like a disk that is full, and lets in a part of a write first.
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
    """What the user has said, as the model hears it in the next server."""
    async with place.server() as server:
        resumed = await place.resume(server.client, path=str(path))
        place.model.replies[:] = [reply(says("the last"))]
        await server.client.turn(resumed["conversationId"], "the last question")
    return place.model.requests[-1].texts()[:-1]


async def test_a_home_that_cannot_store_conversations_causes_a_warning(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        (place.home / "sessions").write_text("in the way")
        async with place.server() as server:
            place.model.replies[:] = [reply(says("one")), reply(says("two"))]
            conversation = await place.open(server.client)
            for text in ("one", "two"):
                assert (await server.client.turn(conversation)).last_message == text
            assert len(stored_warnings(server.client)) == 1
        assert place.model.requests[1].texts("assistant") == ["one"]


async def test_a_message_history_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        (place.home / "history.jsonl").mkdir()
        async with place.server() as server:
            place.model.replies[:] = [reply(says("one"))]
            conversation = await place.open(server.client)
            await server.client.submit(conversation, {"type": "add_to_history", "text": "words"})
            told = (await server.client.expect("warning"))["params"]["msg"]["message"]
            assert "history" in told
            assert (await server.client.turn(conversation)).last_message == "one"


async def test_a_conversation_that_ran_no_turn_survives_sigkill(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        async with place.server() as server:
            opened = await server.client.call("newConversation", {"cwd": str(place.workspace)})
            server.kill()
        assert await remembered(place, Path(opened["rolloutPath"])) == []


async def test_one_conversation_has_one_writer_until_it_is_gone(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place, place.server() as second:
        async with place.server() as first:
            place.model.replies[:] = [reply(says("one"))]
            conversation = await place.open(first.client)
            await first.client.turn(conversation, "first")
            with pytest.raises(Refused, match="active writer"):
                await place.resume(second.client, conversationId=conversation)
            first.kill()
        await place.resume(second.client, conversationId=conversation)
        place.model.replies[:] = [reply(says("two"))]
        await second.client.turn(conversation, "second")
        assert place.model.requests[-1].texts() == ["first", "second"]
