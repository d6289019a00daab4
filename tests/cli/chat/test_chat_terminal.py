"""The chat in a terminal: typed input, shown text, and keys."""

from pathlib import Path

import pytest
from anyio import from_thread

from tests.support.chat_worlds import INSTANT, PlayChat
from tests.support.pictures import PNG
from tests.support.scripted_model import Hold, begins_to_say, patches, reply, runs, says, word
from tests.support.terminal import Terminal

pytestmark = pytest.mark.scenario

CTRL_C, CTRL_D, ESCAPE, UP, DOWN = "\x03", "\x04", "\x1b", "\x1b[A", "\x1b[B"
IDLE = "\n>\n"
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by the chat\n*** End Patch"


def wait_for_answer(t: Terminal, text: str) -> str:
    """Wait for the text and the end of its turn."""
    t.wait_for(text)
    return t.wait_for(IDLE)


def wait_for_question(t: Terminal, text: str) -> None:
    """Wait for the text and until it is completely shown: input typed before that is no answer. The loop does both at
    once.
    """
    t.wait_for(text)
    from_thread.run_sync(lambda: None)


async def test_a_message_a_command_that_is_allowed_and_a_patch_that_is_not(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("hello")
        wait_for_answer(t, "Some words.")
        t.say("go on")
        t.wait_for("[y] yes")
        t.say("y")
        t.wait_for("8 lines more")
        t.wait_for("Change these files?")
        t.wait_for("+by the chat")
        t.say("No")
        assert "the patch was declined" in wait_for_answer(t, "All done.")

    w = await chat(
        play,
        reply(says("# Title\n\nSome *words*.")),
        reply(runs("sh", "-c", "seq 20 > out.txt; seq 20")),
        reply(patches(PATCH, "c2")),
        reply(says("All done.")),
    )
    assert (w.workspace / "out.txt").exists()
    assert not (w.workspace / "made.txt").exists()


async def test_typing_joins_the_turn_and_ctrl_c_interrupts_it(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("take your time")
        t.wait_for("working")
        t.say("and hurry")
        t.wait_for("… and hurry")
        t.press(CTRL_C)
        wait_for_answer(t, "interrupted")

    await chat(play, reply(begins_to_say(), word("thinking"), Hold(), says("late")))


TOUCH = reply(runs("touch", "made"))


@pytest.mark.parametrize(
    "words", ["actually no", "Yikes", "also add tests", "you must not", "yess", "y n", "ys"]
)
async def test_words_that_begin_like_a_yes_are_no_answer_and_come_back(chat: PlayChat, words: str) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("why ?")
        t.say(words)
        t.wait_for("no answer: expected y or yes, a or always")
        t.say("n")
        t.wait_for("Then not.")
        t.wait_for(f"{IDLE[:-1]} {words}\n")
        t.press("\r")
        wait_for_answer(t, "I see.")

    w = await chat(play, TOUCH, reply(says("Then not.")), reply(says("I see.")))
    assert not (w.workspace / "made").exists()
    assert w.model.requests[-1].texts()[-1] == words


@pytest.mark.parametrize("draft", ["y", "yes", "also add te"])
async def test_a_line_that_was_begun_before_the_question_is_no_answer(chat: PlayChat, draft: str) -> None:
    held = Hold()

    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("working")
        t.press(draft)
        t.wait_for(f"… {draft}")
        from_thread.run_sync(held.release)
        t.wait_for("why ?")
        t.say("")
        t.wait_for("no answer: this was begun before the question could be read; the line comes back")
        t.say("stop")
        t.wait_for(f"{IDLE[:-1]} {draft}\n")

    w = await chat(play, reply(begins_to_say(), word("I "), held, says("I begin."), runs("touch", "made")))
    assert not (w.workspace / "made").exists()


async def test_what_is_typed_the_moment_a_question_appears_is_no_answer(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("why ?")
        t.say("y")
        t.wait_for("no answer: this was begun before the question could be read")
        t.press(CTRL_C)
        t.wait_for("interrupted")
        t.wait_for("> y\n")

    w = await chat(play, TOUCH, tick=INSTANT)
    assert not (w.workspace / "made").exists()


async def test_answers_are_not_among_what_was_said(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_for("why ?")
        t.say("n")
        wait_for_answer(t, "Then not.")
        t.press(UP)
        t.wait_for("> begin\n", 2)

    await chat(play, TOUCH, reply(says("Then not.")))


async def test_a_question_cannot_be_imitated_by_what_it_is_about(chat: PlayChat) -> None:
    faked = "Run this command?\n│ ls\nin the folder\n│ /\n[y] yes  [a] always in this thread ?"
    script = f"touch made #{' ' * 200}{chr(10) * 80}{faked}{chr(10) * 80}#"

    def play(t: Terminal) -> None:
        t.say("begin")
        t.wait_to_see("│ bash -lc 'touch made #", "why ?")
        lines = t.text.split("\n")
        assert lines.count("Run this command?") == 1
        assert lines[lines.index("Run this command?") + 1].startswith("│ bash -lc 'touch made #")
        t.say("n")
        wait_for_answer(t, "Then not.")

    await chat(play, reply(runs("bash", "-lc", script)), reply(says("Then not.")), columns=60)


async def test_a_long_line_without_spaces_is_sent(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.press(f"\x1b[200~{'a' * 100_000}\x1b[201~")
        t.press("\r")
        wait_for_answer(t, "Long.")

    w = await chat(play, reply(says("Long.")))
    assert w.model.requests[0].texts()[-1] == "a" * 100_000


async def test_without_a_cursor_a_question_shows_what_answers_it(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.press("begin\n")
        wait_for_question(t, "[y] yes  [a] always this command, in this thread")
        t.press("always so\n")
        t.wait_for("no answer: expected y or yes")
        t.press("yes\n")
        t.wait_for("Done.")

    w = await chat(play, TOUCH, reply(says("Done.")), dumb=True)
    assert (w.workspace / "made").exists()


@pytest.mark.parametrize(
    ("early", "late", "said"), [("y", "\n", "y"), ("also te", "sts\n", "also tests"), ("y\n", "no\n", "y")]
)
async def test_without_a_cursor_what_was_typed_before_a_question_is_said_later(
    chat: PlayChat, early: str, late: str, said: str
) -> None:
    held = Hold()

    def play(t: Terminal) -> None:
        t.press("begin\n")
        t.wait_for("begun")
        t.press(early)
        t.wait_for(early.strip())
        from_thread.run_sync(held.release)
        wait_for_question(t, "[y] yes")
        t.press(late)
        if early.endswith("\n"):
            t.wait_for("Then not.")
        else:
            t.wait_for(
                "no answer: this was begun before the question could be read; it is said after the turn"
            )
            t.press("n\n")
        t.wait_for("I see.")

    asks = reply(begins_to_say(), word("begun\n\n"), held, says("begun\n\n"), runs("touch", "made"))
    w = await chat(play, asks, reply(says("Then not.")), reply(says("I see.")), dumb=True)
    assert not (w.workspace / "made").exists()
    assert w.model.requests[-1].texts()[-1] == said


async def test_a_thread_is_picked_by_keys_and_by_typing_in_a_narrow_terminal(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        for text, answer in (("日本語で長い長い長い長い長い長い話", "ümlaute 🙂"), ("tell me", "a fable")):
            t.say(text)
            wait_for_answer(t, answer)
            t.say("/new")
            t.wait_for("a new thread", 1 + (answer == "a fable"))
        t.say("/resume")
        assert "  日本語で長い長い長い長い長い長…" in t.wait_for("→ tell me")
        t.press(DOWN)
        assert "  tell me" in t.wait_for("→ 日本語で長い")
        t.press(DOWN + UP)
        t.wait_for("→ tell me")
        t.press("nothing")
        t.wait_for("nothing contains this")
        t.press("\r" + ESCAPE)
        t.wait_until_gone("thread:")
        t.say("/resume")
        t.wait_for("→ tell me")
        t.press("本語")
        t.wait_for("→ 日本語で長い")
        t.press("\r")
        t.wait_for("ümlaute", 2)
        t.say("go on")
        wait_for_answer(t, "it goes on")

    w = await chat(play, *(reply(says(text)) for text in ("ümlaute 🙂", "a fable", "it goes on")), columns=34)
    assert w.model.requests[-1].texts()[-2:] == ["日本語で長い長い長い長い長い長い話", "go on"]


async def test_what_was_typed_stays_when_the_picker_has_taken_its_place(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("/resume")
        t.wait_for("no stored thread")
        t.say("first")
        wait_for_answer(t, "One.")
        t.press("/resume first\rhalf a ")
        t.wait_for("thread:")
        t.press(ESCAPE)
        t.wait_for("> half a")
        t.press("line\r")
        wait_for_answer(t, "Two.")

    w = await chat(play, reply(says("One.")), reply(says("Two.")))
    assert "half a line" in w.model_saw()


async def test_a_picture_whose_path_is_pasted_goes_along(chat: PlayChat, short_folder: Path) -> None:
    picture = short_folder / "my shot.PNG"
    picture.write_bytes(PNG)

    def play(t: Terminal) -> None:
        pasted = str(picture).replace(" ", "\\ ")
        t.press(f"\x1b[200~look at '{short_folder}/none.png' and {pasted}\x1b[201~")
        t.press("\r")
        wait_for_answer(t, "A picture.")

    w = await chat(play, reply(says("A picture.")))
    said = w.model.requests[0].input[-1]["content"]
    assert [part["type"] for part in said if part["type"] == "input_image"] == ["input_image"]
    assert "data:image/png;base64,iVBORw0KGgo" in str(said)
    assert "none.png" in str(said)


async def test_files_and_commands_are_completed_and_what_was_said_is_recalled(
    chat: PlayChat, short_folder: Path
) -> None:
    (short_folder / "workspace").mkdir()
    (short_folder / "workspace" / "notes.txt").write_text("")

    def play(t: Terminal) -> None:
        t.press("/sta")
        t.wait_for("the thread and its settings")
        t.press(CTRL_C)
        t.wait_until_gone("/sta")
        t.press("read @not")
        t.wait_for("notes.txt")
        t.press("\t")
        t.wait_for("> read notes.txt")
        t.press("\r")
        wait_for_answer(t, "Read.")
        t.press(UP)
        t.wait_for("> read notes.txt", 2)
        t.press(" again\r")
        wait_for_answer(t, "Once more.")

    w = await chat(play, reply(says("Read.")), reply(says("Once more.")))
    assert w.model.requests[-1].texts()[-2:] == ["read notes.txt", "read notes.txt again"]
    assert ((short_folder / "home" / "chat_history").stat().st_mode & 0o777) == 0o600


async def test_slash_commands_change_the_thread(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        for line, answer in (
            ("first", "One."),
            ("second", "Two."),
        ):
            t.say(line)
            wait_for_answer(t, answer)
        t.say("/revert")
        t.wait_for("the last turn is out of the conversation; files stay as they are:\n> second\n")
        t.wait_for("> second", 3)  # the message can be written again
        t.press(CTRL_C)
        t.wait_for(IDLE)
        for line, answer in (
            ("/fork", "a copy of the thread"),
            ("/compact", "replaced by a summary"),
            ("/model other low", "from the next turn on: other low"),
            ("third", "Three."),
        ):
            t.say(line)
            wait_for_answer(t, answer)

    w = await chat(play, *(reply(says(text)) for text in ("One.", "Two.", "a summary", "Three.")))
    sent = w.model.requests[-1]
    assert (sent.body["model"], sent.body["reasoning"]["effort"]) == ("other", "low")
    assert "second" not in str(sent.input)
    assert "a summary" in str(sent.input)


async def test_slash_commands_say_what_there_is(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        for line, answer in (
            ("/status", "stored in"),
            ("/nothing", "unknown command /nothing"),
            ("/approvals never", "from the next turn on: never"),
            ("/sandbox read-only", "from the next turn on: read-only"),
            ("/mcp", "no MCP server is configured"),
            ("/diff", "changed no files"),
            ("!echo from $((1 + 1)) users", "from 2 users"),
        ):
            t.say(line)
            wait_for_answer(t, answer)
        t.wait_for("never · read-only")

    await chat(play)
