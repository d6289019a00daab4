"""Consent to hooks: a changed definition, a changed script, links, moved files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from app_server.engine.config.hook_settings import HookState, hook_states
from app_server.engine.hooks.command_files import HookPlace, named_files
from app_server.engine.hooks.hook_definitions import HookDefinition, HookHandler, HookTrust
from app_server.engine.hooks.trust import FileDigests, HookConsent
from app_server_protocol.engine.hook_events import HookEvent, HookSource
from app_server_protocol.values import replace

DIGEST = "sha256:00"


def handler(command: str) -> HookHandler:
    return HookHandler(
        definition=HookDefinition(event=HookEvent.PRE_TOOL_USE, command=command),
        source=HookSource.USER,
        source_path="/home/hooks.json",
        key="/home/hooks.json:pre_tool_use:0:0",
        digest=DIGEST,
    )


@pytest.fixture
def place(tmp_path: Path) -> HookPlace:
    (tmp_path / "project").mkdir()
    (tmp_path / "bin").mkdir()
    variables = {"HOME": str(tmp_path), "CLAUDE_PROJECT_DIR": str(tmp_path / "project")}
    return HookPlace(str(tmp_path / "project"), variables)


def script(place: HookPlace, name: str = "guard.sh", text: str = "exit 0") -> Path:
    path = Path(place.cwd) / name
    path.write_text(text, encoding="utf-8")
    return path


def agreed(place: HookPlace, command: str) -> HookState:
    consent = HookConsent()
    files = consent.digests_of(consent.judged(handler(command), None, place))
    return HookState(trusted_hash=DIGEST, trusted_files=files)


def trust(place: HookPlace, command: str, state: HookState | None) -> HookTrust:
    return HookConsent().judged(handler(command), state, place).trust


def test_without_consent_a_hook_is_untrusted(place: HookPlace) -> None:
    assert trust(place, "true", None) is HookTrust.UNTRUSTED
    assert trust(place, "true", HookState(enabled=True)) is HookTrust.UNTRUSTED


def test_consent_is_for_one_definition(place: HookPlace) -> None:
    assert trust(place, "true", HookState(trusted_hash=DIGEST)) is HookTrust.TRUSTED
    assert trust(place, "true", HookState(trusted_hash="sha256:01")) is HookTrust.MODIFIED


@pytest.mark.parametrize(
    "command",
    [
        "./guard.sh",
        "bash guard.sh --strict",
        'bash "$CLAUDE_PROJECT_DIR/guard.sh"',
        "cd /tmp; ${CLAUDE_PROJECT_DIR}/guard.sh",
        "~/project/guard.sh",
        'bash -c "exec ./guard.sh 2>/dev/null"',
        'sh "$(git rev-parse --show-toplevel)/guard.sh"',
        "env GUARD=guard.sh runner",
        "cat guard.sh | sh > /dev/null",
    ],
)
def test_a_changed_script_is_modified(place: HookPlace, command: str) -> None:
    path = script(place)
    state = agreed(place, command)
    assert state.trusted_files == {str(path): FileDigests().digest(str(path))}
    assert trust(place, command, state) is HookTrust.TRUSTED

    path.write_text("rm -rf ~", encoding="utf-8")
    judged = HookConsent().judged(handler(command), state, place)
    assert judged.trust is HookTrust.MODIFIED
    assert judged.changed_files == (str(path),)


@pytest.mark.parametrize(
    "command",
    [
        "cd ~/bin && ./guard.sh",
        "cd ~ && cd bin && python3 guard.sh",
        "cd -- ~/bin; sh guard.sh",
        "bash -c 'cd ~/bin && exec ./guard.sh'",
        "(cd / && true); sh ~/bin/guard.sh",
        "make -s -C ~/bin -f guard.sh",
        'D="$HOME/bin"; "$D/guard.sh"',
        'root="${PLUGIN_ROOT:-${OTHER:-$HOME}}" && sh "$root/bin/guard.sh"',
        '"${CLAUDE_PROJECT_DIR:-.}/../bin/guard.sh"',
        'sh "$(pwd)/../bin/guard.sh"',
        'sh "$PWD/../bin/guard.sh"',
        "bash -c 'r=$(git rev-parse --show-toplevel 2>/dev/null) || exit 0; exec \"$r/../bin/guard.sh\"'",
        'sh "$(git rev-parse --show-toplevel 2>/dev/null || pwd)/../bin/guard.sh"',
        "for each in ~/bin/*.sh; do sh $each; done",
    ],
)
def test_a_script_in_a_folder_that_the_command_enters_or_computes_is_part_of_the_consent(
    place: HookPlace, command: str
) -> None:
    path = Path(place.variables["HOME"]) / "bin/guard.sh"
    path.write_text("exit 2", encoding="utf-8")
    state = agreed(place, command)
    assert list(state.trusted_files or ()) == [str(path)]
    path.write_text("exit 0", encoding="utf-8")
    assert trust(place, command, state) is HookTrust.MODIFIED


def test_a_script_of_the_same_name_where_the_command_is_not_switches_no_hook_off(place: HookPlace) -> None:
    command = "cd ~/bin && ./guard.sh"
    (Path(place.variables["HOME"]) / "bin/guard.sh").write_text("exit 2", encoding="utf-8")
    state = agreed(place, command)
    script(place)
    assert trust(place, command, state) is HookTrust.TRUSTED


def test_a_file_that_joins_the_scripts_of_a_pattern_is_asked_about(place: HookPlace) -> None:
    command, folder = "for each in ~/bin/*.sh; do sh $each; done", Path(place.variables["HOME"]) / "bin"
    (folder / "one.sh").write_text("exit 2", encoding="utf-8")
    state = agreed(place, command)
    assert trust(place, command, state) is HookTrust.TRUSTED
    (folder / "two.sh").write_text("exit 0", encoding="utf-8")
    assert trust(place, command, state) is HookTrust.MODIFIED


@pytest.mark.parametrize("pattern", ["*.py", "'*.py'", "./*.py", "$CLAUDE_PROJECT_DIR/*.py"])
def test_a_pattern_for_files_of_the_project_is_no_script(place: HookPlace, pattern: str) -> None:
    script(place, "main.py")
    assert named_files(f"ruff format {pattern}", place) == ()


def test_a_script_that_was_moved_away_or_came_later_is_modified(place: HookPlace) -> None:
    before = agreed(place, "./guard.sh")
    path = script(place)
    assert trust(place, "./guard.sh", before) is HookTrust.MODIFIED

    state = agreed(place, "bash guard.sh")
    path.rename(path.with_name("elsewhere.sh"))
    assert trust(place, "bash guard.sh", state) is HookTrust.MODIFIED


def test_a_file_with_the_name_of_any_word_switches_no_hook_off(place: HookPlace) -> None:
    command = "grep -q 'rm -rf' && exit 2; true"
    state = agreed(place, command)
    for name in ("grep", "-q", "exit", "2", "true", "rm -rf"):
        script(place, name)
    assert trust(place, command, state) is HookTrust.TRUSTED


@pytest.mark.parametrize(
    ("event", "expected"),
    [(HookEvent.PRE_TOOL_USE, HookTrust.LAPSED), (HookEvent.POST_TOOL_USE, HookTrust.MODIFIED)],
)
def test_a_guard_that_was_in_force_lapses(place: HookPlace, event: HookEvent, expected: HookTrust) -> None:
    path, consent = script(place), HookConsent()
    guard = handler("./guard.sh")
    guard = replace(guard, definition=replace(guard.definition, event=event))
    state = HookState(trusted_hash=DIGEST)
    assert consent.judged(guard, state, place).trust is HookTrust.TRUSTED
    path.write_text("exit 0 # always", encoding="utf-8")
    judged = consent.judged(guard, state, place)
    assert judged.trust is expected
    assert judged.counts is (expected is HookTrust.LAPSED)
    assert not judged.runs
    # The user's own decisions are no lapse.
    assert consent.judged(guard, None, place).trust is HookTrust.UNTRUSTED
    assert not consent.judged(guard, HookState(trusted_hash=DIGEST, enabled=False), place).counts
    # Another definition is one.
    assert consent.judged(guard, HookState(trusted_hash="sha256:01"), place).trust is expected


def test_a_link_that_leads_elsewhere_is_modified(place: HookPlace) -> None:
    one, other = script(place, "one.sh"), script(place, "other.sh", "exit 2")
    link = Path(place.cwd) / "guard.sh"
    link.symlink_to(one)
    state = agreed(place, "./guard.sh")
    judged = HookConsent().judged(handler("./guard.sh"), state, place)
    assert judged.trust is HookTrust.TRUSTED
    assert judged.named_files == (str(link),)

    link.unlink()
    link.symlink_to(other)
    assert trust(place, "./guard.sh", state) is HookTrust.MODIFIED


def test_a_script_below_the_projects_root_is_found_from_an_inner_folder(place: HookPlace) -> None:
    path = script(place)
    inner = Path(place.cwd) / "inner"
    inner.mkdir()
    here = HookPlace(str(inner), place.variables)
    command = 'cd "$(git rev-parse --show-toplevel)" && ./guard.sh'
    assert named_files(command, here) == (str(path),)
    assert trust(here, command, agreed(here, command)) is HookTrust.TRUSTED
    state = agreed(here, command)
    path.write_text("exit 1", encoding="utf-8")
    assert trust(here, command, state) is HookTrust.MODIFIED


def test_the_same_word_in_another_folder_is_another_script(place: HookPlace) -> None:
    script(place)
    state = agreed(place, "./guard.sh")
    elsewhere = Path(place.cwd) / "inner"
    elsewhere.mkdir()
    (elsewhere / "guard.sh").write_text("exit 0", encoding="utf-8")
    assert trust(HookPlace(str(elsewhere), place.variables), "./guard.sh", state) is HookTrust.MODIFIED


def test_consent_of_another_program_holds_for_the_files_that_the_thread_first_saw(place: HookPlace) -> None:
    path, state, consent = script(place), HookState(trusted_hash=DIGEST), HookConsent()
    assert consent.judged(handler("./guard.sh"), state, place).trust is HookTrust.TRUSTED
    path.write_text("exit 1", encoding="utf-8")
    assert consent.judged(handler("./guard.sh"), state, place).trust is HookTrust.LAPSED
    # The user has agreed anew, and this time with the files.
    assert (
        consent.judged(handler("./guard.sh"), agreed(place, "./guard.sh"), place).trust is HookTrust.TRUSTED
    )


@pytest.mark.parametrize(
    "command",
    [
        "echo ran >> out.txt",
        "echo out.txt >> out.txt",
        "cat | tee -a out.txt",
        "./log >out.txt",
        "record --to calls.jsonl",
        "sh 2>guard.log",
    ],
)
def test_what_a_hook_writes_is_no_part_of_the_consent(place: HookPlace, command: str) -> None:
    for name in ("out.txt", "calls.jsonl", "guard.log"):
        script(place, name)
    assert named_files(command, place) == ()


def test_a_quotation_without_end_is_searched_all_the_same(place: HookPlace) -> None:
    path = script(place)
    assert named_files("bash './guard.sh", place) == (str(path),)


def test_a_large_file_is_known_by_its_status(place: HookPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.engine.hooks.trust.MOST_BYTES", 10)
    path = script(place, text="x" * 11)
    first = FileDigests().digest(str(path))
    assert first.startswith("file:11:") or ":11:" in first
    path.write_text("y" * 11, encoding="utf-8")
    assert FileDigests().digest(str(path)) != first


def test_a_file_that_did_not_change_is_read_once(place: HookPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    path, digests = script(place), FileDigests()
    first = digests.digest(str(path))
    monkeypatch.setattr(digests, "_read", lambda *_: pytest.fail("it was read again"))
    assert digests.digest(str(path)) == first


def test_entries_of_another_form_give_no_consent() -> None:
    table: Mapping[str, object] = {
        "a": {"trusted_hash": "x", "later": 1},
        "b": 5,
        "c": {"trusted_hash": 5},
        "d": {"enabled": False},
    }
    assert hook_states(table) == {"a": HookState(trusted_hash="x"), "d": HookState(enabled=False)}
    assert hook_states(None) == {}
