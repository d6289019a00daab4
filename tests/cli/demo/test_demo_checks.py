"""The exit status of the demo."""

import io

import pytest

from app_server.cli.demo.screen import Checks, Screen


@pytest.mark.parametrize(
    ("passed", "failed", "denied", "unasked", "status"),
    [(3, 0, 0, False, 0), (3, 0, 1, False, 0), (3, 0, 1, True, 1), (3, 1, 0, False, 1), (0, 0, 0, False, 1)],
)
def test_a_no_of_a_person_is_no_failure(
    passed: int, failed: int, denied: int, unasked: bool, status: int
) -> None:
    checks = Checks(Screen(io.StringIO(), {}), passed, failed, denied, unasked)
    assert checks.status == status
