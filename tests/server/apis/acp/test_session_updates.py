"""Updates that clients receive for a turn, for any events of the engine in any order."""

import json
import os.path
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app_server.server.apis.acp.acp_adapter import SessionAdapter
from app_server.server.apis.acp.acp_client import AcpClient
from app_server.server.conversations.adapter import Message
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.events import (
    CommandOutput,
    CommandRunning,
    EngineEvent,
    ItemCompleted,
    ItemStarted,
    SessionEvent,
    TurnEnded,
    TurnKind,
    TurnStarted,
    TurnStatus,
)
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    ExecOutputStream,
    FileChange,
    ReadCommand,
    UnknownCommand,
    UpdateFileChange,
)
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.questions import Question
from app_server_protocol.mcp import CallToolResult, McpInvocation, OkResult, OtherContent, TextContent
from tests.server.apis.v2.recorded import OTHER_TURN, TURN
from tests.server.apis.v2.test_thread_order import EVENTS
from tests.support.adapter_messages import lines_of
from tests.support.written_texts import WrittenTexts, grown

ORDER = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
FULL = AcpClient(terminal_output=True, notices=True, compaction=True)


class Recording:
    """Adapter with a clock that the test moves."""

    def __init__(self, client: AcpClient | None = None) -> None:
        self.now, self.live = 0.0, LiveTurn()
        self.adapter = SessionAdapter(
            "s",
            client or AcpClient(),
            observe=lambda event: (),
            flush_at=lambda due: None,
            clock=lambda: self.now,
        )
        self.updates: list[Json] = []

    # --- steps of a test
    def take(self, event: EngineEvent, turn: str | None = TURN) -> None:
        for each in self.live.take(SessionEvent("1", turn, event)):
            self.add(self.adapter.messages(each, self.live, raw=False))

    def add(self, messages: Sequence[Message]) -> None:
        self.updates += [json.loads(line)["params"]["update"] for line in lines_of(messages)]

    def turn(self, *events: EngineEvent) -> None:
        for event in (started(), *events, ended()):
            self.take(event)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.add(self.adapter.flush())

    def of(self, kind: str) -> list[Json]:
        return [each for each in self.updates if each["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each["content"]["text"] for each in self.of(kind))


def started() -> TurnStarted:
    return TurnStarted(TurnKind.REGULAR, 1000, 1.0)


def ended(status: TurnStatus = TurnStatus.COMPLETED) -> TurnEnded:
    return TurnEnded(status=status, started_at=1.0, ended_at=2.0, seconds=1.0)


def done(item: items.Item, *, cut: bool = False) -> ItemCompleted:
    return ItemCompleted(item, 0, 0, cut=cut)


def command(**over: Json) -> items.CommandExecution:
    fields: Json = {
        "id": "c1",
        "command": ("bash", "-lc", "echo hi"),
        "cwd": "/work",
        "parsed": (UnknownCommand(cmd="echo hi"),),
    }
    return items.CommandExecution(**{**fields, **over})


@given(
    st.lists(st.tuples(st.sampled_from([None, TURN, OTHER_TURN]), st.sampled_from(EVENTS)), max_size=40),
    st.booleans(),
)
def test_calls_begin_once_never_go_back_and_are_over_with_their_turn(
    events: list[tuple[str | None, EngineEvent]], full: bool
) -> None:
    seen = Recording(FULL if full else None)
    statuses: dict[str, str] = {}
    for turn, event in events:
        before = len(seen.updates)
        seen.take(event, turn)
        if isinstance(event, Question):
            seen.adapter.question(event, turn, seen.live)
        for update in seen.updates[before:]:
            if update["sessionUpdate"] not in ("tool_call", "tool_call_update"):
                continue
            id, status = update["toolCallId"], update.get("status")
            assert (id in statuses) is (update["sessionUpdate"] == "tool_call_update")
            if id in statuses and status is not None:
                assert ORDER[status] >= ORDER[statuses[id]]
                assert statuses[id] not in ("completed", "failed") or status == statuses[id]
            statuses[id] = status or statuses[id]
            places = [*(update.get("locations") or []), *(update.get("content") or [])]
            assert all(os.path.isabs(each["path"]) for each in places if "path" in each)
        if isinstance(event, TurnEnded) and turn is not None:
            assert all(ORDER[status] == 2 for status in statuses.values())
    if not full:
        assert not seen.of("notice")
        assert not seen.of("compaction_update")


def test_deltas_that_come_close_together_are_joined_and_none_is_lost() -> None:
    seen, texts = Recording(), WrittenTexts()
    seen.take(started())
    seen.take(ItemStarted(items.AgentMessage("m", ()), 0))
    for n in range(100):
        seen.take(texts.grow("m", f"{n} "))
    assert seen.text() == "0 "
    seen.pass_time(0.02)
    assert len(seen.of("agent_message_chunk")) == 2
    seen.take(texts.grow("m", "end"))
    seen.take(done(items.AgentMessage("m", ("".join(f"{n} " for n in range(100)) + "end and more",))))
    seen.take(ended())
    assert seen.text() == "".join(f"{n} " for n in range(100)) + "end and more"
    assert {each["messageId"] for each in seen.of("agent_message_chunk")} == {"m"}


def test_parts_of_a_thought_are_set_apart() -> None:
    seen = Recording()
    parts = (grown("r", "one", (True, 0)), grown("r", "two", (True, 1)))
    seen.turn(ItemStarted(items.Reasoning("r", ()), 0), *parts, done(items.Reasoning("r", ("one", "two"))))
    assert seen.text("agent_thought_chunk") == "one\n\ntwo"


def test_output_is_told_a_few_times_a_second_and_whole_at_the_end() -> None:
    seen = Recording()
    for event in (started(), ItemStarted(command(), 0), CommandRunning("c1")):
        seen.take(event)
    for _ in range(50):
        seen.take(CommandOutput("c1", ExecOutputStream.STDOUT, b"\x1b[31mred\x1b[0m\r\n"))
    assert len([each for each in seen.updates if "content" in each]) == 1
    seen.pass_time(0.3)
    assert len([each for each in seen.updates if "content" in each]) == 2
    seen.take(done(command(status=items.ItemStatus.COMPLETED, exit_code=0, output="`````\nred")))
    (last,) = seen.updates[-1]["content"]
    assert last["content"]["text"] == "``````console\n`````\nred\n``````"


def test_warnings_wait_for_a_turn_and_are_no_part_of_the_answer() -> None:
    seen = Recording()
    seen.take(WarningNotice(message="careful"), None)
    assert seen.updates == []
    seen.turn()
    assert (seen.text(), seen.text("agent_thought_chunk")) == ("", "Warning: careful\n")
    full = Recording(FULL)
    full.turn(WarningNotice(message="careful"))
    assert full.of("notice") == [{"sessionUpdate": "notice", "severity": "warning", "title": "careful"}]


def test_reading_is_told_from_running() -> None:
    seen = Recording()
    read = ReadCommand(cmd="cat a b", name="a b", path="sub/a b")
    seen.turn(ItemStarted(command(parsed=(read,), command=("cat", "sub/a b")), 0))
    (call,) = seen.of("tool_call")
    assert (call["kind"], call["locations"]) == ("read", [{"path": "/work/sub/a b"}])
    other = Recording()
    other.turn(ItemStarted(command(parsed=(read, UnknownCommand(cmd="x"))), 0))
    assert other.of("tool_call")[0]["kind"] == "execute"


def test_patches_have_kinds_and_diffs() -> None:
    changes: dict[str, FileChange] = {
        "/w/a": AddFileChange(content="new\n"),
        "/w/d": DeleteFileChange(content="old\n"),
        "/w/m": UpdateFileChange(unified_diff="", move_path="/w/n"),
    }
    seen = Recording()
    for n, (path, change) in enumerate(changes.items()):
        texts = {"/w/m": items.FileTexts(old="same\n", new="same\n")} if path == "/w/m" else {}
        patch = items.FileChange(id=f"p{n}", changes={path: change}, texts=texts)
        seen.turn(ItemStarted(patch, 0), done(patch))
    calls = seen.of("tool_call")
    assert [(each["kind"], each["title"]) for each in calls] == [
        ("edit", "Edit a"),
        ("delete", "Delete d"),
        ("move", "Move m to n"),
    ]
    assert [each["content"] for each in calls] == [
        [{"type": "diff", "path": "/w/a", "oldText": None, "newText": "new\n"}],
        [{"type": "diff", "path": "/w/d", "oldText": "old\n", "newText": ""}],
        [
            {"type": "diff", "path": "/w/n", "oldText": "same\n", "newText": "same\n"},
            {"type": "diff", "path": "/w/m", "oldText": "same\n", "newText": ""},
        ],
    ]


def test_a_long_file_is_shown_by_its_hunks() -> None:
    old = "".join(f"line {n}\n" for n in range(20_000))
    new = old.replace("line 100\n", "changed\n").replace("line 9000\n", "too\n")
    update = UpdateFileChange(unified_diff="@@ -100,3 +100,3 @@\n line 99\n-line 100\n+changed\n line 101\n")
    patch = items.FileChange(
        id="p", changes={"/w/a": update}, texts={"/w/a": items.FileTexts(old=old, new=new)}
    )
    seen = Recording()
    seen.turn(ItemStarted(patch, 0), done(patch))
    first, second = seen.of("tool_call")[0]["content"]
    assert first["newText"] == "line 97\nline 98\nline 99\nchanged\nline 101\nline 102\nline 103\n"
    assert second["oldText"].count("\n") == 7
    assert seen.of("tool_call")[0]["locations"] == [{"path": "/w/a", "line": 101}]


def test_content_of_mcp_servers_is_handed_on_as_far_as_clients_have_to_know_it() -> None:
    content = (TextContent(text="hi"), OtherContent(type="strange"))
    call = items.McpToolCall(
        id="c",
        invocation=McpInvocation(server="kit", tool="echo", arguments={"a": 1}),
        status=items.ItemStatus.COMPLETED,
        result=OkResult(ok=CallToolResult(content=content)),
    )
    seen = Recording()
    seen.turn(ItemStarted(call, 0), done(call))
    assert seen.of("tool_call")[0]["title"] == "kit: echo"
    last = seen.updates[-1]
    assert [each["content"] for each in last["content"]] == [{"type": "text", "text": "hi"}]
    assert last["rawOutput"]["content"][1] == {"type": "strange"}
