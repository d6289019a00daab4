"""How checks are shown, and which exit status they give."""

import json

from app_server.doctor import as_json, as_text, exit_status, summary
from protocol.checks import broken, ok, warning

CHECKS = [ok("git", "git version 2"), warning("disk", "500 MiB", "free some")]


def test_advice_is_below_the_result() -> None:
    assert as_text(CHECKS[0]) == "ok       git: git version 2"
    assert as_text(CHECKS[1]).splitlines() == ["warning  disk: 500 MiB", "         → free some"]


def test_control_characters_are_not_printed() -> None:
    assert as_text(ok("x", "one\ntwo\x1b[31m")) == "ok       x: one two [31m"


def test_only_what_is_broken_is_a_failure() -> None:
    assert exit_status(CHECKS) == 0
    assert exit_status([*CHECKS, broken("home", "x", "y")]) == 1
    assert summary(CHECKS) == "\n2 checks: 1 ok, 1 warning, 0 broken"


def test_json_has_all_of_it() -> None:
    shown = json.loads(as_json([*CHECKS, broken("home", "x", "y")]))
    assert shown["ok"] is False
    assert shown["checks"][0] == {"name": "git", "status": "ok", "found": "git version 2", "advice": None}
    assert shown["checks"][2]["status"] == "broken"
