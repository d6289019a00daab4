"""Text of running items: in pieces in the journal, and at the end of the rollout after a crash."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.storage.disk import REAL_DISK, DiskCalls
from app_server.engine.storage.encode import MOST_UNKEPT, StreamJournal, stored_events
from app_server.engine.storage.journal_file import MAX_PIECES_BYTES
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.rollout_names import journal_path, new_rollout_path
from app_server.engine.storage.rollout_reader import (
    copy_lines,
    read_rollout,
    rebuild_history,
    recovered_items,
    reopen,
)
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import TurnHistory, open_history
from app_server.engine.storage.writer import RolloutWriter
from app_server_protocol.engine import events, items
from app_server_protocol.engine.events import EngineEvent, SessionEvent, TurnKind, TurnRecord, TurnStatus
from app_server_protocol.event_items import TextInput
from app_server_protocol.events.messages import AgentMessageEvent, AgentReasoningEvent
from app_server_protocol.events.turn_events import TurnAbortedEvent
from app_server_protocol.responses import FunctionCall
from app_server_protocol.values import replace
from tests.engine.storage.stored import (
    MOMENT,
    assistant,
    conversation_id,
    items_shown,
    meta,
    now,
    texts,
    user,
)
from tests.support.written_texts import WrittenTexts, grown

THREAD = conversation_id(1)


def event(inner: EngineEvent, turn: str = "turn") -> SessionEvent:
    return SessionEvent("1", turn, inner)


def begins(item: items.Item) -> events.ItemStarted:
    return events.ItemStarted(item, 1000)


def ends(item: items.Item) -> events.ItemCompleted:
    return events.ItemCompleted(item, 1000, 2000)


MESSAGE = items.AgentMessage("m", ())
THOUGHT = items.Reasoning("r", (), show_content=True)


class Server:
    """Conversation that is stored as an outbox stores it, and whose server dies."""

    def __init__(
        self, home: Path, *, identity: bool = True, paginated: bool = False, disk: DiskCalls = REAL_DISK
    ) -> None:
        self.path, self.identity = new_rollout_path(home, MOMENT, THREAD), identity
        self.paginated = str(THREAD) if paginated else None
        first = meta(history_mode="paginated") if paginated else meta()
        self.writer = RolloutWriter.create(self.path, now, [first], disk, paginated=self.paginated)
        self.text, self.written = StreamJournal(), WrittenTexts()
        words = items.UserMessage("u", (TextInput(text="question"),))
        self.writer.append([user("question")])
        self.emit(events.TurnStarted(TurnKind.REGULAR, None, 1.0))
        self.emit(ends(words))

    def emit(self, *inner: EngineEvent, keep: bool = True) -> None:
        for each in inner:
            self.text.take([event(each)], identity=self.identity)
            self.writer.append(stored_events(event(each), identity=self.identity, paginated=self.paginated))
        if keep:
            self.keep()

    def say(self, *deltas: str, keep: bool = True) -> None:
        for delta in deltas:
            self.emit(self.written.grow("m", delta), keep=keep)

    def keep(self, *ahead: object) -> None:
        self.writer.write_journal(ahead, self.text.pieces(), growing=self.text.is_kept)  # type: ignore[arg-type]

    def dies(self) -> Path:
        """Die: the files stay as they are, and the lock is released."""
        assert self.writer.problem is None
        left = journal_path(self.path).read_bytes() if journal_path(self.path).exists() else b""
        self.writer.close()
        if left:
            journal_path(self.path).write_bytes(left)
        return self.path


def history(path: Path) -> list[str]:
    """Return the texts that the model is sent when the conversation goes on."""
    reopened = reopen(path, now)
    assert reopened.writer.problem is None
    reopened.writer.close()
    assert not journal_path(path).exists()
    found = texts(read_rollout(path).items)
    assert found == texts(reopened.stored.items), "it is stored as it was taken over"
    return found


def last_turn(path: Path) -> TurnRecord:
    with open_history(path, THREAD, TurnIndexes()) as stored:
        *_, last = stored.all_turns()
        assert [last] == list(stored.turns(PageRequest(limit=1, newest_first=True)).rows), (
            "pages say the same"
        )
    return last


def shown(path: Path) -> list[items.Item]:
    """Return the items of the interrupted turn. They are equal before and after the thread is resumed."""
    before, all_items = last_turn(path), items_shown(path, THREAD)
    if before.items[1:]:
        assert before.state is TurnStatus.INTERRUPTED
    reopened = reopen(path, now, turns=True, messages=True)
    reopened.writer.close()
    assert reopened.stored.turns is not None
    assert reopened.stored.turns.turns[-1] == before == last_turn(path), (
        "resuming changes nothing that is shown"
    )
    assert items_shown(path, THREAD) == all_items
    stored = [ended.item for ended in all_items]
    assert stored == [ended.item for ended in before.items]
    return stored[1:]


def messages_of(path: Path) -> list[str]:
    """Return the messages of the agent that the conversation API shows."""
    found = read_rollout(path, messages=True).messages
    return [each.message for each in found if isinstance(each, AgentMessageEvent)]


@pytest.mark.parametrize(("identity", "paginated"), [(True, False), (False, False), (True, True)])
def test_a_message_that_was_streaming_is_shown_and_remembered(
    tmp_path: Path, identity: bool, paginated: bool
) -> None:
    server = Server(tmp_path, identity=identity, paginated=paginated)
    server.emit(begins(items.AgentMessage("first", ())), ends(items.AgentMessage("first", ("done",))))
    server.emit(begins(MESSAGE))
    server.say("Hel", "lo ", "wörld", "\ud800")
    path = server.dies()
    before = path.read_bytes(), journal_path(path).read_bytes()
    text = "Hello wörld\ud800"
    assert last_turn(path).items[-1].item == items.AgentMessage("m", (text,))
    assert messages_of(path) == ["done", text]
    assert (path.read_bytes(), journal_path(path).read_bytes()) == before, "reading changes no file"
    assert [each.text for each in shown(path) if isinstance(each, items.AgentMessage)] == ["done", text]
    assert history(path) == ["question", text], "what was done is recorded with its reply"
    assert messages_of(path) == ["done", text]
    assert isinstance(read_rollout(path, messages=True).messages[-1], TurnAbortedEvent)


@pytest.mark.parametrize("paginated", [False, True])
def test_the_conversation_api_shows_no_message_that_an_interrupt_cut(tmp_path: Path, paginated: bool) -> None:
    server = Server(tmp_path, paginated=paginated)
    server.emit(begins(MESSAGE), replace(ends(replace(MESSAGE, content=("half",))), cut=True))
    assert messages_of(server.dies()) == []


@pytest.mark.parametrize("paginated", [False, True])
def test_reasoning_is_shown_by_its_parts_and_the_model_is_not_sent_it(
    tmp_path: Path, paginated: bool
) -> None:
    server = Server(tmp_path, paginated=paginated)
    server.emit(begins(THOUGHT))
    grow = server.written.grow
    server.emit(grow("r", "one", (True, 0)), grow("r", "raw", (False, 0)))
    server.emit(grow("r", "two", (True, 1)), grow("r", "!", (True, 1)))
    path = server.dies()
    assert shown(path) == [replace(THOUGHT, summary=("one", "two!"), content=("raw",))]
    assert history(path) == ["question"]
    messages = read_rollout(path, messages=True).messages
    assert [each.text for each in messages if isinstance(each, AgentReasoningEvent)] == ["one", "two!"]


def test_a_plan_that_was_streaming_is_an_item_of_its_own(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE), grown("m", "Look:"))
    server.emit(begins(items.Plan("p", "")), grown("p", "1. think"))
    path = server.dies()
    assert shown(path) == [items.AgentMessage("m", ("Look:",)), items.Plan("p", "1. think")]
    assert history(path) == ["question", "Look:", "<proposed_plan>\n1. think"]


@pytest.mark.parametrize("identity", [True, False])
def test_the_record_of_an_item_supersedes_its_pieces(tmp_path: Path, identity: bool) -> None:
    """This holds also if the server dies between the two writes; the model is then sent what clients are shown."""
    server = Server(tmp_path, identity=identity)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    server.emit(ends(items.AgentMessage("m", ("Hello there",))), keep=False)
    path = server.dies()
    assert b"Hello" in journal_path(path).read_bytes()
    [message] = last_turn(path).items[1:]
    assert isinstance(message.item, items.AgentMessage)
    assert message.item.text == "Hello there"
    assert not message.cut
    assert history(path) == ["question", "Hello there"]


def test_pieces_of_an_item_that_ended_without_a_record_do_not_count(tmp_path: Path) -> None:
    """This happens if an attempt is repeated while the journal holds another item."""
    server = Server(tmp_path, identity=False)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    cut = replace(ends(MESSAGE), cut=True)
    server.emit(cut, keep=False)
    server.keep(assistant("held"))
    assert history(server.dies()) == ["question", "held"]


def test_an_interrupted_turn_leaves_nothing_to_recover(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    assert journal_path(server.path).stat().st_size > 0
    server.emit(replace(ends(MESSAGE), cut=True))
    assert journal_path(server.path).stat().st_size == 0
    server.writer.close()
    assert not journal_path(server.path).exists()


def test_text_of_a_turn_that_another_program_went_on_from_is_dropped(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    path = server.dies()
    with path.open("ab") as file:
        file.write(
            b'{"timestamp":"x","type":"event_msg","payload":{"type":"user_message","message":"more"}}\n'
        )
    assert history(path) == ["question"]


def test_calls_come_with_their_outputs_before_the_text_that_followed_them(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    server.say("And now", keep=False)
    server.keep(assistant("Before"))
    path = server.dies()
    reopened = reopen(path, now)
    reopened.writer.close()
    assert texts(reopened.stored.items) == ["question", "Before", "And now"]


def test_a_call_that_was_cut_is_among_all_items_before_the_thread_is_resumed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    arguments = json.dumps({"cmd": "ls"})
    server.keep(FunctionCall(name="exec_command", arguments=arguments, call_id="c1"))
    path = server.dies()
    before = items_shown(path, THREAD)
    assert [type(each.item) for each in before] == [items.UserMessage, items.CommandExecution]
    reopen(path, now).writer.close()
    assert items_shown(path, THREAD) == before


def test_a_fork_has_the_text_and_leaves_the_thread_as_it_is(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    path = server.dies()
    before = path.read_bytes(), journal_path(path).read_bytes()
    stored = read_rollout(path)
    assert texts(rebuild_history([*stored.items, *recovered_items(stored)], lambda *_: [])) == [
        "question",
        "Hello",
    ]
    copy = tmp_path / path.name
    writer = RolloutWriter.create(copy, now, [meta()])
    copy_lines(stored, writer)
    writer.close()
    assert shown(copy) == [items.AgentMessage("m", ("Hello",))]
    assert (path.read_bytes(), journal_path(path).read_bytes()) == before


def test_recovering_again_after_a_crash_in_the_middle_adds_nothing_twice(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    server.say("Hello")
    path = server.dies()
    journal, size = journal_path(path).read_bytes(), path.stat().st_size
    assert history(path) == ["question", "Hello"]
    whole = path.read_bytes()
    ends_of_lines = [n + 1 for n in range(size, len(whole)) if whole[n : n + 1] == b"\n"]
    assert len(ends_of_lines) == 4, "a message, an event, an item, the end of the turn"
    for end in ends_of_lines:
        path.write_bytes(whole[:end])
        journal_path(path).write_bytes(journal)
        assert history(path) == ["question", "Hello"], f"cut behind {whole[size:end]!r}"
        assert [each.text for each in shown(path) if isinstance(each, items.AgentMessage)] == ["Hello"]


# --- any cut
def payload_of(line: bytes) -> list[dict[str, str]]:
    try:
        return [json.loads(line)["payload"]]
    except ValueError:
        return []


PIECES = st.lists(st.text(max_size=30), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuts")


@settings(max_examples=50)
@given(PIECES, st.floats(0, 1), st.booleans())
def test_any_cut_of_the_journal_leaves_a_prefix(
    room: Path, pieces: list[str], cut: float, identity: bool
) -> None:
    shutil.rmtree(room)
    server = Server(room, identity=identity)
    server.emit(begins(MESSAGE))
    server.say(*pieces)
    path = server.dies()
    journal = journal_path(path)
    whole = journal.read_bytes()
    kept = whole[: round(cut * len(whole))]
    journal.write_bytes(kept)
    said = "".join(piece.get("text", "") for line in kept.split(b"\n") for piece in payload_of(line))
    assert "".join(pieces).startswith(said)
    found = [each.text for each in shown(path) if isinstance(each, items.AgentMessage)]
    assert "".join(found) == said
    assert history(path) == (["question", said] if said else ["question"])


@settings(max_examples=50)
@given(PIECES, st.data())
def test_a_damaged_piece_ends_the_text_before_it(room: Path, pieces: list[str], data: st.DataObject) -> None:
    shutil.rmtree(room)
    server = Server(room)
    server.emit(begins(MESSAGE))
    server.say(*pieces)
    path = server.dies()
    lines = journal_path(path).read_bytes().splitlines(keepends=True)
    bad = data.draw(st.integers(0, len(lines) - 1))
    lines[bad] = data.draw(st.sampled_from([b"\n", b"\xff\n", b"{}\n", lines[bad][:-5] + b"\n"]))
    journal_path(path).write_bytes(b"".join(lines))
    with open_history(path, THREAD, TurnIndexes()) as stored:
        found = "".join(
            each.item.text
            for each in stored.all_turns()[-1].items
            if isinstance(each.item, items.AgentMessage)
        )
    assert "".join(pieces).startswith(found)
    assert history(path) == (["question", found] if found else ["question"])


# --- how much is written
def test_pieces_hold_the_text_once(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE))
    count, written = 0, 0
    for n in range(20_000):
        server.say(f"word-{n} ", keep=False)
        if server.text.is_due:
            count, written = count + 1, written + server.text.waiting
            server.keep()
    assert journal_path(server.path).stat().st_size < 1.1 * written
    assert count == written // MOST_UNKEPT
    assert server.text.waiting < MOST_UNKEPT


def test_a_piece_is_due_when_four_kilobytes_wait(tmp_path: Path) -> None:
    text, written = StreamJournal(), WrittenTexts()
    text.take([event(begins(MESSAGE))], identity=True)
    text.take([event(written.grow("m", "ä" * 2047))], identity=True)
    assert (text.waiting, text.is_due) == (4094, False)
    last = [event(written.grow("m", "ä"))]
    for _ in range(2):
        text.take(last, identity=True)  # an event that is followed again changes nothing
    assert (text.waiting, text.is_due) == (4096, True)
    [piece] = text.pieces()
    assert json.loads(piece)["text"] == "ä" * 2048
    assert (text.waiting, text.is_due, text.is_kept) == (0, False, True)


def test_items_that_end_in_time_are_never_written_in_pieces(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.emit(begins(MESSAGE), grown("m", "short"), ends(MESSAGE))
    assert (server.text.waiting, server.text.is_due, server.text.is_kept) == (0, False, False)
    assert not journal_path(server.path).exists()


def without_room_for_text() -> tuple[list[bool], DiskCalls]:
    """Return a disk that accepts no pieces of text while the list is not empty, and the list."""
    full = [True]

    def write(fd: int, data: memoryview) -> int:
        return os.write(fd, data[:7] if full and b'"text"' in bytes(data[:60]) else data)

    return full, replace(REAL_DISK, write=write)


def test_text_waits_for_a_disk_with_room_and_not_without_bounds(tmp_path: Path) -> None:
    full, disk = without_room_for_text()
    server = Server(tmp_path, disk=disk)
    full.clear()
    server.emit(begins(MESSAGE))
    full.append(True)
    server.say("Hel", "lo")
    assert server.writer.problem is not None
    assert journal_path(server.path).read_bytes() == b""
    full.clear()
    server.say(" there")
    path = server.dies()
    assert history(path) == ["question", "Hello there"]


def test_a_disk_that_stays_full_costs_bounded_memory_and_the_prefix_stays(tmp_path: Path) -> None:
    full, disk = without_room_for_text()
    server = Server(tmp_path, disk=disk)
    server.emit(begins(MESSAGE))
    piece = "x" * 100_000
    for _ in range(20):
        server.say(piece)
    full.clear()
    server.say("end")
    assert MAX_PIECES_BYTES < journal_path(server.path).stat().st_size < 2 * MAX_PIECES_BYTES
    _, text = history(server.dies())
    assert set(text) == {"x"}
    assert len(text) >= MAX_PIECES_BYTES // 2


def test_what_is_no_piece_is_passed_over(tmp_path: Path) -> None:
    path = Server(tmp_path).dies()
    head = b'{"timestamp":"","type":"text","after":1,"payload":'
    known = {"begun": {"item": items.item_to_value(MESSAGE), "started_at_ms": "?"}, "item": "m", "text": "a"}
    lines = [
        b"[]}",
        b"{}}",
        b'{"item":"m","text":1}}',
        b'{"item":"m","text":"b","begun":{}}}',
        b'{"item":"m","text":"b","begun":{"item":{"kind":"UserMessage","id":"m","content":[]}}}}',
        json.dumps(known).encode() + b"}",
        b'{"item":"other","text":"b"}}',
        b'{"item":"m","text":"c","at":9}}',
        b'{"item":"m","text":"d","at":1}}',
    ]
    journal_path(path).write_bytes(b"".join(head + line + b"\n" for line in lines))
    with open_history(path, THREAD, TurnIndexes()) as stored:
        assert TurnHistory.all_turns(stored)[-1].items[1:] == (), (
            "the rollout is longer than that and ended the turn"
        )
