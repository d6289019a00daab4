"""Turns through the client library: run, stream, steer, interrupt; questions, input and output."""

import os
import threading
from pathlib import Path
from typing import Literal

import anyio
import pytest
from pydantic import BaseModel

from app_server.client import (
    ApprovalReply,
    ApprovalRequest,
    AppServerError,
    ClientToolRequest,
    CommandApprovalRequest,
    HandlerFailed,
    InvalidArgument,
    OutputInvalid,
    PatchApprovalRequest,
    RequestRefused,
    ThreadHandle,
    TurnFailed,
    image,
)
from app_server.client.turn_handle import strict
from app_server_protocol.v2.item_parts import ImageUserInput, LocalImageUserInput
from app_server_protocol.v2.items import (
    AgentMessageDeltaNotification,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
)
from app_server_protocol.v2.thread_open import FunctionDynamicToolSpec
from app_server_protocol.v2.turn import TurnCompletedNotification, TurnStartedNotification, TurnStatus
from tests.support.library import MakeLibraryWorld
from tests.support.pictures import PNG
from tests.support.scripted_model import Hold, begins_to_say, calls, failure, patches, reply, runs, says, word

pytestmark = pytest.mark.scenario


async def test_a_run_gives_the_final_message_the_items_and_the_usage_of_its_turn(
    library: MakeLibraryWorld,
) -> None:
    replies = (
        reply(runs("echo", "hi"), input=100, output=7),
        reply(says("It says hi."), input=200, output=9),
        reply(says("Bye."), input=20),
    )
    async with library(*replies) as w:
        thread = await w.server.start_thread(cwd=w.workspace)
        result = await thread.run("Run echo.")
        assert result.completed
        assert result.final_message == "It says hi."
        [command] = [item for item in result.items if isinstance(item, CommandExecutionThreadItem)]
        assert (command.exit_code, command.aggregated_output) == (0, "hi\n")
        assert [item.type for item in result.items] == ["userMessage", "commandExecution", "agentMessage"]
        assert result.usage is not None
        assert (result.usage.input_tokens, result.usage.output_tokens) == (300, 16)
        second = await thread.run("Bye.")
        assert second.usage is not None
        assert second.usage.input_tokens == 20


async def test_a_failed_turn_is_a_result_and_a_refused_request_an_error(library: MakeLibraryWorld) -> None:
    async with library(failure(400, {"error": {"message": "no such parameter"}})) as w:
        result = await (await w.server.start_thread()).run("hi")
        assert result.status is TurnStatus.FAILED
        assert result.error is not None
        assert "no such parameter" in result.error.message
        assert result.final_message is None
        with pytest.raises(RequestRefused, match="Method not found") as refused:
            await w.server.request_raw("no/such/method")
        assert refused.value.code == -32600
        assert isinstance(refused.value, AppServerError)


async def test_a_turn_ends_by_an_interrupt_by_cancelling_and_by_leaving_its_block(
    library: MakeLibraryWorld,
) -> None:
    hold = Hold()
    endless = reply(begins_to_say(), word("a"), Hold())
    async with library(endless, reply(begins_to_say(), hold), endless, reply(says("next"))) as w:
        thread = await w.server.start_thread()
        async with thread.events() as events:
            async for event in thread.stream("Until an interrupt."):
                if isinstance(event, AgentMessageDeltaNotification):
                    await thread.interrupt()
            await thread.interrupt()  # no turn runs
            async with anyio.create_task_group() as group:
                group.start_soon(thread.run, "Until its caller is cancelled.")
                await hold.reached.wait()
                group.cancel_scope.cancel()
            async with thread.stream("Until its block is left.") as stream:
                async for event in stream:
                    if isinstance(event, AgentMessageDeltaNotification):
                        break
            assert (await stream.result()).status is TurnStatus.INTERRUPTED
        ends = [event async for event in events if isinstance(event, TurnCompletedNotification)]
        assert [end.turn.status for end in ends] == [TurnStatus.INTERRUPTED] * 3
        assert (await thread.run("And now?")).final_message == "next"


async def test_a_stream_yields_the_turn_from_its_start_to_its_end(library: MakeLibraryWorld) -> None:
    async with library(reply(begins_to_say(), word("Hel"), word("lo"), says("Hello"))) as w:
        thread = await w.server.start_thread()
        stream = thread.stream("hi")
        events = [event async for event in stream]
        assert isinstance(events[0], TurnStartedNotification)
        assert isinstance(events[-1], TurnCompletedNotification)
        text = "".join(event.delta for event in events if isinstance(event, AgentMessageDeltaNotification))
        assert text == "Hello"
        assert (await stream.result()).final_message == "Hello"


