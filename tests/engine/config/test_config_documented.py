"""Every documented setting is read, and has an effect: policies of several parts, trust in folders, switches of
skills.
"""

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jsonschema
import pytest
import tomli
from msgspec.structs import fields

from app_server.cli.settings_reference import main, page, schema
from app_server.engine.config import config_values
from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.features import FEATURES
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.config.model_tables import MODEL_KEYS
from app_server.engine.config.project_trust import trust_of
from app_server.engine.config.quirk_settings import QUIRKS
from app_server.engine.config.settings_file import rewrite_config
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.config.settings_table import NO_EFFECT, OF_OTHERS, SETTINGS, SWITCHES
from app_server.engine.config.skill_switches import SkillSwitch, is_enabled, skill_switches, switched
from app_server.engine.model.quirks import Quirks
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.policy import AskForApproval, QuestionKinds, ReadOnly, WorkspaceWrite
from app_server_protocol.values import replace
from tests.engine.config.homes import load

ROOT = Path(__file__).resolve().parents[3]
WITHOUT = re.compile(r"^### Without effect$(.*?)^##", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"`(?:\[\[?)?([a-z][a-z0-9_]+)(?:\.[^`]*)?\]?`")

SWITCH_NOTHING = {name for name, feature in FEATURES.items() if not feature.doc}
DOCUMENT = (ROOT / "docs/configuration.md").read_text()
CLASSES = {part.of for part in SETTINGS if part.of not in (None, QuestionKinds)} | {
    config_values.SettingsNotices
}
"""Classes of settings. Some kinds of questions do not exist here."""


def section(pattern: re.Pattern[str]) -> str:
    found = pattern.search(DOCUMENT)
    assert found is not None
    return found[1]


def modules() -> Iterator[Path]:
    return (path for path in (ROOT / "app_server").rglob("*.py") if path.parent.name != "config")


def test_the_reference_is_what_the_code_reads() -> None:
    """`python -m app_server.cli.settings_reference` writes the reference."""
    assert main(["--check", "--root", str(ROOT)]) == 0


def test_the_reference_has_kinds_and_defaults_of_the_code() -> None:
    text = page()
    for row in (
        "| `model_provider` | string | `openai` |",
        "| `approval_policy` | `untrusted` `on-failure` `on-request` `never` | `on-request` |",
        "| `mcp_servers.NAME.startup_timeout_sec` | seconds, above 0 | `10` |",
        "| `model_providers.NAME.stream_idle_timeout_ms` | integer, at least 1 | `300000` |",
        "| `features.view_image_tool` | `true` |",
    ):
        assert row in text


def test_a_setting_that_does_something_has_a_description() -> None:
    undescribed = {
        name
        for part, settings in SETTINGS.items()
        for name, setting in settings.items()
        if not setting.doc and part.title not in (NO_EFFECT, OF_OTHERS, SWITCHES)
    }
    assert undescribed == set()


EXAMPLE = """
model = "m"
approval_policy = { granular = { sandbox_approval = true, rules = true, mcp_elicitations = false } }
[model_providers.mine]
name = "Mine"
request_max_retries = 3
[mcp_servers.one]
command = "program"
[profiles.work]
sandbox_mode = "read-only"
[otel.exporter.otlp-http]
endpoint = "http://localhost"
"""


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ("", True),
        ("[tui]\nanything = 1", True),
        ("[model_providers.other]\nbase_url = 'a'", False),
        ("[profiles.other]\nsandbox_mode = 'x'", False),
        ("[history]\nmax_bytes = -1", False),
    ],
)
def test_the_schema_accepts_what_the_server_accepts(more: str, valid: bool) -> None:
    validator = jsonschema.Draft7Validator(schema())
    assert validator.is_valid(tomli.loads(EXAMPLE + more)) is valid


