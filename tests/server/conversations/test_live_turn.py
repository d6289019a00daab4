"""The running turn: the texts that it keeps, the order that it restores, and the lines that an API makes of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.server.conversations.item_text import (
    KEPT_HEAD,
    LINE_LENGTH,
    PrintedOutput,
    TextLines,
    cut_to_lines,
)
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.engine import events, items
from app_server_protocol.engine.events import EngineEvent, SessionEvent
from app_server_protocol.engine.item_text import WHOLE
from app_server_protocol.engine.item_values import ExecOutputStream, UnknownCommand
from tests.support.written_texts import WrittenTexts, grown

OUT, ERR = ExecOutputStream.STDOUT, ExecOutputStream.STDERR


def command(id: str = "c", source: items.CommandSource = items.CommandSource.AGENT) -> items.CommandExecution:
    parsed = (UnknownCommand(cmd="ls"),)
    return items.CommandExecution(id=id, command=("ls",), cwd="/w", parsed=parsed, source=source)


def take(live: LiveTurn, *given: EngineEvent, turn: str | None = "t") -> list[EngineEvent]:
    """Return the events that are handed on."""
    return [each.event for event in given for each in live.take(SessionEvent("1", turn, event))]


def started() -> events.TurnStarted:
    return events.TurnStarted(events.TurnKind.REGULAR, None, 1.0)


def ended() -> events.TurnEnded:
    return events.TurnEnded(status=events.TurnStatus.COMPLETED, started_at=1.0, ended_at=2.0, seconds=1.0)


def test_an_item_has_its_text_so_far_in_all_its_parts() -> None:
    live = LiveTurn()
    texts = WrittenTexts()
    take(live, started(), events.ItemStarted(items.Reasoning("r", ()), 0))
    take(live, texts.grow("r", "raw", (False, 0)), events.ReasoningSummaryPart("r", 1))
    take(live, texts.grow("r", "two", (True, 1)), texts.grow("r", "o", (True, 0)))
    take(live, texts.grow("r", "ne", (True, 0)))
    (item,) = live.open_items()
    assert item.so_far() == items.Reasoning("r", ("one", "two"), ("raw",))
    take(live, events.ItemStarted(items.Plan("p", ""), 0), grown("p", "step"))
    assert live.item is not None
    assert live.item.so_far() == items.Plan("p", "step")


def test_a_text_is_shown_up_to_the_last_event_though_the_engine_has_written_more() -> None:
    live, texts = LiveTurn(), WrittenTexts()
    take(live, started(), events.ItemStarted(items.AgentMessage("m", ()), 0))
    first, last = texts.grow("m", "one "), texts.grow("m", "two")
    take(live, first)
    assert live.item is not None
    assert live.item.so_far() == items.AgentMessage("m", ("one ",))
    take(live, last)
    assert live.item.so_far() == items.AgentMessage("m", ("one two",))


def test_a_second_item_under_one_id_ends_the_first_and_has_an_id_of_its_own() -> None:
    live = LiveTurn()
    take(
        live,
        started(),
        events.ItemStarted(items.AgentMessage("m", ()), 5),
        grown("m", "a"),
    )
    cut, begun = take(live, events.ItemStarted(items.AgentMessage("m", ()), 7))
    assert cut == events.ItemCompleted(items.AgentMessage("m", ("a",)), 5, 7, cut=True)
    assert isinstance(begun, events.ItemStarted)
    assert live.item_id("t", "m") == "m-2"
    assert live.record is not None
    assert [each.item.id for each in live.record.items] == ["m"]


def test_a_turn_leaves_no_item_but_a_command_that_goes_on() -> None:
    live = LiveTurn()
    terminal = command("b", items.CommandSource.TERMINAL)
    take(live, started(), events.ItemStarted(command("a"), 0), events.ItemStarted(terminal, 0))
    take(live, events.CommandOutput("a", OUT, b"x"))
    cut, end = take(live, ended())
    assert isinstance(cut, events.ItemCompleted)
    assert isinstance(cut.item, items.CommandExecution)
    assert (cut.cut, cut.item.status, cut.item.output) == (True, items.ItemStatus.FAILED, "x")
    assert end == ended()
    assert (live.turn_id, live.record) == (None, None)
    assert [each.item.id for each in live.open_items()] == ["b"]
    assert "a" in live.ended_ids()
    assert "b" not in live.ended_ids()


def test_an_item_that_ends_has_begun() -> None:
    live = LiveTurn()
    begun, end = take(live, events.ItemCompleted(items.AgentMessage("m", ("x",)), 3, 4))
    assert begun == events.ItemStarted(items.AgentMessage("m", ("x",)), 3, announced=False)
    assert end == events.ItemCompleted(items.AgentMessage("m", ("x",)), 3, 4)
    assert live.open_items() == []


def test_the_end_of_an_item_is_handed_on_while_the_item_is_there() -> None:
    live = LiveTurn()
    take(live, started(), events.ItemStarted(command(), 0), events.CommandOutput("c", OUT, "ä".encode()[:1]))
    for event in live.take(SessionEvent("1", "t", events.ItemCompleted(command(), 0, 1))):
        assert live.item is not None
        assert live.item.output is not None
        assert live.item.output.text() == "\ufffd"  # the rest of a character that never came
        assert isinstance(event.event, events.ItemCompleted)


@given(st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.binary(max_size=6)), max_size=20), st.data())
def test_of_output_the_text_and_the_bytes_are_the_same_in_any_pieces(
    chunks: list[tuple[ExecOutputStream, bytes]], data: st.DataObject
) -> None:
    output = PrintedOutput()
    for stream, chunk in chunks:
        output.add_chunk(stream, chunk)
    output.finish()
    middle = data.draw(st.integers(0, output.end))
    for stream in (OUT, ERR):
        found = [*output.chunks(0, middle), *output.chunks(middle, output.end)]
        assert b"".join(each for of, each in found if of is stream) == b"".join(
            chunk for of, chunk in chunks if of is stream
        )
    assert output.text(0, middle) + output.text(middle) == output.text()
    if len({stream for stream, _ in chunks}) == 1:
        assert output.text() == b"".join(chunk for _, chunk in chunks).decode("utf-8", "replace")


def test_of_much_output_the_beginning_and_the_end_are_kept_and_what_is_left_out_is_said() -> None:
    output = PrintedOutput(tail=5_000)
    for n in range(3_000):
        output.add_chunk(OUT, b"%04d" % n * 250)
    text = output.text()
    left_out = 3_000_000 - len(text) + len("\n[... 0000000 characters omitted ...]\n")
    assert f"\n[... {left_out} characters omitted ...]\n" in text
    assert text.startswith("0000")
    assert text.endswith("2995" * 250 + "2996" * 250 + "2997" * 250 + "2998" * 250 + "2999" * 250)
    assert KEPT_HEAD + 4_000 <= len(text) < KEPT_HEAD + 6_000
    assert output.last(1_500) == "2998" * 125 + "2999" * 250
    ((stream, data),) = output.chunks(0, output.end)
    assert (stream, data.decode()) == (OUT, text)
    kept = output.end - 5
    assert output.text(kept) == text[-5_000:]  # a client that keeps up has lost nothing


def test_output_is_cut_to_lines_that_are_short_also_where_characters_are_wide() -> None:
    assert [len(piece) for piece in cut_to_lines("ä" * 5000)] == [2048, 2048, 904]
    assert list(cut_to_lines("a" * 5000)) == ["a" * 5000]
    assert [len(piece) for piece in cut_to_lines("a" * 20_000)] == [LINE_LENGTH, LINE_LENGTH, 3616]
    assert list(cut_to_lines("")) == []


@pytest.mark.parametrize(("longest", "joined"), [(None, True), (None, False), (4, False)])
def test_lines_are_made_once_for_all_clients_that_lack_the_same(longest: int | None, joined: bool) -> None:
    live, made, texts = LiveTurn(), list[tuple[int, int]](), WrittenTexts()
    take(live, started(), events.ItemStarted(items.AgentMessage("m", ()), 0))
    for piece in ("ab", "cd", "ef"):
        take(live, texts.grow("m", piece))
    assert live.item is not None
    text = live.item.part(WHOLE)

    def make(start: int, end: int) -> list[bytes]:
        made.append((start, end))
        return [text.text(start, end).encode()]

    lines = TextLines(text, make, 0, overhead=10, longest=longest)
    grown = lines.grow()
    assert (grown.start, grown.before, lines.end, lines.size) == (0, 0, 3, 36)
    found = [lines.lines(0, 3, joined=joined) for _ in range(3)]
    expected = {(None, True): [(0, 3)], (None, False): [(0, 1), (1, 2), (2, 3)], (4, False): [(0, 2), (2, 3)]}
    assert made == expected[longest, joined]
    assert all(b"".join(each) == b"abcdef" for each in found)
    take(live, texts.grow("m", "gh"))
    assert (lines.grow().start, lines.lines(3, 4, joined=joined)) == (3, [b"gh"])