async def test_two_threads_run_at_the_same_time_with_their_own_events(library: MakeLibraryWorld) -> None:
    async with library(*(reply(says("done")) for _ in range(6))) as w:
        results: list[tuple[str, str | None]] = []

        async def work(thread: ThreadHandle) -> None:
            async for event in thread.stream(thread.id):
                if isinstance(event, TurnStartedNotification | TurnCompletedNotification):
                    assert event.thread_id == thread.id
            results.append((thread.id, (await thread.run("again")).final_message))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(work, await w.server.start_thread())
        assert len(dict(results)) == 3
        assert {text for _, text in results} == {"done"}


async def test_a_turn_can_be_steered(library: MakeLibraryWorld) -> None:
    hold = Hold()
    async with library(reply(begins_to_say(), hold, says("ok")), reply(says("Blue it is."))) as w:
        thread = await w.server.start_thread()
        turn = await thread.start_turn("Paint it.")
        await hold.reached.wait()
        await turn.steer("Use blue.")
        hold.release()
        assert (await turn.result()).final_message == "Blue it is."
        assert "Use blue." in str(w.model.requests[-1].body)
        with pytest.raises(RequestRefused):
            await turn.steer("Too late.")


ASKS = {"approval_policy": "untrusted"}
TOOL = FunctionDynamicToolSpec(
    name="lookup", description="Looks a ticket up.", input_schema={"type": "object"}
)
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


async def test_without_a_handler_commands_and_tools_are_declined(library: MakeLibraryWorld) -> None:
    replies = (
        reply(runs("touch", "made")),
        reply(calls("lookup", {"id": "7"}, "c2")),
        reply(says("Never mind.")),
    )
    async with library(*replies, config=ASKS) as w:
        result = await (await w.server.start_thread(dynamic_tools=[TOOL])).run("go")
        [command] = [item for item in result.items if isinstance(item, CommandExecutionThreadItem)]
        assert command.status == "declined"
        assert not (w.workspace / "made").exists()
        assert "does not run the tool lookup" in str(w.model.requests[-1].body)


