from pathlib import Path

import pytest

from app_server.core.config.skill_switches import SkillSwitch, is_enabled, skill_switches, write_skill_switch
from app_server.core.errors import ConfigError


def off(name: str | None = None, path: str | None = None) -> SkillSwitch:
    return SkillSwitch(name, path, enabled=False)


def on(name: str | None = None, path: str | None = None) -> SkillSwitch:
    return SkillSwitch(name, path, enabled=True)


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
    write_skill_switch(tmp_path, on("greet"))
    assert skill_switches(tmp_path) == (off(path="/a/SKILL.md"),)
    write_skill_switch(tmp_path, on(path="/a/SKILL.md"))
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
