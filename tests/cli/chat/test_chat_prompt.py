"""The prompt of the chat in a terminal: keys, completion, prompts and skills by name, programs of the user."""

from pathlib import Path

import pytest

from app_server.cli.chat.chat_conversation import Opening
from app_server.client.options import image
from tests.cli.chat.test_chat_terminal import CTRL_C, IDLE, wait_for_answer
from tests.support.chat_worlds import PlayChat
from tests.support.pictures import PNG
from tests.support.scripted_model import patches, reply, says
from tests.support.terminal import Terminal
from tests.support.world import PATH

pytestmark = pytest.mark.scenario

CTRL_G, CTRL_O, CTRL_R = "\x07", "\x0f", "\x12"
ONE, TWO = reply(says("One.")), reply(says("Two."))


def program(path: Path, script: str) -> Path:
    """Write a program of the user."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "key",
    ["\n", "\x1b\r", "\\\r", "\x1b[13;2u", "\x1b[27;2;13~", "\x1b[27;3;13~"],
    ids=["Ctrl-J", "Alt-Enter", "backslash", "Shift-Enter", "Shift-Enter of xterm", "Alt-Enter of xterm"],
)
async def test_a_line_goes_on_in_the_next_row(chat: PlayChat, key: str) -> None:
    def play(t: Terminal) -> None:
        t.press(f"first{key}second")
        t.wait_for("> first\n  second\n")
        t.press("\r")
        wait_for_answer(t, "One.")

    w = await chat(play, ONE)
    assert w.model.requests[0].texts()[-1] == "first\nsecond"


async def test_what_was_typed_is_edited_in_the_users_editor(
    chat: PlayChat, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = program(short_folder / "bin" / "editor", 'cp "$1" "$0.saw"; printf "edited\\ntext\\n" > "$1"')
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))

    def play(t: Terminal) -> None:
        t.press(f"a draft{CTRL_G}")
        t.wait_for("> edited\n  text\n")
        t.press("\r")
        wait_for_answer(t, "One.")

    w = await chat(play, ONE)
    assert (short_folder / "bin" / "editor.saw").read_text() == "a draft"
    assert w.model.requests[0].texts()[-1] == "edited\ntext"


async def test_what_was_said_is_searched(chat: PlayChat, short_folder: Path) -> None:
    (short_folder / "home").mkdir()
    (short_folder / "home" / "chat_history").write_text("\n# t\n+mend the parser\n\n# t\n+other words\n")

    def play(t: Terminal) -> None:
        t.press(f"{CTRL_R}pars")
        t.wait_for("I-search backward: pars")
        t.press("\r")
        t.wait_for("> mend the parser\n")
        t.press("\r")
        wait_for_answer(t, "One.")

    w = await chat(play, ONE)
    assert w.model.requests[0].texts()[-1] == "mend the parser"


def write_prompt_and_skill(root: Path) -> Path:
    prompts, skill = root / "home" / "prompts", root / "home" / "skills" / "tidy"
    prompts.mkdir(parents=True)
    skill.mkdir(parents=True)
    prompt = "---\ndescription: Write a test\nargument-hint: FILE=path\n---\nWrite a test for $FILE.\n"
    (prompts / "mktest.md").write_text(prompt)
    (prompts / "status.md").write_text("Say how it stands, $1.")
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidy\x1b[2J code\n---\nTidy it up.\n")
    return skill / "SKILL.md"


async def test_prompts_and_skills_are_completed_and_used_by_their_names(
    chat: PlayChat, short_folder: Path
) -> None:
    write_prompt_and_skill(short_folder)

    def play(t: Terminal) -> None:
        t.press("/mkt")
        t.wait_for("Write a test FILE=path")
        t.press("\t F")
        t.wait_for("/mktest F\n")
        t.wait_for("FILE=")
        t.press("\ta.py\r")
        wait_for_answer(t, "One.")
        t.say("/prompts:status now")
        wait_for_answer(t, "Two.")
        t.press("/ti")
        t.wait_for("Tidy")
        t.press("\t the parser\r")
        wait_for_answer(t, "Three.")
        t.say("/tidyy it")
        t.wait_for("unknown command /tidyy; did you mean /tidy? /help lists all")
        t.say("/help")
        t.wait_for("/prompts:status arguments")

    w = await chat(play, ONE, TWO, reply(says("Three.")))
    texts = [request.texts()[-1] for request in w.model.requests]
    assert texts[:2] == ["Write a test for a.py.\n", "Say how it stands, now."]
    assert "the parser" in w.model.requests[2].texts()
    assert "Tidy it up." in w.model_saw()


async def test_words_and_pictures_of_the_command_line_are_said_first(
    chat: PlayChat, short_folder: Path
) -> None:
    (short_folder / "shot.png").write_bytes(PNG)

    def play(t: Terminal) -> None:
        wait_for_answer(t, "One.")
        t.say("and more")
        wait_for_answer(t, "Two.")

    opening = Opening(lines=["what is this"], attached=[image(short_folder / "shot.png")])
    w = await chat(play, ONE, TWO, opening=opening)
    kinds = [[part["type"] for part in item["content"]] for item in w.model.requests[1].input[-3:]]
    assert "input_image" in kinds[0]
    assert "input_image" not in kinds[2]


def say_first_words(t: Terminal) -> None:
    t.say("first words")
    wait_for_answer(t, "One.")


@pytest.mark.parametrize("fork", [False, True])
async def test_the_newest_thread_of_the_folder_is_gone_on_with(chat: PlayChat, fork: bool) -> None:
    def go_on(t: Terminal) -> None:
        wait_for_answer(t, "Two.")

    await chat(say_first_words, ONE)
    before = (await chat(lambda t: None)).rollouts()  # an unused thread cannot be resumed
    w = await chat(go_on, TWO, opening=Opening(last=True, fork=fork, lines=["go on"]))
    assert [text for text in w.model.requests[0].texts() if text in ("first words", "go on")] == [
        *("first words", "go on")
    ]
    assert len(w.rollouts()) == len(before) + fork


async def test_a_thread_to_copy_is_picked(chat: PlayChat) -> None:
    def pick(t: Terminal) -> None:
        t.wait_for("→ first words")
        t.press("\r")
        t.wait_for("a copy of the thread")
        t.say("go on")
        wait_for_answer(t, "Two.")

    await chat(say_first_words, ONE)
    w = await chat(pick, TWO, opening=Opening(lines=["/fork ?"]))
    assert ["forked_from_id" in path.read_text() for path in w.rollouts()].count(True) == 1
    assert "first words" in w.model_saw()


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by the chat\n*** End Patch"


async def test_a_diff_is_paged_a_message_copied_and_a_turn_taken_back(
    chat: PlayChat, short_folder: Path
) -> None:
    folder = short_folder / "bin"
    program(folder / "page", f"cat > {folder}/paged; echo was here")
    program(folder / "pbcopy", f"cat > {folder}/copied")

    def play(t: Terminal) -> None:
        t.say("/copy")
        t.wait_for("the model has said nothing yet")
        t.say("change it")
        wait_for_answer(t, "It is changed.")
        t.say("/diff")
        t.wait_for("was here\n>")
        t.say("/copy")
        t.wait_for("the last message was given to pbcopy")
        t.say("/revert")
        t.wait_for("the last turn is out of the conversation; files stay as they are:\n> change it\n  add ")
        t.wait_for("made.txt: the file is as the turn left it")
        t.wait_for("> change it\n", 3)

    w = await chat(
        play,
        reply(patches(PATCH)),
        reply(says("It is **changed**.")),
        environment={"PATH": f"{folder}:{PATH}", "PAGER": str(folder / "page")},
        config={"approval_policy": "never"},
    )
    assert (w.workspace / "made.txt").exists()
    assert "+by the chat" in (folder / "paged").read_text()
    assert "\x1b[" in (folder / "paged").read_text()
    assert (folder / "copied").read_text() == "It is **changed**."


async def test_a_pager_may_be_left_before_it_has_read_all(chat: PlayChat, short_folder: Path) -> None:
    leaves = program(short_folder / "bin" / "leaves", "echo was here")

    def play(t: Terminal) -> None:
        t.say("!printf %0200000d 7")
        t.wait_for("characters left out")  # the part that was streamed is shown before
        t.wait_for("0…\n>")  # the whole answer is above the prompt
        assert t.text.count("0" * 90) < 8
        t.press(CTRL_O)
        t.wait_for("was here\n>")
        t.say("/status")
        wait_for_answer(t, "stored in")

    await chat(play, environment={"PAGER": str(leaves)})


async def test_where_there_is_no_pager_all_of_it_is_shown_above(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("!seq 100 140")
        wait_for_answer(t, "29 lines more (Ctrl-O shows all)")
        assert "\n100\n" not in t.text
        t.press(CTRL_O)
        t.wait_for("\n100\n101\n")

    await chat(play, environment={"PAGER": "/nowhere/less"})


async def test_models_are_picked_with_their_efforts(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("/model")
        t.wait_for("gpt-6-sol")
        t.press("luna\r")
        t.wait_for("effort:")
        t.press("high\r")
        t.wait_for("from the next turn on: gpt-6-luna high")
        t.press("/model gpt-6-sol l")
        t.wait_for("Thinks briefly")
        t.press(CTRL_C)
        t.wait_for(IDLE)
        t.say("words")
        wait_for_answer(t, "One.")

    w = await chat(play, ONE, offered=["gpt-6-sol", "gpt-6-luna"])
    sent = w.model.requests[0].body
    assert (sent["model"], sent["reasoning"]["effort"]) == ("gpt-6-luna", "high")


async def test_what_the_provider_serves_is_offered_beside_the_configured_model(chat: PlayChat) -> None:
    def play(t: Terminal) -> None:
        t.say("/model")
        t.wait_for("local-one")
        assert "gpt-6" not in t.text
        t.press("\x1b")
        t.wait_for(IDLE)
        t.press("/model lo")
        t.wait_for("local-one")
        t.press("\t\r")
        t.wait_for("from the next turn on: local-one")

    await chat(play, offered=["local-one"])
