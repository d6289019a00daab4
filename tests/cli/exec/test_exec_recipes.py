"""The recipes of docs/exec.md, exactly as on the page, each in a repository of its own with the scripted model."""

import json
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.docs.markdown_blocks import ROOT, blocks
from tests.support.library import serving_model
from tests.support.program import BIN
from tests.support.scripted_model import Reply, ScriptedModel, patches, reply, says
from tests.support.world import PATH, WHOLE_SCENARIO

pytestmark = pytest.mark.process

MARK = "run by tests/cli/exec/test_exec_recipes.py"
RECIPES = [block.text for block in blocks(ROOT / "docs" / "exec.md") if block.mark == MARK]
TESTS = 'test "$(sh greet.sh World)" = "Hello, World!" || { echo "expected Hello, World!"; exit 1; }\n'
BROKEN, REPAIRED = 'echo "Hello, $2!"\n', 'echo "Hello, $1!"\n'
REPAIR = f"*** Begin Patch\n*** Update File: greet.sh\n@@\n-{BROKEN}+{REPAIRED}*** End Patch"


def recipe(word: str) -> str:
    [found] = [each for each in RECIPES if word in each]
    return found


def git(folder: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(root: Path) -> Path:
    """Make a repository with a change on a branch, checked out as in a CI job."""
    folder = root / "workspace"
    (folder / "run-tests.sh").write_text(TESTS)
    (folder / "greet.sh").write_text(REPAIRED)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "begin")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    (folder / "greet.sh").write_text(BROKEN)
    git(folder, "commit", "-q", "-a", "-m", "change")
    return folder


async def play(script: str, repository: Path, *replies: Reply) -> tuple[int, str, ScriptedModel]:
    """Run a recipe; return its exit status, its output, and the model."""
    model = ScriptedModel(list(replies))
    with anyio.fail_after(WHOLE_SCENARIO):
        async with serving_model(model, repository.parent, {}) as environment:
            own = {
                "PATH": f"{BIN}:{PATH}",
                "BASE": "main",
                **{
                    f"GIT_{who}_{what}": "a@example.org"
                    for who in ("AUTHOR", "COMMITTER")
                    for what in ("NAME", "EMAIL")
                },
            }
            done = await anyio.run_process(
                ("sh", "-c", script), env={**environment, **own}, cwd=repository, check=False
            )
    return done.returncode, done.stdout.decode(), model


def test_every_recipe_is_played_here() -> None:
    words = ("Review this change", "must not be merged", "tests fail", "commit message", "exec resume")
    assert [sum(word in each for each in RECIPES) for word in words] == [1] * len(RECIPES)


async def test_a_change_is_reviewed(repository: Path) -> None:
    status, _, model = await play(recipe("Review"), repository, reply(says("greet.sh:1: prints $2")))
    assert (status, (repository / "review.md").read_text()) == (0, "greet.sh:1: prints $2\n")
    prompt = model.requests[0].texts()[-1]
    assert prompt.startswith("Review this change. ")
    assert f"-{REPAIRED}+{BROKEN}</stdin>" in prompt


@pytest.mark.parametrize(("findings", "status"), [(["greet.sh:1"], 1), ([], 0)])
async def test_what_is_found_fails_a_job(findings: list[str], status: int, repository: Path) -> None:
    answer = json.dumps({"findings": findings})
    ended, printed, model = await play(recipe("must not be merged"), repository, reply(says(answer)))
    assert (ended, printed.split()) == (status, findings)
    assert model.requests[0].body["text"]["format"]["schema"]["required"] == ["findings"]


async def test_code_is_repaired_until_the_tests_pass(repository: Path) -> None:
    replies = (reply(says("I cannot.")), reply(patches(REPAIR)), reply(says("Repaired.")))
    status, _, model = await play(recipe("tests fail"), repository, *replies)
    assert (status, (repository / "greet.sh").read_text()) == (0, REPAIRED)
    assert (repository / "repair.md").read_text() == "I cannot.\nRepaired.\n"
    assert "<stdin>\nexpected Hello, World!\n</stdin>" in model.requests[0].texts()[-1]


async def test_code_that_stays_broken_is_given_up(repository: Path) -> None:
    status, _, model = await play(recipe("tests fail"), repository, *(reply(says("No.")) for _ in range(3)))
    assert (status, len(model.requests)) == (1, 3)


async def test_a_commit_message_is_written(repository: Path) -> None:
    (repository / "greet.sh").write_text(REPAIRED)
    git(repository, "add", ".")
    status, _, _ = await play(recipe("commit message"), repository, reply(says("Greet the first argument")))
    assert (status, git(repository, "log", "-1", "--format=%B").strip()) == (0, "Greet the first argument")


async def test_a_job_goes_on_with_a_thread_and_with_a_copy_of_it(repository: Path) -> None:
    replies = [reply(says(words)) for words in ("Split it.", "The first half.", "Then it grows.")]
    status, _, model = await play(recipe("exec resume"), repository, *replies)
    assert (status, (repository / "first.md").read_text()) == (0, "The first half.\n")
    assert (repository / "whole.md").read_text() == "Then it grows.\n"
    assert "Which part is the first?" in model.requests[1].texts()[-1]
    assert len([*repository.parent.glob("home/sessions/**/rollout-*.jsonl")]) == 2
