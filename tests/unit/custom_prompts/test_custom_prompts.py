"""The user's own prompts, as files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.custom_prompts import MAX_BYTES, discover_prompts, split_front_matter


def test_a_file_is_a_prompt_under_its_stem(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("Body of $1\n")
    (tmp_path / "a.MD").write_text(
        "---\ndescription: \"Short: it's\"\nargument-hint: '[file]'\n---\nDo it.\n"
    )
    (tmp_path / "notes.txt").write_text("no")
    (tmp_path / "folder.md").mkdir()
    first, second = discover_prompts(tmp_path)
    assert first.to_value() == {
        "name": "a",
        "path": str(tmp_path / "a.MD"),
        "content": "Do it.\n",
        "description": "Short: it's",
        "argument_hint": "[file]",
    }
    assert (second.name, second.content, second.description, second.argument_hint) == (
        "b",
        "Body of $1\n",
        None,
        None,
    )


def test_the_hint_is_also_known_with_an_underscore() -> None:
    settings, body = split_front_matter("---\n# note: no\nARGUMENT_HINT: x\n\n---\n")
    assert (settings, body) == ({"argument_hint": "x"}, "")


@pytest.mark.parametrize(
    "text", ["", "plain", "---\ndescription: x\nno end", "--- x\na: b\n---\n", "\n---\na: b\n---\n"]
)
def test_without_both_delimiters_there_is_no_front_matter(text: str) -> None:
    assert split_front_matter(text) == ({}, text)


def test_an_unreadable_file_affects_no_other(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("ok")
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    (tmp_path / "large.md").write_bytes(b"x" * (MAX_BYTES + 1))
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "linked.md").symlink_to(tmp_path / "good.md")
    os.mkfifo(tmp_path / "pipe.md")
    os.close(os.open(os.fsencode(tmp_path) + b"/bad\xff.md", os.O_CREAT | os.O_WRONLY))
    assert [prompt.name for prompt in discover_prompts(tmp_path)] == ["good", "linked"]


def test_credentials_are_no_prompt(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "auth.json").write_text("secret")
    (tmp_path / "prompts/a.md").symlink_to("../auth.json")
    assert discover_prompts(tmp_path / "prompts") == ()


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert discover_prompts(tmp_path / "prompts") == ()


@given(st.text(max_size=200))
def test_no_text_is_lost_or_raises(text: str) -> None:
    _, body = split_front_matter(text)
    assert text.endswith(body)
