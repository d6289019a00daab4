import pytest

from app_server.core.model.families import (
    EFFORT_WORDS,
    FAMILIES,
    KNOWN_MODELS,
    UNKNOWN,
    InstructionsKind,
    PatchToolKind,
    ShellToolKind,
    find_family,
)
from protocol.policy import ReasoningEffort, Verbosity


@pytest.mark.parametrize(
    ("slug", "window", "reasons"),
    [
        ("gpt-5", 272_000, True),
        ("gpt-5-mini", 272_000, True),
        ("gpt-5-codex", 272_000, True),
        ("gpt-5.1", 272_000, True),
        ("gpt-5.1-codex-mini", 272_000, True),
        ("codex-mini-latest", 200_000, True),
        ("o3", 200_000, True),
        ("o4-mini", 200_000, True),
        ("gpt-4.1", 1_047_576, False),
        ("gpt-4o-2024-08-06", 128_000, False),
        ("gpt-3.5-turbo", 16_385, False),
        ("gpt-oss-20b", 96_000, False),
        ("mock-model", None, False),
        ("", None, False),
    ],
)
def test_a_model_name_selects_its_context_window_and_reasoning(
    slug: str, window: int | None, reasons: bool
) -> None:
    family = find_family(slug)
    assert family.context_window == window
    assert family.supports_reasoning_summaries is reasons


def test_model_families_have_their_own_defaults_and_tools() -> None:
    assert find_family("gpt-5.1").default_effort is ReasoningEffort.MEDIUM
    assert find_family("gpt-5.1").default_verbosity is Verbosity.LOW
    assert find_family("gpt-5").default_verbosity is None
    assert not find_family("gpt-5-codex").supports_verbosity
    assert find_family("gpt-5-codex").instructions is InstructionsKind.CODEX
    assert find_family("gpt-5-codex").patch_tool is PatchToolKind.FREEFORM
    assert find_family("gpt-oss-120b").patch_tool is PatchToolKind.FUNCTION
    assert find_family("codex-mini-latest").shell_tool is ShellToolKind.LOCAL_SHELL
    assert not find_family("gpt-4.1").knows_apply_patch
    assert find_family("anything") is UNKNOWN


def test_no_row_hides_a_later_one() -> None:
    starts = [start for start, _ in FAMILIES]
    for n, start in enumerate(starts):
        assert not any(start.startswith(earlier) for earlier in starts[:n])


def test_every_offered_model_is_known() -> None:
    for model in KNOWN_MODELS:
        assert find_family(model.name) is not UNKNOWN
        assert model.default_effort in model.efforts
        assert all(EFFORT_WORDS[effort] for effort in model.efforts)
