"""Lines of a batch's file: valid tasks, the errors of invalid lines, and the names of a task's files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.batch.batch_tasks import file_name, is_url, listed, parse_tasks
from app_server_protocol.encoding import Json

LINE = {"id": "a", "prompt": "Do it."}


def problem(line: str | bytes, checkout: str = "worktree") -> str:
    raw = line if isinstance(line, bytes) else line.encode()
    _, [(number, reason)] = parse_tasks(raw, checkout, {})  # type: ignore[arg-type]
    assert number == 1
    return reason


def test_a_line_with_everything_is_a_task() -> None:
    line: Json = {
        **LINE,
        "repo": "/src/django",
        "ref": "abc123",
        "settings": {"model": "m", "modelProvider": "p", "sandbox": "workspace-write", "effort": "low"},
        "budget": {"tokens": 400000, "seconds": 1800, "requests": 60},
        "setup": ["pip", "install", "-e", "."],
        "check": ["pytest", "-q"],
        "meta": {"split": "dev", "n": 1},
    }
    tasks, problems = parse_tasks(json.dumps(line).encode(), "worktree", {})
    assert problems == []
    [(number, task)] = tasks
    assert (number, task.id, task.ref, task.check) == (1, "a", "abc123", ("pytest", "-q"))
    assert (task.budget.seconds, task.settings.model_provider, task.meta) == (
        1800,
        "p",
        {"split": "dev", "n": 1},
    )


def test_lines_are_numbered_with_the_empty_ones() -> None:
    raw = b'\xef\xbb\xbf\n{"id": "a", "prompt": "x"}\r\n   \n{"id": "b", "prompt": "x"}\n'
    assert [(number, task.id) for number, task in parse_tasks(raw, "worktree", {})[0]] == [
        (2, "a"),
        (4, "b"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "it is not JSON: "),
        ('{"id": "a", "prompt"', "it is not JSON: "),
        ("[1]", "Expected `object`, got `array`"),
        ('{"prompt": "x"}', "missing required field `id`"),
        ('{"id": "a"}', "missing required field `prompt`"),
        ('{"id": "a", "prompt": "x", "promt": "y"}', "unknown field `promt`"),
        ('{"id": 1, "prompt": "x"}', "Expected `str`, got `int` - at `$.id`"),
        ('{"id": "", "prompt": "x"}', "length >= 1 - at `$.id`"),
        (json.dumps({"id": "a" * 1001, "prompt": "x"}), "length <= 1000 - at `$.id`"),
        ('{"id": "a", "prompt": "x", "budget": {"tokens": 0}}', ">= 1 - at `$.budget.tokens`"),
        ('{"id": "a", "prompt": "x", "budget": {"token": 1}}', "unknown field `token`"),
        ('{"id": "a", "prompt": "x", "setup": []}', "length >= 1 - at `$.setup`"),
        ('{"id": "a", "prompt": "x", "setup": "make"}', "`setup` is a command as a list of words"),
        (
            '{"id": "a", "prompt": "x", "settings": {"sandbox": "all"}}',
            "expected one of read-only, workspace-write, danger-full-access",
        ),
        ('{"id": "a", "prompt": "x", "repo": "/r", "cwd": "/c"}', "exclude each other"),
        ('{"id": "a", "prompt": "x", "cwd": "/c", "ref": "v1"}', "exclude each other"),
        ('{"id": "a", "prompt": "x", "ref": "v1"}', "expected `repo`, too"),
        (b'{"id": "a", "prompt": "\xff"}', "it is not UTF-8"),
        ('{"id": "a", "prompt": "x", "meta": {"a": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_with_a_line(line: str | bytes, said: str) -> None:
    assert said in problem(line)


def test_a_ref_needs_a_worktree_and_a_url_does_too() -> None:
    assert "--checkout copy" in problem('{"id": "a", "prompt": "x", "repo": "/r", "ref": "v1"}', "copy")
    assert "not a URL" in problem('{"id": "a", "prompt": "x", "repo": "https://host/r"}', "none")


def test_an_id_that_is_taken_names_the_line_that_took_it() -> None:
    raw = b'{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "x"}\n{"id": "a", "prompt": "y"}'
    _, problems = parse_tasks(raw, "worktree", {})
    assert problems == [(3, "the `id` 'a' is that of line 1, too")]


def test_a_line_with_a_secret_is_refused_and_does_not_show_it() -> None:
    raw = b'{"id": "a", "prompt": "use sk-123456789"}'
    _, [(_, reason)] = parse_tasks(raw, "worktree", {"$SOME_KEY": "sk-123456789"})
    assert "$SOME_KEY" in reason
    assert "sk-123" not in reason


def test_at_most_twenty_problems_are_listed_and_then_their_number() -> None:
    _, problems = parse_tasks(b"x\n" * 30, "worktree", {})
    lines = listed(problems, "T.jsonl")
    assert len(lines) == 21
    assert lines[0].startswith("T.jsonl:1: it is not JSON")
    assert lines[-1] == "T.jsonl: 30 lines cannot be used"
    assert len(listed(problems[:20], "T.jsonl")) == 20


@given(st.lists(st.text(min_size=1, max_size=300), unique=True, min_size=2, max_size=6))
def test_ids_become_names_that_are_safe_and_differ_on_every_disk(ids: list[str]) -> None:
    names = [file_name(each) for each in ids]
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert 0 < len(name) <= 80
        assert name not in (".", "..")
        assert not set(name) & set('/\\\0 :*?"<>|\n')


def test_names_stay_readable() -> None:
    assert file_name("django-123") == "django-123"
    assert file_name("../etc/Pass wd").startswith("etc-pass-wd~")


@given(st.binary())
def test_any_bytes_are_tasks_or_problems(raw: bytes) -> None:
    tasks, problems = parse_tasks(raw, "worktree", {})
    wanted = [n for n, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1) if line.strip()]
    assert sorted([*(n for n, _ in tasks), *(n for n, _ in problems)]) == wanted


@pytest.mark.parametrize(
    ("named", "url"),
    [
        ("https://host/a.git", True),
        ("ssh://git@host/a", True),
        ("git@host:me/a.git", True),
        ("/src/a", False),
        ("../a", False),
        ("a/b:c", False),
        ("file:///src/a", False),
    ],
)
def test_addresses_differ_from_folders(named: str, url: bool) -> None:
    assert is_url(named) is url
