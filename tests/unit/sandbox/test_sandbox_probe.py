"""Which failures to confine a command are properties of the machine."""

from __future__ import annotations

import errno

import pytest

from app_server.core.sandbox.probe import REFUSALS, is_refusal


@pytest.mark.parametrize(
    ("code", "limits", "refused"),
    [
        (errno.ENOSPC, ["100", "0"], True),
        (errno.ENOSPC, ["100"], False),
        (errno.EAGAIN, ["0"], False),
        (None, ["0"], False),
        *((code, [], True) for code in sorted(REFUSALS)),
    ],
)
def test_a_limit_of_zero_is_a_refusal_and_an_exhausted_one_is_not(
    code: int | None, limits: list[str], refused: bool
) -> None:
    assert is_refusal(code, limits=limits) is refused
