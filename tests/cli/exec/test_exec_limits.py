"""Limits, forks and additional folders of `app-server exec`, and its display while a turn runs."""

import json
from pathlib import Path

import pytest

from app_server.cli.parse_command import parse
from app_server.client.command_line import InvalidCommandLine
from tests.cli.exec.test_exec_command import options_of, run
from tests.support.scripted_model import ScriptedModel, calls, failure, reply, says, script

pytestmark = pytest.mark.scenario


def rounds(count: int) -> ScriptedModel:
    """Return a model that calls a command in each reply, and sends a message in the last one."""
    return ScriptedModel([*(reply(script("true")) for _ in range(count - 1)), reply(says("done"))])


async def test_no_request_is_sent_over_the_limit(root: Path) -> None:
    model = rounds(5)
    done = await run(root, "--max-turns", "2", "hi", replies=model)
    assert (done.status, done.stdout, len(model.requests)) == (3, "", 2)
    assert done.stderr.splitlines()[-1] == "error: --max-turns: the model was asked 2 times"
    assert "the turn was interrupted" in done.stderr


async def test_a_turn_within_its_limits_ends_as_any_other(root: Path) -> None:
    model = rounds(3)
    limits = ("--max-turns", "3", "--budget-tokens", "1000000", "--timeout", "1h")
    done = await run(root, *limits, "hi", replies=model)
    assert (done.status, done.stdout, len(model.requests)) == (0, "done\n", 3)


async def test_tokens_of_all_requests_count(root: Path) -> None:
    model = rounds(5)
    done = await run(root, "--budget-tokens", "20", "hi", replies=model)  # a reply uses 15 tokens
    assert (done.status, len(model.requests)) == (3, 2)
    assert done.stderr.splitlines()[-1] == "error: --budget-tokens: 30 tokens were used"


