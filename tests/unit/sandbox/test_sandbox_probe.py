"""Which failures to confine a command are properties of the machine."""

import errno

import pytest

from app_server.core.sandbox.probe import GAPS, REFUSALS, gaps, is_refusal, layers


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


NOT_RUN = "a test command did not run in it"
COULD = "a test command could still: "


@pytest.mark.parametrize(
    ("namespaces", "landlock", "problems"),
    [
        (("done", ""), ("done", ""), [None, None, None]),
        (("done", ""), None, [None, "the kernel has none", None]),
        (("done write", ""), ("done", ""), [COULD + "write", None, None]),
        (("done", ""), ("done write", ""), [None, COULD + "write", None]),
        # Without Landlock, the other probe shows what seccomp holds.
        (("done network", ""), None, [COULD + "network", "the kernel has none", COULD + "network"]),
        (("done", ""), ("done datagram", ""), [None, None, COULD + "datagram"]),
        (("", "refused"), ("done", ""), ["refused", None, None]),
        (("done", ""), ("", "refused"), [None, "refused", None]),
        (("", "refused"), ("", "refused too"), ["refused", "refused too", NOT_RUN]),
        (("", ""), ("", ""), [NOT_RUN, NOT_RUN, NOT_RUN]),
    ],
)  # fmt: skip
def test_each_layer_is_judged_by_the_probe_that_shows_it(
    namespaces: tuple[str, str], landlock: tuple[str, str] | None, problems: list[str | None]
) -> None:
    found = layers(namespaces, landlock, 4)
    name = "Landlock" if landlock is None else "Landlock (ABI 4)"
    assert [layer.name for layer in found] == ["namespaces", name, "seccomp"]
    assert [layer.problem for layer in found] == problems


def test_gaps_are_what_the_probe_could_do_and_what_the_degraded_level_never_covers() -> None:
    never = (GAPS["metadata"], GAPS["fences"], GAPS["secrets"])
    assert set(gaps("done")) == set(never)
    assert set(gaps("see signal done")) == {*never, GAPS["see"], GAPS["signal"]}
