"""The user's own prompts as files, and AGENTS.md: which files are read, and that a repository cannot make others be
read.
"""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.context.custom_prompts import MAX_BYTES, discover_prompts
from app_server.engine.context.project_docs import find_instructions
from app_server.engine.support.prompt_text import split_front_matter


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


ROUNDS = 300


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for folder in ("home", "outside", "repo/.git/HEAD", "repo/sub"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "repo"


def found(cwd: Path, max_bytes: int = 1000) -> str | None:
    return find_instructions(cwd.parent / "home", cwd, max_bytes)


def test_files_are_read_from_the_root_down_to_the_working_directory(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("top")
    (repository / "sub/AGENTS.md").write_text("below")
    assert find_instructions(repository.parent / "home", repository / "sub", 1000) == "top\n\nbelow"


def test_a_link_that_stays_inside_is_followed(repository: Path) -> None:
    (repository / "sub/NOTES.md").write_text("notes")
    (repository / "AGENTS.md").symlink_to("sub/NOTES.md")
    assert found(repository) == "notes"


@pytest.mark.parametrize("target", ["{outside}/s", "../outside/s", "sub/way/s"])
def test_a_link_that_leads_out_is_not(repository: Path, target: str) -> None:
    outside = repository.parent / "outside"
    (outside / "s").write_text("secret")
    (repository / "sub/way").symlink_to(outside)
    (repository / "AGENTS.md").symlink_to(target.format(outside=outside))
    assert found(repository) is None


def test_the_users_own_file_may_be_a_link_to_anywhere(repository: Path) -> None:
    (repository.parent / "outside/mine").write_text("mine")
    (repository.parent / "home/AGENTS.md").symlink_to(repository.parent / "outside/mine")
    assert found(repository) == "mine"


def test_the_users_own_link_into_a_workspace_leads_no_further(repository: Path) -> None:
    home = repository.parent / "home"
    (repository.parent / "outside/s").write_text("secret")
    (repository / "mine").symlink_to("notes")
    (repository / "notes").write_text("notes")
    (home / "AGENTS.md").symlink_to(repository / "mine")
    assert find_instructions(home, repository, 1000, changeable=(str(repository),)) == "notes"
    (repository / "notes").unlink()
    (repository / "notes").symlink_to(repository.parent / "outside/s")
    assert find_instructions(home, repository, 1000, changeable=(str(repository),)) is None


@pytest.mark.parametrize("name", ["auth.json", ".credentials.json"])
def test_credentials_are_no_instructions(repository: Path, name: str) -> None:
    home = repository.parent / "home"
    (home / name).write_text("secret")
    os.link(home / name, repository / "AGENTS.md")
    (home / "AGENTS.md").symlink_to(name)
    assert find_instructions(home, repository, 1000) is None


def test_a_file_that_is_exchanged_with_a_link_meanwhile_is_not_followed(repository: Path) -> None:
    """A command of another thread could replace it in this way."""
    home, stop = repository.parent / "home", threading.Event()
    (home / "auth.json").write_text("secret")
    (repository / "AGENTS.md").write_text("plain")
    (repository / "link").symlink_to(home / "auth.json")

    def exchange() -> None:
        names = [str(repository / name) for name in ("AGENTS.md", "kept", "link")]
        while not stop.is_set():
            for source, target in ((0, 1), (2, 0), (0, 2), (1, 0)):
                os.rename(names[source], names[target])

    swapping = threading.Thread(target=exchange)
    swapping.start()
    try:
        seen = {find_instructions(home, repository, 1000) for _ in range(ROUNDS)}
    finally:
        stop.set()
        swapping.join()
    assert seen <= {"plain", None}


def test_what_is_no_file_or_too_long_does_not_hurt(repository: Path) -> None:
    os.mkfifo(repository / "AGENTS.md")
    assert found(repository) is None
    (repository / "AGENTS.md").unlink()
    (repository / "AGENTS.md").write_text("x" * 5000)
    assert len(found(repository) or "") == 1000


@pytest.fixture
def stranger() -> int:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    return 54321


def test_a_repository_of_another_user_is_ignored(repository: Path, stranger: int) -> None:
    (repository / "AGENTS.md").write_text("theirs")
    (repository / "sub" / "AGENTS.md").write_text("mine")
    os.chown(repository / ".git", stranger, stranger)
    told: list[str] = []
    found = find_instructions(repository.parent / "home", repository / "sub", 1000, on_refusal=told.append)
    assert found == "mine"
    assert len(told) == 1
    assert str(repository / ".git") in told[0]


@pytest.mark.parametrize("kind", ["file", "link", "target"])
def test_a_document_of_another_user_is_not_read(repository: Path, stranger: int, kind: str) -> None:
    document = repository / "AGENTS.md"
    if kind == "file":
        document.write_text("theirs")
        os.chown(document, stranger, stranger)
    else:
        (repository / "notes").write_text("theirs")
        document.symlink_to("notes")
        os.chown(
            document if kind == "link" else repository / "notes", stranger, stranger, follow_symlinks=False
        )
    (repository / "sub" / "AGENTS.md").write_text("mine")
    told: list[str] = []
    found = find_instructions(repository.parent / "home", repository / "sub", 1000, on_refusal=told.append)
    assert found == "mine"
    assert len(told) == 1
    assert str(document) in told[0]