async def test_time_ends_a_command_and_the_turn(root: Path) -> None:
    replies = (reply(script("sleep 1000")),)
    done = await run(
        root, "--notifications", "--timeout", "0.5", "-s", "danger-full-access", "hi", replies=replies
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.status == 3
    assert [line["method"] for line in lines[-2:]] == ["turn/completed", "error"]
    assert lines[-2]["params"]["turn"]["status"] == "interrupted"
    assert lines[-1]["params"]["error"]["message"] == "--timeout: 0.5 s have passed"


async def test_a_provider_that_asks_for_fewer_requests_is_waited_for(root: Path) -> None:
    busy = failure(429, {"error": {"message": "slow down"}}, **{"retry-after": "0.05"})
    model = ScriptedModel([busy, reply(says("done"))])
    done = await run(root, "--max-turns", "1", "hi", replies=model)
    assert (done.status, done.stdout, len(model.requests)) == (0, "done\n", 2)
    assert "retrying: the provider asks for fewer requests; the next attempt is in 0.05 s" in done.stderr


async def test_retries_are_shown(root: Path) -> None:
    broken = failure(500, {"error": {"message": "out of order"}})
    again = ("-c", "model_providers.scripted.stream_max_retries=1")
    done = await run(root, *again, "hi", replies=(broken, reply(says("done"))))
    assert (done.status, done.stdout) == (0, "done\n"), done.stderr
    assert "retrying: " in done.stderr


async def test_a_copy_of_a_stored_thread_leaves_the_thread_as_it_was(root: Path) -> None:
    first = await run(root, "--notifications", "one", replies=(reply(says("first")),))
    thread = json.loads(first.stdout.splitlines()[0])["params"]["thread"]["id"]
    model = ScriptedModel([reply(says("second"))])
    done = await run(root, "--fork", thread, "secondly", replies=model)
    assert (done.status, done.stdout) == (0, "second\n"), done.stderr
    assert model.requests[0].texts()[-2:] == ["one", "secondly"]
    stored = sorted((root / "home").glob("sessions/**/rollout-*.jsonl"))
    assert [("secondly" in path.read_text(), thread in path.name) for path in stored] == [
        (False, True),
        (True, False),
    ]
    gone = await run(root, "--fork", thread, "--ephemeral", "three", replies=(reply(says("third")),))
    assert gone.stdout == "third\n"
    assert len([*(root / "home").glob("sessions/**/rollout-*.jsonl")]) == 2


NO_TEMPORARY_FOLDERS = """
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""


async def test_commands_may_write_in_further_folders(root: Path) -> None:
    for name in ("extra", "other"):
        (root / name).mkdir()
    replies = (reply(script(f"touch {root}/extra/a; touch {root}/other/b")), reply(says("done")))
    options = ("-s", "workspace-write", "--add-dir", str(root / "extra"))
    done = await run(root, *options, "hi", replies=replies, tables=NO_TEMPORARY_FOLDERS)
    assert done.status == 0, done.stderr
    assert ((root / "extra" / "a").exists(), (root / "other" / "b").exists()) == (True, False)


async def test_a_further_folder_is_of_no_use_to_who_may_write_nowhere(root: Path) -> None:
    model = ScriptedModel([])
    done = await run(root, "-s", "read-only", "--add-dir", str(root), "hi", replies=model)
    assert (done.status, model.requests) == (2, [])
    assert done.stderr == "app-server exec: --add-dir: the sandbox is read-only\n→ add -s workspace-write\n"


PRICES = {"scripted": {"input": 1_000_000, "cachedInput": 0, "output": 1000}}


async def test_tokens_are_counted(root: Path) -> None:
    done = await run(root, "hi", replies=(reply(says("a")),))
    assert done.stderr.splitlines()[-1] == "15 tokens: 10 in, 5 out"


async def test_tokens_cost_what_the_user_says(root: Path) -> None:
    prices = root / "mine.json"
    prices.write_text(json.dumps(PRICES))
    done = await run(root, "--prices", str(prices), "hi", replies=(reply(says("a")),))
    assert done.stderr.splitlines()[-1] == "15 tokens: 10 in, 5 out, cost 10.0050"


def test_prices_are_read_from_the_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(root / "home"))
    assert options_of(root, "hi").prices == {}
    (root / "home" / "prices.json").write_text(json.dumps(PRICES))
    assert options_of(root, "hi").prices["scripted"].output == 1000
    (root / "home" / "prices.json").write_text('{"scripted": {"input": -1}}')
    with pytest.raises(InvalidCommandLine, match=r"prices.json: .*input"):
        options_of(root, "hi")
    with pytest.raises(InvalidCommandLine, match="--prices: nowhere: No such file"):
        options_of(root, "--prices", "nowhere", "hi")


async def test_a_model_that_was_misspelt_is_told(root: Path) -> None:
    unknown = failure(404, {"error": {"message": "no such model", "code": "model_not_found"}})
    known = '[models."gpt-5.1-codex"]\n'
    done = await run(root, "-m", "gpt-5.1-codx", "hi", replies=(unknown,), tables=known)
    assert done.status == 1
    assert (
        done.stderr.splitlines()[-1]
        == "error: there is no model `gpt-5.1-codx`; did you mean `gpt-5.1-codex`?"
    )


async def test_the_plan_is_shown_as_it_changes(root: Path) -> None:
    plans = [
        reply(
            calls(
                "update_plan",
                {"plan": [{"step": "look", "status": first}, {"step": "mend", "status": second}]},
            )
        )
        for first, second in (("in_progress", "pending"), ("completed", "in_progress"))
    ]
    done = await run(root, "hi", replies=(*plans, reply(says("done"))))
    shown = "plan:\n  [>] look\n  [ ] mend\nplan:\n  [x] look\n  [>] mend\n"
    assert shown in done.stderr


async def test_what_is_said_before_the_end_is_no_result(root: Path) -> None:
    replies = (reply(says("First I look."), script("true")), reply(says("done")))
    done = await run(root, "hi", replies=replies)
    assert done.stdout == "done\n"
    lines = done.stderr.splitlines()
    assert lines[1] == "First I look."
    assert lines[2].startswith("$ sh -c true -> exit 0 in ")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--max-turns", "0"), "--max-turns: expected a number of at least 1, got '0'"),
        (("--budget-tokens", "1e3"), "--budget-tokens: expected a number of at least 1, got '1e3'"),
        (("--timeout", "soon"), "--timeout: expected seconds, or a time as in 90s, 30m or 2h, got 'soon'"),
        (("--timeout", "inf"), "--timeout: expected seconds, or a time as in 90s, 30m or 2h, got 'inf'"),
        (("--add-dir", "/nowhere"), "--add-dir: /nowhere is not a folder"),
        (("--fork", "a", "--resume", "b"), "--resume: not allowed with argument --fork"),
    ],
)
def test_an_option_that_cannot_be_used_says_what_was_expected(
    option: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["exec", *option, "hi"])
    assert (ended.value.code, capsys.readouterr().err.splitlines()[0]) == (2, f"app-server exec: {expected}")


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)])
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse(["exec", "--timeout", text, "hi"]).timeout == seconds


def test_a_thread_that_is_resumed_is_stored(root: Path) -> None:
    with pytest.raises(
        InvalidCommandLine, match="--ephemeral: a thread that is resumed goes on being stored"
    ):
        options_of(root, "--resume-last", "--ephemeral", "hi")