def test_every_setting_is_used_by_somebody() -> None:
    used = {
        node.attr
        for path in [
            *modules(),
            *(ROOT / "app_server/engine/config" / name for name in ("config_values.py", "client_limits.py")),
        ]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {
        f"{each.__name__}.{one.name}" for each in CLASSES for one in fields(each) if one.name not in used
    } == set()


def test_every_feature_has_an_effect_or_is_documented_as_without() -> None:
    words = {
        node.value
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {name for name in FEATURES if name not in words} == SWITCH_NOTHING


def test_settings_without_effect_are_documented_by_name() -> None:
    said = set(WORD.findall(section(WITHOUT)))
    without = {name for part, settings in SETTINGS.items() if part.title == NO_EFFECT for name in settings}
    assert said >= SWITCH_NOTHING | without


GRANULAR = "[approval_policy.granular]\nsandbox_approval = false\nrules = true\nmcp_elicitations = false\n"
KINDS = QuestionKinds(sandbox_approval=False, rules=True, mcp_elicitations=False)


@pytest.mark.parametrize(
    "text",
    [
        GRANULAR,
        "approval_policy = { granular = { sandbox_approval = false, rules = true, mcp_elicitations = false } }",
        f'profile = "p"\napproval_policy = "never"\n{GRANULAR.replace("[", "[profiles.p.")}',
        f"{GRANULAR}skill_approval = false\nrequest_permissions = false",
    ],
)
def test_the_kinds_are_read(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text).thread
    assert (found.approval_policy, found.granular) == (AskForApproval.ON_REQUEST, KINDS)


def test_a_part_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    cli = CliOverrides(settings=(("approval_policy.granular.rules", "false"),))
    assert load(tmp_path, GRANULAR, cli).thread.granular == replace(KINDS, rules=False)


def test_a_policy_that_somebody_names_replaces_all_of_it(tmp_path: Path) -> None:
    named = (
        (CliOverrides(settings=(("approval_policy", "on-request"),)), RequestOverrides()),
        (CliOverrides(), RequestOverrides(patch=SettingsPatch(approval_policy=AskForApproval.ON_REQUEST))),
        (CliOverrides(), RequestOverrides(settings={"approval_policy": "on-request"})),
    )
    for cli, request in named:
        assert load(tmp_path, GRANULAR, cli, request).thread.granular is None
    given = RequestOverrides(
        patch=SettingsPatch(approval_policy=AskForApproval.ON_REQUEST, granular=QuestionKinds(rules=False))
    )
    assert load(tmp_path, GRANULAR, request=given).thread.granular == QuestionKinds(rules=False)


def test_the_conversation_api_shows_the_word_that_comes_near(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(GRANULAR)
    assert (
        UserSettings(home=tmp_path, cwd=tmp_path).file.saved()["approval_policy"] is AskForApproval.ON_REQUEST
    )


def off(name: str | None = None, path: str | None = None) -> SkillSwitch:
    return SkillSwitch(name=name, path=path, enabled=False)


def write_skill_switch(home: Path, switch: SkillSwitch) -> None:
    rewrite_config(home, partial(switched, switch=switch))


def test_a_skill_is_off_once_that_was_written_and_on_again_after_that(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('# mine\nmodel = "m" # keep\n[tui]\nx = 1\n', encoding="utf-8")
    before = (tmp_path / "config.toml").read_text()
    write_skill_switch(tmp_path, off("greet"))
    write_skill_switch(tmp_path, off(path="/a/SKILL.md"))
    switches = skill_switches(tmp_path)
    assert not is_enabled(switches, "greet", "/b/SKILL.md")
    assert not is_enabled(switches, "other", "/a/SKILL.md")
    assert is_enabled(switches, "other", "/b/SKILL.md")
    assert "# mine" in (tmp_path / "config.toml").read_text()
    write_skill_switch(tmp_path, replace(off("greet"), enabled=True))
    assert skill_switches(tmp_path) == (off(path="/a/SKILL.md"),)
    write_skill_switch(tmp_path, replace(off(path="/a/SKILL.md"), enabled=True))
    assert (tmp_path / "config.toml").read_text().strip() == before.strip()


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    write_skill_switch(tmp_path, off("greet"))
    assert skill_switches(tmp_path) == (off("greet"),)


def test_an_entry_for_a_path_outweighs_none_and_the_last_one_counts(tmp_path: Path) -> None:
    lines = '[[skills.config]]\nname = "a"\nenabled = false\n[[skills.config]]\nname = "a"\nenabled = true\n'
    (tmp_path / "config.toml").write_text(lines, encoding="utf-8")
    assert is_enabled(skill_switches(tmp_path), "a", "/a")


@pytest.mark.parametrize(
    "text", ["skills = 1\n", "[skills]\nconfig = 3\n", '[[skills.config]]\nname = 7\nenabled = "no"\n']
)
def test_what_is_damaged_switches_nothing_off_and_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    assert skill_switches(tmp_path) == ()
    try:
        write_skill_switch(tmp_path, off("a"))
    except ConfigError:
        assert (tmp_path / "config.toml").read_text() == text
    else:
        assert skill_switches(tmp_path) == (off("a"),)


def linked_worktree(main: Path, linked: Path, back: Path | None = None) -> None:
    """Write the files of `git worktree add`. `back` is the link that the repository has for the worktree."""
    admin = main / ".git" / "worktrees" / "one"
    admin.mkdir(parents=True)
    linked.mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {admin}\n")
    (admin / "gitdir").write_text(f"{back or linked / '.git'}\n")


def test_a_folder_without_a_trust_level(tmp_path: Path) -> None:
    assert trust_of(tmp_path, {}) is None
    assert trust_of(tmp_path, {"/elsewhere": "trusted"}) is None


@pytest.mark.parametrize(("level", "trust"), [("trusted", True), ("untrusted", False)])
def test_the_folder_itself(tmp_path: Path, level: str, trust: bool) -> None:
    assert trust_of(tmp_path, {str(tmp_path): level}) is trust


def test_a_folder_below_a_trusted_one_is_not_trusted_without_a_repository(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert trust_of(tmp_path / "sub", {str(tmp_path): "trusted"}) is None


def test_a_trusted_repository_is_trusted_throughout(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert trust_of(tmp_path / "a" / "b", {str(tmp_path): "trusted"}) is True


def test_a_repository_inside_a_trusted_one_speaks_for_itself(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "vendor" / ".git").mkdir(parents=True)
    assert trust_of(tmp_path / "vendor", {str(tmp_path): "trusted"}) is None


def test_the_trust_level_of_the_nearest_folder_applies(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    levels = {str(tmp_path): "trusted", str(tmp_path / "sub"): "untrusted"}
    assert trust_of(tmp_path / "sub", levels) is False


def test_links_are_resolved_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert trust_of(tmp_path / "link", {str(tmp_path / "real"): "trusted"}) is True
    assert trust_of(tmp_path / "real", {str(tmp_path / "link"): "trusted"}) is True


def test_a_link_out_of_a_trusted_repository_leads_out_of_the_trust(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "repo" / "link").symlink_to(tmp_path / "other")
    assert trust_of(tmp_path / "repo" / "link", {str(tmp_path / "repo"): "trusted"}) is None


def test_a_linked_worktree_shares_the_trust_of_its_repository(tmp_path: Path) -> None:
    linked_worktree(tmp_path / "main", tmp_path / "linked")
    assert trust_of(tmp_path / "linked", {str(tmp_path / "main"): "trusted"}) is True


def test_a_folder_that_only_claims_to_be_a_worktree_does_not(tmp_path: Path) -> None:
    linked_worktree(tmp_path / "main", tmp_path / "linked")
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / ".git").write_text((tmp_path / "linked" / ".git").read_text())
    assert trust_of(tmp_path / "evil", {str(tmp_path / "main"): "trusted"}) is None


def test_odd_git_files_are_no_worktrees(tmp_path: Path) -> None:
    for number, content in enumerate(
        (b"", b"gitdir: ", b"gitdir: \0", b"\xff\xfe", b"x" * 100_000, b"gitdir: /")
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ".git").write_bytes(content)
        assert trust_of(folder, {str(tmp_path): "trusted"}) is None
        assert trust_of(folder, {str(folder): "trusted"}) is True


@pytest.mark.parametrize(("level", "writes"), [("trusted", True), ("untrusted", False)])
def test_only_a_trusted_folder_may_be_written_to_by_default(tmp_path: Path, level: str, writes: bool) -> None:
    found = load(tmp_path, f"[projects.'{tmp_path}']\ntrust_level = '{level}'\n").thread
    assert found.approval_policy is AskForApproval.ON_REQUEST
    assert isinstance(found.sandbox_policy, WorkspaceWrite if writes else ReadOnly)


def test_the_tables_about_models_have_the_keys_of_the_code() -> None:
    assert {each.name for each in fields(Quirks)} == set(QUIRKS)
    assert set(MODEL_KEYS) < {each.name for each in fields(ModelRow)}
