"""The chat in a terminal during work: what it shows, and how it asks: output, rules, forms, notices."""

import io
from pathlib import Path

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from app_server.cli.chat.event_view import MOST_KEPT, CommandOutputs
from app_server.cli.chat.question_rows import hint_rows
from app_server.cli.chat.terminal_keys import LONG, DesktopNotices
from app_server_protocol.v2.item_parts import CommandExecutionStatus
from app_server_protocol.v2.items import CommandExecutionThreadItem
from tests.cli.chat.test_chat_prompt import CTRL_O, program
from tests.cli.chat.test_chat_terminal import TOUCH, wait_for_answer
from tests.engine.mcp.test_scenario_mcp import table
from tests.support.chat_worlds import PlayChat, chat_of_lines
from tests.support.scripted_model import calls, reply, runs, says
from tests.support.terminal import Terminal

pytestmark = pytest.mark.scenario

FOCUS_IN, FOCUS_OUT = "\x1b[I", "\x1b[O"
DONE = reply(says("Done."))
FREE = {"approval_policy": "never"}


async def test_output_streams_while_a_command_runs_and_all_of_it_is_on_a_key(
    chat: PlayChat, short_folder: Path
) -> None:
    go, paged = short_folder / "go", short_folder / "paged"
    pager = program(short_folder / "bin" / "page", f"cat > {paged}.part; mv {paged}.part {paged}")
    script = f"seq 1001 1040; printf 'half\\033[2J'; until test -e {go}; do sleep 0.01; done; echo end"

    def play(t: Terminal) -> None:
        t.say("count")
        t.wait_for("│ 1037\n│ 1038\n│ 1039\n│ 1040\n│ half�[2J\n…\n")
        assert "│ 1036" not in t.text
        t.press(CTRL_O)
        t.wait_for_file(paged)
        go.touch()
        wait_for_answer(t, "Done.")
        assert "│ 1040" not in t.text
        assert "  29 lines more" not in t.text
        paged.rename(f"{paged}.first")
        t.press(CTRL_O)
        t.wait_for_file(paged)

    await chat(play, reply(runs("sh", "-c", script)), DONE, environment={"PAGER": str(pager)}, config=FREE)
    first, last = Path(f"{paged}.first").read_text(), paged.read_text()
    assert first.startswith('$ sh -c "seq 1001 1040;')
    assert "\n1001\n" in first
    assert "\x1b" not in first + last
    assert last.endswith("\nhalf�[2Jend\n")


def test_much_output_is_kept_in_bounds() -> None:
    outputs = CommandOutputs()
    item = CommandExecutionThreadItem(
        id="i", command="yes", cwd="/", command_actions=(), status=CommandExecutionStatus.IN_PROGRESS
    )
    outputs.started(item)
    for _ in range(50):
        outputs.printed("i", "y\n" * 100_000)
        assert len(outputs.whole()) < 3 * MOST_KEPT
    outputs.printed("unknown", "z")
    assert outputs.rows(20) == ["│ y"] * 5
    outputs.turn_ended()
    assert outputs.rows(20) == []


async def test_a_long_question_shows_both_ends_is_whole_above_and_is_paged_while_it_waits(
    chat: PlayChat, short_folder: Path
) -> None:
    paged = short_folder / "paged"
    pager = program(short_folder / "bin" / "page", f"cat > {paged}.part; mv {paged}.part {paged}")

    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("│ touch made50\n")
        t.wait_to_see("touch made0 ", "rows are left out here", "touch made99", "[Ctrl-O] all of it ?")
        t.press(CTRL_O)
        t.wait_for_file(paged)
        t.wait_to_see("rows are left out here", "[Ctrl-O] all of it ?")
        t.say("n")
        wait_for_answer(t, "Done.")

    script = "".join(f"touch made{n}\n" for n in range(100))
    await chat(play, reply(runs("bash", "-lc", script)), DONE, environment={"PAGER": str(pager)})
    assert paged.read_text().count("│ touch made") == 99


