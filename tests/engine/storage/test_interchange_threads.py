"""Threads go from this server to codex of several versions and back, each time with commands, patches, a compaction, an
interrupted turn, a revert and a fork. Every turn is shown on each side, and the model is sent the complete history.

`tests.support.codex_peers` explains how the programs are named.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Client
from tests.support.codex_peers import peer
from tests.support.places import OURS, Place, Served, place_in
from tests.support.scripted_model import Hold, begins_to_say, calls, reply, says, script, word

pytestmark = pytest.mark.process

CREATED_FILE = "*** Begin Patch\n*** Add File: {}\n+hello\n*** End Patch\n"
INJECTED = ("<", "# ", "You are ", "Another language model")


newer = pytest.mark.parametrize("version", ["0.169", "0.171"])


@dataclass(slots=True)
class Teller:
    """Client that begins and continues a thread over the thread API, and records what each turn has to show."""

    place: Place
    command: Sequence[str]
    client: Client
    thread: str = ""
    said: list[list[str]] = field(default_factory=list)
    """Texts of each turn so far."""

    def runs(self, line: str, call_id: str) -> Json:
        """Return a command call of the tool that the program offers."""
        if self.command is OURS:
            return script(line, call_id)
        return calls("exec_command", {"cmd": line, "yield_time_ms": 20_000}, call_id)

    async def begin(self, **params: Json) -> None:
        asked = {"cwd": str(self.place.workspace), **params}
        started = await self.client.call("thread/start", asked)
        self.thread = started["thread"]["id"]

    async def resume(self) -> None:
        await self.client.call("thread/resume", {"threadId": self.thread})

    async def turn(self, words: str, *replies: Json) -> str:
        self.place.model.replies[:] = replies
        asked = {"threadId": self.thread, "input": [{"type": "text", "text": words}]}
        turn = (await self.client.call("turn/start", asked))["turn"]["id"]
        ended = await self.client.expect("turn/completed")
        assert ended["params"]["turn"]["status"] == "completed", ended
        return str(turn)

    async def answered(self, words: str, answer: str) -> str:
        self.said.append([words, answer])
        return await self.turn(words, reply(says(answer, f"msg-{answer.replace(' ', '-')}")))

    async def work(self, name: str) -> None:
        """Run a turn with a command and a patch."""
        self.said.append([f"{name} words", f"{name} look", f"{name} answer"])
        patch = CREATED_FILE.format(f"{name}.txt")
        await self.turn(
            f"{name} words",
            reply(says(f"{name} look", f"msg-{name}-look"), self.runs(f"echo of {name}", f"call-{name}-1")),
            reply(self.runs(f"apply_patch <<'EOF'\n{patch}EOF\n", f"call-{name}-2")),
            reply(says(f"{name} answer", f"msg-{name}-answer")),
        )
        assert (self.place.workspace / f"{name}.txt").exists()

    async def interrupted(self, words: str) -> None:
        self.said.append([words])
        hold = Hold()
        self.place.model.replies[:] = [reply(begins_to_say(), word("half"), hold)]
        asked = {"threadId": self.thread, "input": [{"type": "text", "text": words}]}
        turn = (await self.client.call("turn/start", asked))["turn"]["id"]
        await self.client.expect("item/agentMessage/delta")
        await self.client.call("turn/interrupt", {"threadId": self.thread, "turnId": turn})
        ended = await self.client.expect("turn/completed")
        hold.release()
        assert ended["params"]["turn"]["status"] == "interrupted"

    async def compact(self) -> None:
        self.said.append([])
        self.place.model.replies[:] = [reply(says("a summary of it", "msg-summary"))]
        await self.client.call("thread/compact/start", {"threadId": self.thread})
        await self.client.expect("turn/completed")

    async def revert(self, words: str) -> None:
        """Run a turn and revert it."""
        turn = await self.answered(words, f"{words}, answered")
        await self.client.call("thread/revert", {"threadId": self.thread, "beforeTurnId": turn})
        self.said.pop()
        await self.resume()

    async def fork(self) -> None:
        forked = await self.client.call("thread/fork", {"threadId": self.thread})
        self.thread = forked["thread"]["id"]

    async def everything(self, number: int) -> None:
        """Run turns of every kind, a revert, a fork that goes on, and a question. The model is sent the complete
        history; where a summary replaces it, the messages of the user.
        """
        await self.work(f"work{number}")
        await self.interrupted(f"interrupted {number}")
        await self.answered(f"question {number}", f"answer {number}")
        self.tells_all_since(0 if number == 0 else None)
        await self.compact()
        await self.answered(f"second {number}", f"second answer {number}")
        await self.revert(f"gone {number}")
        assert await self.shown() == self.said, f"what counts is shown behind a revert, at {number}"
        await self.fork()
        await self.answered(f"third {number}", f"third answer {number}")
        self.tells_users_words(f"second answer {number}")

    def tells_all_since(self, first: int | None) -> None:
        """Check that the model was sent all texts of the turns from this one on, or after the last compaction if
        `first` is None.
        """
        begin = first if first is not None else len(self.said) - self.said[::-1].index([])
        words = {text for turn in self.said[begin:] for text in turn} - {self.said[-1][-1]}
        assert words <= {*self.told()}

    def tells_users_words(self, *more: str) -> None:
        told = self.told()
        assert {turn[0] for turn in self.said if turn} | {*more} <= {*told}
        assert not [text for text in told if text.startswith("gone")]

    async def shown(self) -> list[list[str]]:
        params = {"threadId": self.thread, "includeTurns": True}
        turns = (await self.client.call("thread/read", params))["thread"]["turns"]
        return [[text for item in turn["items"] if (text := words_of(item))] for turn in turns]

    def told(self) -> list[str]:
        """Return the texts of the conversation that the last request to the model contained."""
        request = self.place.model.requests[-1]
        texts = [*request.texts(), *request.texts("assistant")]
        return [text for text in texts if not text.startswith(INJECTED)]

    @property
    def words(self) -> set[str]:
        return {text for turn in self.said for text in turn}


def words_of(item: Json) -> str:
    if item["type"] == "userMessage":
        return "".join(part.get("text", "") for part in item["content"])
    return str(item.get("text", "")) if item["type"] == "agentMessage" and item.get("text") != "half" else ""


def teller(place: Place, server: Served, command: Sequence[str], before: Teller | None = None) -> Teller:
    made = Teller(place, command, server.client)
    if before is not None:
        made.thread, made.said = before.thread, before.said
    return made


def server_of(place: Place, command: Sequence[str]) -> AbstractAsyncContextManager[Served]:
    return place.server(command=command, initialize=False)


async def entered(server: Served) -> None:
    await server.client.initialize(capabilities={"experimentalApi": True})
    await server.client.tell("initialized")


@newer
@pytest.mark.parametrize("begins_here", [True, False], ids=["begun here", "begun there"])
async def test_interchange_of_a_thread(tmp_path: Path, version: str, begins_here: bool) -> None:
    order = [OURS, peer(version), OURS, peer(version), OURS]
    before: Teller | None = None
    async with place_in(tmp_path) as place:
        for number, command in enumerate(order if begins_here else order[1:]):
            async with server_of(place, command) as server:
                await entered(server)
                now = teller(place, server, command, before)
                await (now.begin() if before is None else now.resume())
                if before is not None:
                    assert await now.shown() == now.said, f"all turns are there, at {number}"
                await now.everything(number)
                before = now


@newer
async def test_interchange_of_a_thread_whose_last_turn_was_taken_back(tmp_path: Path, version: str) -> None:
    """Codex shows turns that were reverted here (ADR 106). Turns that codex reverted itself are shown nowhere."""
    codex = peer(version)
    async with place_in(tmp_path) as place:
        async with server_of(place, OURS) as server:
            await entered(server)
            here = teller(place, server, OURS)
            await here.begin()
            await here.answered("first", "first answer")
            await here.revert("gone here")
        async with server_of(place, codex) as server:
            await entered(server)
            there = teller(place, server, codex, here)
            await there.resume()
            assert [turn for turn in await there.shown() if not turn[0].startswith("gone")] == there.said
            await there.answered("second", "second answer")
            there.tells_users_words("first answer")
            await there.revert("gone there")
        async with server_of(place, OURS) as server:
            await entered(server)
            back = teller(place, server, OURS, there)
            await back.resume()
            assert await back.shown() == back.said
            await back.answered("third", "third answer")
            back.tells_users_words("first answer", "second answer")


@newer
async def test_interchange_of_a_thread_in_the_older_form_that_was_reverted(
    tmp_path: Path, version: str
) -> None:
    """In this form codex shows the remaining turns, and none that were reverted here."""
    codex = peer(version)
    async with place_in(tmp_path) as place:
        async with server_of(place, OURS) as server:
            await entered(server)
            here = teller(place, server, OURS)
            await here.begin(historyMode="legacy")
            await here.answered("first", "first answer")
            await here.revert("gone")
            await here.work("work")
            await here.revert("gone at the end")
        async with server_of(place, codex) as server:
            await entered(server)
            there = teller(place, server, codex, here)
            await there.resume()
            assert await there.shown() == there.said
            await there.answered("second", "second answer")
            there.tells_users_words("first answer", "work answer")
        async with server_of(place, OURS) as server:
            await entered(server)
            back = teller(place, server, OURS, there)
            await back.resume()
            assert await back.shown() == back.said
            await back.revert("gone again")
            await back.answered("third", "third answer")
            back.tells_users_words("first answer", "second answer")


async def test_interchange_of_a_thread_with_codex_058(tmp_path: Path) -> None:
    codex = peer("0.58")
    async with place_in(tmp_path) as place:
        async with server_of(place, OURS) as server:
            await entered(server)
            here = teller(place, server, OURS)
            await here.begin()
            await here.work("work")
            await here.interrupted("interrupted")
            await here.compact()
            await here.answered("question", "answer")
        async with place.server(command=codex) as server:
            listed = (await server.client.call("listConversations", {}))["items"]
            assert [each["preview"] for each in listed] == ["work words"]
            (path,) = place.rollouts()
            resumed = await server.client.resume(path=str(path))
            said = [each["message"] for each in resumed["initialMessages"] if "message" in each]
            assert [text for text in said if text in here.words] == [
                *("work words", "work look", "work answer", "interrupted", "question", "answer")
            ]
            place.model.replies[:] = [reply(says("of 58"))]
            await server.client.turn(resumed["conversationId"], "to 58")
            told = place.model.requests[-1].texts()
            assert {"work words", "interrupted", "question", "to 58"} <= set(told)
        async with server_of(place, OURS) as server:
            await entered(server)
            back = teller(place, server, OURS, here)
            await back.resume()
            back.said.append(["to 58", "of 58"])
            assert await back.shown() == back.said
            await back.revert("gone")
            await back.answered("last", "last answer")
            assert {"question", "answer", "to 58", "of 58"} <= set(back.told())
            assert "gone" not in back.told()


async def test_interchange_of_a_conversation_that_codex_058_began(tmp_path: Path) -> None:
    codex = peer("0.58")
    async with place_in(tmp_path) as place:
        async with place.server(command=codex) as server:
            conversation = await server.open()
            patch = CREATED_FILE.format("there.txt")
            place.model.replies[:] = [
                reply(says("look"), script("echo there", "call-1")),
                reply(script(f"apply_patch <<'EOF'\n{patch}EOF\n", "call-2")),
                reply(says("answer of 58")),
            ]
            await server.client.turn(conversation, "words to 58")
            hold = Hold()
            place.model.replies[:] = [reply(begins_to_say(), word("half"), hold)]
            await server.client.say(conversation, "interrupted in 58")
            await server.client.expect("agent_message_delta")
            await server.client.call("interruptConversation", {"conversationId": conversation})
            await server.client.expect("turn_aborted")
            hold.release()
        said = [["words to 58", "look", "answer of 58"], ["interrupted in 58"]]
        (path,) = place.rollouts()
        async with server_of(place, OURS) as server:
            await entered(server)
            here = teller(place, server, OURS)
            here.thread, here.said = conversation, said
            await here.resume()
            assert await here.shown() == here.said
            await here.work("work")
            assert {"words to 58", "look", "interrupted in 58"} <= {*here.told()}
            await here.compact()
            await here.interrupted("interrupted here")
            await here.revert("gone")
            await here.answered("question", "answer")
            here.tells_users_words()
        async with place.server(command=codex) as server:
            resumed = await server.client.resume(path=str(path))
            shown = [each["message"] for each in resumed["initialMessages"] if "message" in each]
            assert [text for text in shown if text in here.words] == [text for turn in said for text in turn]
            place.model.replies[:] = [reply(says("last of 58"))]
            await server.client.turn(resumed["conversationId"], "last to 58")
            assert {"words to 58", "interrupted here", "question"} <= {*place.model.requests[-1].texts()}
            here.said.append(["last to 58", "last of 58"])
        async with server_of(place, OURS) as server:
            await entered(server)
            back = teller(place, server, OURS, here)
            await back.resume()
            assert await back.shown() == back.said
            await back.fork()
            assert await back.shown() == back.said
            await back.answered("in the fork", "answer of the fork")
            back.tells_users_words("last of 58")
