"""The subcommands, and their help, suggestions, and common form of errors."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.cli import commands
from app_server.cli.command_parser import CommandParser
from app_server.cli.command_table import COMMANDS, GROUPS
from app_server.cli.parse_command import all_parsers, parse
from app_server.cli.startup_options import checked_status

PARSERS = all_parsers()
NAMES = [command.name for command in PARSERS]


def ended(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, str, str]:
    """Return exit status, stdout and stderr of a command line that ends the process during parsing."""
    with pytest.raises(SystemExit) as ending:
        parse(words)
    said = capsys.readouterr()
    return ending.value.code, said.out, said.err


@pytest.mark.parametrize("command", PARSERS, ids=NAMES)
def test_a_command_helps_with_two_or_three_examples(
    command: CommandParser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 <= len(command.examples) <= 3
    if command.name == "app-server":
        return  # the overview has none
    status, helped, _ = ended([*command.name.split(), "--help"], capsys)
    assert status == 0
    assert helped.startswith(f"usage: app-server {command.name} [OPTIONS]")
    for example in command.examples:
        assert f"  $ {example}" in helped
    assert ended(["help", *command.name.split()], capsys) == (0, helped, "")


@pytest.mark.parametrize("line", [example for command in PARSERS for example in command.examples], ids=str)
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line.rpartition(" | ")[2].partition(" > ")[0], comments=True)
    parse(words[words.index("app-server") + 1 :])


def test_the_example_of_a_group_is_one_of_its_first_command_with_examples() -> None:
    for group in GROUPS:
        first = next(iter(group.commands))
        examples = [
            each for command in PARSERS if command.name.split()[0] == first for each in command.examples
        ]
        assert group.example in examples


def test_a_module_of_a_command_is_one_that_exists_and_has_a_name() -> None:
    folder = Path(commands.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {
        command.module for command in COMMANDS.values()
    }
    assert len(NAMES) == len(set(NAMES))


def test_the_overview_has_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    status, helped, _ = ended(["--help"], capsys)
    assert status == 0
    for group in GROUPS:
        block = next(each for each in helped.split("\n\n") if each.startswith(f"{group.title}\n"))
        listed = {line.split()[0] for line in block.splitlines() if line.startswith("  ")} - {"$"}
        assert listed == group.commands.keys()
        assert "\n  $ app-server" in block
    assert ended(["help"], capsys)[1] == ended(["app-server", "--help"], capsys)[1] == helped


@pytest.mark.parametrize(
    ("words", "what", "advice"),
    [
        ("execc", "app-server: there is no command 'execc'", "did you mean `app-server exec`?"),
        ("qqqq", "app-server: there is no command 'qqqq'", "`app-server --help` shows what can be given"),
        ("login stauts", "app-server login: there is no command 'stauts'", "did you mean `app-server login status`?"),
        (
            "threads",
            "app-server threads: expected list, show, export, rename, rewind, archive, unarchive or delete",
            "`app-server threads --help` shows what can be given",
        ),
        ("config gte", "app-server config: there is no command 'gte'", "did you mean `app-server config get`?"),
        ("exec --jsno hi", "app-server exec: unexpected argument '--jsno'", "did you mean --json?"),
        ("exec --js hi", "app-server exec: unexpected argument '--js'", "did you mean --json?"),
        (
            "exec -s read hi",
            "app-server exec: -s/--sandbox: expected read-only, workspace-write or danger-full-access, got 'read'",
            "`app-server exec --help` shows what can be given",
        ),
        (
            "-c =x",
            "app-server: -c/--config: expected key=value, got '=x'",
            "`app-server --help` shows what can be given",
        ),
        (
            "-c model exec",
            "app-server: -c/--config: expected key=value, got 'model'",
            "`app-server --help` shows what can be given",
        ),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_told_in_one_form(
    words: str, what: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(words.split(), capsys) == (2, "", f"{what}\n→ {advice}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("app-server --analytics-default-enabled", 0),
        ("--listen off --ws-auth capability-token --startup-client-info {} app-server", 0),
        ("app-server --new-flag", 1),
        ("--new-flag app-server -m m", 1),
        ("app-server --new-flag value -m m", 1),
        ("app-server --new-flag=value --other -m m", 2),
        ("acp --new-flag value", 1),
    ],
)
def test_a_server_passes_over_options_that_it_does_not_know(
    words: str, told: int, capsys: pytest.CaptureFixture[str]
) -> None:
    args = parse(words.split())
    assert capsys.readouterr().err.count("is not known here and has no effect") == told
    assert getattr(args, "model", "m") == "m"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("app-server --sandbx read-only", "unexpected argument '--sandbx'"),
        ("--ask-for-aproval never app-server", "unexpected argument '--ask-for-aproval'"),
        ("app-server --ws-issuer me", "unexpected argument '--ws-issuer'"),
        ("app-server --ws-auth signed-bearer-token", "signed-bearer-token is not supported"),
        ("app-server -s everything", "expected read-only"),
        ("--new-flag exec hi", "unexpected argument '--new-flag'"),
        ("acp word", "unexpected argument 'word'"),
    ],
)
def test_options_that_guard_and_other_commands_end_it(
    words: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, told = ended(words.split(), capsys)
    assert (status, what in told) == (2, True), told


@pytest.mark.parametrize(
    ("text", "options", "status", "told"),
    [
        ("", ["--print-startup-config"], 0, ""),
        ('modle = "x"', ["--print-startup-config"], 0, ""),
        ('modle = "x"', ["--print-startup-config", "--strict-config"], 1, "modle"),
        ('modle = "x"', ["--strict-config"], 1, "modle"),
        ("model = [", ["--print-startup-config"], 1, "config.toml:1:"),
        ("", ["--strict-config"], None, ""),
        ("", ["--cloud-skills-snapshot", "f"], None, "--cloud-skills-snapshot has no effect"),
        ("", ["--analytics-default-enabled"], None, ""),
    ],
)
def test_the_settings_may_be_checked_ahead_of_serving(
    text: str,
    options: list[str],
    status: int | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(text)
    assert checked_status(vars(parse(["app-server", *options]))) == status
    shown = capsys.readouterr()
    assert told in shown.err
    assert bool(shown.err) is bool(told)
    if status == 0:
        assert json.loads(shown.out)["configRequirements"] == {"requirements": None}


def test_options_count_before_and_after_the_command() -> None:
    args = parse(
        ["-c", "a=1", "--enable", "x", "app-server", "-m", "one", "exec", "-c", "b=2", "-m", "two", "hi"]
    )
    assert (args.config, args.enable, args.model) == (["a=1", "b=2"], ["x"], "two")
    assert (args.command, args.prompt) == ("exec", ["hi"])


def test_what_follows_two_hyphens_is_of_another_program() -> None:
    words = ["inspect", "--record", "f", "--", "app-server", "app-server", "--help", "-c", "x"]
    assert parse(words).server == words[4:]


def test_options_may_stand_between_other_arguments() -> None:
    args = parse(["mcp", "add", "files", "--env", "A=1", "--", "sh", "serve.sh", "--stdio"])
    assert (args.name, args.env, args.server) == ("files", [("A", "1")], ["sh", "serve.sh", "--stdio"])
    assert parse(["exec", "one", "-s", "read-only", "two"]).prompt == ["one", "two"]


def test_words_of_a_prompt_are_no_names_of_commands() -> None:
    assert parse(["exec", "app-server", "login", "status"]).prompt == ["app-server", "login", "status"]
