"""What is pure text: the macOS profile, the probe's judgement, signs of a denial, Landlock's numbers."""

import re

import pytest

from app_server.core.exec import probing
from app_server.core.exec.command import looks_denied
from app_server.core.sandbox import macos, probe
from app_server.core.sandbox.plan import SandboxPlan

PLAN = SandboxPlan(
    writable_roots=('/private/tmp/w")(s\\.*',),
    protected=("/ws/.git",),
    reserved=("/ws/.codex",),
    home="/home/u/.codex",
)


def test_paths_are_parameters_and_never_text() -> None:
    argv = macos.wrap(("echo", "-p"), PLAN)
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
    }


def test_the_profile_keeps_directories_above_a_fence_from_being_renamed() -> None:
    text, parameters = macos.profile(
        SandboxPlan(writable_roots=("/ws",), protected=("/ws/d/e",), pinned=("/ws/d",))
    )
    (pinned,) = (key for key, value in parameters.items() if value == "/ws/d")
    assert f'(deny file-write-unlink (literal (param "{pinned}")))' in text


def test_the_profile_denies_by_default_and_fences_after_roots() -> None:
    text, _ = macos.profile(PLAN)
    assert text.startswith("(version 1)\n(deny default)")
    assert text.index("(allow file-write* (subpath") < text.index("(deny file-write* (literal")
    assert text.count("(") == text.count(")")
    assert "network-outbound" not in text
    assert "network-outbound" in macos.profile(SandboxPlan(network=True))[0]


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
    assert probe.SandboxState("full").warning is None
    assert "why" in (probe.SandboxState("none", "why").warning or "")
    assert "gap" in (probe.SandboxState("degraded", "why", ("gap",)).warning or "")


@pytest.mark.skipif(probing.landlock_abi() < 1, reason="no Landlock here")
def test_landlock_grants_no_devices_and_nothing_that_it_does_not_handle() -> None:
    for version, size in ((1, 8), (4, 16), (7, 24)):
        rights = probing.landlock_rights(network=False, version=version)
        assert rights is not None
        assert rights["grant"] & ~rights["fs"] == 0
        assert not rights["grant"] & (1 << 6 | 1 << 11 | 1 << 15)
        assert rights["size"] == size
        assert bool(rights["net"]) is (version >= 4)
    assert probing.landlock_rights(network=False, version=0) is None