async def test_a_handler_sees_what_is_asked_and_its_answers_hold(library: MakeLibraryWorld) -> None:
    asked: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> ApprovalReply | bool:
        await anyio.lowlevel.checkpoint()
        asked.append(request)
        match request:
            case CommandApprovalRequest():
                return request.accept_for_thread()
            case ClientToolRequest():
                return request.succeed("Ticket 7 is open.")
            case _:
                return False

    replies = (
        reply(runs("touch", "made")),
        reply(runs("touch", "made", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(calls("lookup", {"id": "7"}, "c4")),
        reply(says("ok")),
    )
    async with library(*replies, config=ASKS, on_approval=decide) as w:
        thread = await w.server.start_thread(dynamic_tools=[TOOL])
        result = await thread.run("go")
        command, patch, tool = asked
        assert isinstance(command, CommandApprovalRequest)
        assert (command.thread_id, command.command) == (thread.id, "touch made")
        assert command.cwd == str(w.workspace)
        assert (w.workspace / "made").exists()
        assert isinstance(patch, PatchApprovalRequest)
        shown = [(change.path, change.diff) for change in patch.changes]
        assert shown == [(str(w.workspace / "new.txt"), "hello\n")]
        assert [item.status for item in result.items if isinstance(item, FileChangeThreadItem)] == [
            "declined"
        ]
        assert isinstance(tool, ClientToolRequest)
        assert tool.arguments == {"id": "7"}
        assert "Ticket 7 is open." in str(w.model.requests[-1].body)


async def test_a_plain_handler_may_wait_because_it_has_a_thread_of_its_own(library: MakeLibraryWorld) -> None:
    other_thread_is_done = threading.Event()

    def decide(_: ApprovalRequest) -> bool:
        return other_thread_is_done.wait(30)

    replies = reply(runs("touch", "made")), reply(says("other")), reply(says("ok"))
    async with library(*replies, config=ASKS) as w:
        asking = await w.server.start_thread(on_approval=decide)
        other = await w.server.start_thread()
        turn = await asking.start_turn("go")
        async with asking.events() as events:
            async for event in events:
                if getattr(getattr(event, "item", None), "type", "") == "commandExecution":
                    break
        assert (await other.run("hi")).final_message == "other"
        other_thread_is_done.set()
        assert (await turn.result()).final_message == "ok"
        assert (w.workspace / "made").exists()


async def test_a_failing_handler_declines_and_its_error_reaches_the_caller(library: MakeLibraryWorld) -> None:
    async def decide(_: ApprovalRequest) -> bool:
        raise ZeroDivisionError("a bug")

    replies = reply(runs("touch", "made")), reply(says("ok")), reply(says("later"))
    async with library(*replies, config=ASKS) as w:
        thread = await w.server.start_thread(on_approval=decide)
        with pytest.raises(HandlerFailed, match="a bug") as failed:
            await thread.run("go")
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        assert not (w.workspace / "made").exists()


class Part(BaseModel):
    name: str
    weight: float | None = None


class Machine(BaseModel):
    kind: Literal["pump", "fan"]
    parts: list[Part] = []


async def test_a_model_goes_in_and_an_instance_comes_out(library: MakeLibraryWorld) -> None:
    answer = '{"kind": "fan", "parts": [{"name": "blade", "weight": 1.5}]}'
    async with library(reply(says(answer)), reply(says("Of course."))) as w:
        thread = await w.server.start_thread()
        result = await thread.run("What is it?", output=Machine)
        assert result.output == Machine(kind="fan", parts=[Part(name="blade", weight=1.5)])
        sent = w.model.requests[0].body["text"]["format"]
        assert (sent["type"], sent["strict"]) == ("json_schema", True)
        assert sent["schema"]["required"] == ["kind", "parts"]
        assert sent["schema"]["$defs"]["Part"]["additionalProperties"] is False
        await thread.run("And without?")
        assert "format" not in w.model.requests[1].body.get("text", {})


async def test_without_an_answer_that_fits_there_is_no_output(library: MakeLibraryWorld) -> None:
    wrong = ["It is a fan.", '{"kind": "boat", "parts": []}', "{}"]
    replies = [*(reply(says(text)) for text in wrong), failure(400, {"error": {"message": "no such thing"}})]
    async with library(*replies) as w:
        thread = await w.server.start_thread()
        for _ in wrong:
            result = await thread.run("What is it?", output=Machine)
            assert result.completed
            with pytest.raises(OutputInvalid):
                _ = result.output
        failed = await thread.run("What is it?", output=Machine)
        with pytest.raises(TurnFailed, match="no such thing"):
            _ = failed.output


async def test_a_json_schema_gives_plain_json(library: MakeLibraryWorld) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with library(*(reply(says(text)) for text in ('{"n": null}', "null", "none", "text"))) as w:
        thread = await w.server.start_thread()
        assert (await thread.run("n?", output=schema)).output == {"n": None}
        assert w.model.requests[0].body["text"]["format"]["schema"] == schema
        assert (await thread.run("n?", output=schema)).output is None
        for result in (await thread.run("n?", output=schema), await thread.run("n?")):
            with pytest.raises(OutputInvalid):
                _ = result.output


def test_a_strict_schema_requires_everything_and_allows_nothing_else() -> None:
    made = strict(Machine.model_json_schema())
    assert made["properties"]["parts"] == {
        "items": {"$ref": "#/$defs/Part"},
        "title": "Parts",
        "type": "array",
    }
    assert made["$defs"]["Part"]["required"] == ["name", "weight"]
    named_default = {"type": "object", "properties": {"default": {"type": "string", "default": "x"}}}
    assert strict(named_default)["properties"] == {"default": {"type": "string"}}
    assert strict({"enum": [{"default": 1}]}) == {"enum": [{"default": 1}]}


async def test_images_reach_the_model_as_bytes_and_from_a_path(library: MakeLibraryWorld) -> None:
    async with library(reply(says("Two pictures."))) as w:
        (w.workspace / "shot.png").write_bytes(PNG)
        thread = await w.server.start_thread()
        await thread.run(["What is this?", image(PNG), image(w.workspace / "shot.png")])
        sent = str(w.model.requests[0].input)
        assert sent.count("data:image/png;base64,iVBORw0KGgo") == 2


@pytest.mark.parametrize(
    ("data", "mime"),
    [(PNG, "png"), (b"\xff\xd8\xff\xe0", "jpeg"), (b"GIF89a", "gif"), (b"RIFF0000WEBP", "webp")],
)
def test_the_kind_of_an_image_is_read_from_its_bytes(data: bytes, mime: str) -> None:
    made = image(data)
    assert isinstance(made, ImageUserInput)
    assert made.url.startswith(f"data:image/{mime};base64,")


def test_bytes_that_are_no_image_are_refused() -> None:
    for data in (b"", b"%PDF", b"RIFF0000WAVE"):
        with pytest.raises(ValueError, match="expected the bytes of"):
            image(data)


def test_a_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shot.png").write_bytes(PNG)
    assert image("shot.png") == LocalImageUserInput(path=str(tmp_path / "shot.png"))


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file"), (b"text", "is not a PNG"), (b"", "is not a PNG")]
)
def test_a_path_without_a_picture_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "shot.png").write_bytes(content)
    with pytest.raises(InvalidArgument, match=problem):
        image(tmp_path / "shot.png")


def test_a_pipe_in_the_place_of_a_picture_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shot.png")
    with pytest.raises(InvalidArgument, match="is not a PNG"):
        image(tmp_path / "shot.png")
