"""Arguments against an allow-list of options."""

import pytest

from app_server.core.shell.options import Options, operands_of, options
from app_server.core.shell.quote import word_set

ALLOWED = Options("ab", "nx", frozenset({"all", "width=", "color?"}), numeric=True, most=2)


def test_a_table_row_is_its_parts() -> None:
    assert options("ab", "nx", "all\n  width= color?", numeric=True, most=2) == ALLOWED
    assert options() == Options()
    assert word_set("a b\n  c a") == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("words", "operands"),
    [
        ("", []),
        ("f g", ["f", "g"]),
        ("-", ["-"]),
        ("-a f -b", ["f"]),
        ("-ab f", ["f"]),
        ("-5 f", ["f"]),
        ("-n 3 f", ["f"]),
        ("-n3 f", ["f"]),
        ("-n -3 f", ["f"]),
        ("-n +3 f", ["f"]),
        ("-an 3 f", ["f"]),
        ("-nb f", ["f"]),
        ("-n - f", None),
        ("-n -a f", None),
        ("-n -3a f", None),
        ("-n", None),
        ("-c", None),
        ("-ac f", None),
        ("-5a", None),
        ("-a5", None),
        ("--all f", ["f"]),
        ("--all=x f", None),
        ("--al f", None),
        ("--width 3 f", ["f"]),
        ("--width=3 f", ["f"]),
        ("--width= f", ["f"]),
        ("--width -3 f", ["f"]),
        ("--width --all", None),
        ("--width", None),
        ("--color f", ["f"]),
        ("--color=auto f", ["f"]),
        ("--color= f", ["f"]),
        ("--colour f", None),
        ("-- -c --all", ["-c", "--all"]),
        ("f -- g", ["f", "g"]),
        ("-a -- -- g", ["--", "g"]),
        ("f g h", None),
        ("f -- g h", None),
    ],
)
def test_only_listed_options_are_accepted(words: str, operands: list[str] | None) -> None:
    assert operands_of(words.split(), ALLOWED) == operands


def test_numbers_are_options_only_where_the_program_takes_them() -> None:
    assert operands_of(["-5"], Options()) is None
    assert operands_of(["-5"], Options(valued="5")) is None, "without its value"


def test_any_number_of_operands_where_there_is_no_limit() -> None:
    assert operands_of(["f"] * 50, Options()) == ["f"] * 50
    assert operands_of(["f"], Options(most=0)) is None
    assert operands_of([], Options(most=0)) == []
