"""Pure text functions: the macOS profile, the probe's judgement, signs of denials; and the launcher's dataclasses."""

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.sandbox import sandbox_exec
from app_server.engine.sandbox.exec import probe
from app_server.engine.sandbox.exec.command import looks_denied
from app_server.engine.sandbox.exec.probe import GAPS, REFUSALS, gaps, is_refusal, layers
from app_server.engine.sandbox.plan import SandboxPlan, SandboxState
from app_server.engine.support.light_dataclasses import dataclass, field, replace

PLAN = SandboxPlan(
    writable_roots=('/private/tmp/w")(s\\.*',),
    protected=("/ws/.git",),
    reserved=("/ws/.codex",),
    home="/home/u/.codex",
)


def test_paths_are_parameters_and_never_text() -> None:
    argv = sandbox_exec.wrap(("echo", "-p"), PLAN)
    assert argv[:2] == ("/usr/bin/sandbox-exec", "-p")
    assert argv[-3:] == ("--", "echo", "-p")
    text = argv[2]
    for path in (*PLAN.writable_roots, "/ws", "/home/u"):
        assert path not in text
    defined = dict(word[2:].split("=", 1) for word in argv[3:-3])
    assert set(re.findall(r'\(param "(\w+)"\)', text)) == set(defined)
    assert set(defined.values()) == {
        *PLAN.writable_roots,
        "/ws/.git",
        "/ws/.codex",
        "/home/u/.codex/auth.json",
        "/home/u/.codex/.credentials.json",
        "/home/u/.codex/.locks",
        "/home/u/.codex/app-server-control",
    }


def test_the_profile_keeps_directories_above_a_fence_from_being_renamed() -> None:
    text, parameters = sandbox_exec.profile(
        SandboxPlan(writable_roots=("/ws",), protected=("/ws/d/e",), pinned=("/ws/d",))
    )
    (pinned,) = (key for key, value in parameters.items() if value == "/ws/d")
    assert f'(deny file-write-unlink (literal (param "{pinned}")))' in text


def test_the_profile_denies_by_default_and_fences_after_roots() -> None:
    text, _ = sandbox_exec.profile(PLAN)
    assert text.startswith("(version 1)\n(deny default)")
    assert text.index("(allow file-write* (subpath") < text.index("(deny file-write* (literal")
    assert text.count("(") == text.count(")")
    assert "network-outbound" not in text
    assert "network-outbound" in sandbox_exec.profile(SandboxPlan(network=True))[0]


@pytest.mark.parametrize(
    ("code", "stderr", "denied"),
    [
        (0, b"Permission denied", False),
        (1, b"touch: cannot touch 'x': Read-only file system", True),
        (1, b"bash: x: Operation not permitted", True),
        (1, b"assertion failed", False),
        (127, b"foo: command not found", False),
        (159, b"", True),
    ],
)
def test_output_that_indicates_a_sandbox_denial(code: int, stderr: bytes, denied: bool) -> None:
    assert looks_denied(code, b"", stderr) is denied
    assert looks_denied(code, stderr, b"") is denied


def test_the_victim_is_judged_by_what_it_could_do() -> None:
    assert probe.judge_full("done\n") is None
    assert probe.judge_degraded("metadata\nsee\ndone\n") is None
    assert "metadata" in (probe.judge_full("metadata\ndone\n") or "")
    assert "write" in (probe.judge_degraded("write\ndone\n") or "")
    assert probe.judge_full("") is not None
    assert any("visible" in gap for gap in probe.gaps("see done"))
    assert not any("visible" in gap for gap in probe.gaps("done"))


def test_only_a_weaker_sandbox_warns() -> None:
    assert SandboxState("full").warning is None
    assert "why" in (SandboxState("none", "why").warning or "")
    assert "gap" in (SandboxState("degraded", "why", ("gap",)).warning or "")


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
        # Without Landlock, the other probe shows that seccomp holds.
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


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2


@dataclass(slots=True)
class Line:
    start: Point
    names: list[str] = field(default_factory=list)
    length: int = field(init=False)
    _open: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        self.length = self.start.x + self.start.y


def test_values_and_defaults() -> None:
    line, other = Line(Point(1)), Line(start=Point(3, y=4), names=["a"])
    assert (line.start.y, line.names, line.length, line._open) == (2, [], 3, True)
    assert (other.start.x, other.names, other.length) == (3, ["a"], 7)
    assert line.names is not Line(Point(1)).names


def test_equality_and_changed_copies_of_frozen_ones() -> None:
    assert Point(1) == Point(1, 2) == replace(Point(5), x=1)
    assert Point(1) != Point(2)
    assert Line(Point(1)) != Line(Point(1))


@pytest.mark.parametrize("values", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_arguments(values: tuple[tuple[int, ...], dict[str, int]]) -> None:
    with pytest.raises(TypeError):
        Point(*values[0], **values[1])


def test_the_launcher_loads_no_modules_that_take_long() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); import "
        "app_server.engine.sandbox.launcher.launcher_main; print(*sys.modules)"
    )
    root = str(Path(__file__).parents[3])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True
    )
    slow = {"dataclasses", "inspect", "ast", "typing", "re", "enum", "collections", "contextlib", "functools"}
    assert not slow & set(ran.stdout.split())