async def test_a_rule_is_kept_when_it_is_chosen(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("A rule would run, without a question, whatever begins with:\n│ touch made\n")
        t.say("rule")
        t.wait_for("→ rule for all threads")
        wait_for_answer(t, "Done.")

    w = await chat(play, TOUCH, DONE)
    assert (w.workspace / "made").exists()
    rules = (w.root / "home" / "rules" / "default.rules").read_text()
    assert '["touch", "made"]' in rules


async def test_an_mcp_server_is_answered_field_by_field(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for(
            "An MCP server asks for value 1 of 1 (optional):\n│ project\nIt says:\n│ notes: Which project?"
        )
        t.wait_for("says no to all of it ?")
        t.say("mine")
        t.wait_for("Send these values to an MCP server?\n│ project = mine")
        t.wait_for("[b] back to the first value ?")
        t.say("yes")
        wait_for_answer(t, "Done.")

    asks = reply(calls("mcp__notes__ask", {}))
    w = await chat(play, asks, DONE, tables=table("notes"))
    assert "accept {'project': 'mine'}" in w.model_saw()


async def test_an_mcp_server_is_answered_in_plain_lines(tmp_path: Path) -> None:
    asks = reply(calls("mcp__notes__ask", {}))
    shown = await chat_of_lines(tmp_path, "begin\nmine\ny\n", asks, DONE, tables=table("notes"))
    assert shown.index("value 1 of 1") < shown.index("│ project = mine") < shown.index("Done.")


async def test_the_bell_rings_for_a_question_where_the_terminal_is_not_in_front(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("why ?")
        t.say("y")
        wait_for_answer(t, "Done.")
        assert t.screen.bells == 0
        t.press(FOCUS_OUT)
        t.say("again")
        t.wait_for_bells(1)
        t.press(FOCUS_IN)
        t.wait_for("why ?")
        t.say("n")
        wait_for_answer(t, "Once more.")
        assert t.screen.bells == 1

    await chat(play, TOUCH, DONE, reply(runs("touch", "other")), reply(says("Once more.")))


def told(environment: dict[str, str], seconds: float, *, in_front: bool) -> str:
    written = io.StringIO()
    notices = DesktopNotices(Vt100_Output(written, lambda: Size(24, 80)), environment)
    notices.in_front = in_front
    notices.ended(seconds)
    return written.getvalue()


def test_the_end_of_a_long_turn_is_told_in_the_way_of_the_terminal() -> None:
    assert told({}, LONG + 3, in_front=False) == "\a"
    assert told({}, LONG - 1, in_front=False) == ""
    assert told({}, LONG + 3, in_front=True) == ""
    notice = "\a\x1b]9;app-server chat: the turn has ended after 13 s\x1b\\"
    for environment in ({"TERM_PROGRAM": "WezTerm"}, {"TERM": "xterm-kitty"}):
        assert told(environment, 13.2, in_front=False) == notice


async def test_everything_fits_into_60_columns(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_to_see("[y] yes  [a] always this command, in this thread", "[n] no  [s] stop and say why ?")
        t.say("n")
        wait_for_answer(t, "Done.")
        t.say("/resume")
        t.wait_for("→ begin")
        t.wait_for("Esc leaves")
        t.press("\x1b")
        t.wait_until_gone("→ begin")

    await chat(play, TOUCH, DONE, columns=60, rows=20)


async def test_colours_are_those_that_dark_and_light_terminals_can_show(chat: PlayChat) -> None:
    code = "```python\nclass Box:  # note\n    def size(self): return f('text', 1)\n```\n"

    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("why ?")
        t.say("n")
        wait_for_answer(t, "return f")
        shown = {cell.fg for line in t.screen.buffer.values() for cell in line.values() if cell.data.strip()}
        assert shown > {"magenta", "blue", "green"}
        assert shown <= {"default", "red", "green", "brown", "blue", "magenta", "cyan", "brightblack"}

    await chat(play, TOUCH, reply(says(code)))


def test_a_hint_is_wrapped_between_answers() -> None:
    hint = "[y] yes  [a] always this command  [n] no"
    assert hint_rows(hint, 30) == ["[y] yes", "[a] always this command", "[n] no"]
    assert hint_rows(hint, 80) == [hint]
    assert hint_rows("a text; an empty line leaves it out", 20) == ["a text; an empty", "line leaves it out"]
