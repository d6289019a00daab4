"""Worktrees of a batch that are used again: no task finds anything that another one has left."""

import contextlib
import stat
from collections.abc import Mapping

import anyio
import pytest

from app_server.cli.batch import checkout
from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.checkout import Checkouts, TaskPlace
from app_server.cli.batch.worker_messages import Doing, Setup
from app_server.engine.config.config_values import CliOverrides
from app_server.engine.workspace.git.run_git import Git
from tests.support.batches import BatchWorld
from tests.support.world import PATH

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]

FILES = {"a.txt": "one\n", "run.sh": "#!/bin/sh\n", "sub/b.txt": "two\n", ".gitignore": "built\n*.o\n"}
LEFT = [
    "echo changed > a.txt",
    "printf 'ONE\\n' > a.txt; touch -r run.sh a.txt",
    "rm -r a.txt sub",
    "mkdir -p new/deep && touch new/deep/x",
    "mkdir built && touch built/x sub/c.o",
    "chmod +x a.txt; chmod -x run.sh; chmod 600 sub/b.txt",
    "chmod 777 sub",
    "chmod 000 sub",
    "mkdir empty",
    "rm a.txt && ln -s /etc/passwd a.txt",
    "rm -r sub && ln -s / sub",
    "rm a.txt && mkdir a.txt && touch a.txt/x",
    "rm -r sub && touch sub",
    "mkfifo pipe",
    "git init -q nested && touch nested/x",
    "rm .git",
    "git init -q elsewhere && mv elsewhere/.git /tmp/$$.git && echo gitdir: /tmp/$$.git > .git; rm -r /tmp/$$.git",
    "git add -A .; echo x >> a.txt; git commit -qam task",
    "git checkout -qb mine; echo x >> a.txt",
    "git update-index --assume-unchanged a.txt; echo x >> a.txt",
    "git rm -q --cached a.txt",
    "git config core.worktree /; echo x >> a.txt",
    "echo '*.txt text eol=crlf' > .gitattributes; rm a.txt",
]

NAMES = {
    f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
ENVIRONMENT = {"PATH": PATH, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **NAMES}


class Places:
    """Checkouts of tasks at one commit."""

    def __init__(self, batch: BatchWorld) -> None:
        self._batch, self._repository = batch, batch.repository(files=FILES)
        self.commit = batch.git(self._repository, "rev-parse", "HEAD")
        scratch = batch.root / "work" / "worker"
        scratch.mkdir(parents=True)
        doing = Doing(overrides=CliOverrides(), checkout="worktree")
        setup = Setup(folder="/", out=str(batch.out), shared=True, doing=doing, seconds=60.0, keep="none")
        self.folder = scratch
        self._checkouts = Checkouts(Git(batch.home), setup, scratch, scratch.parent, {})

    def commit_more(self) -> None:
        """Make another commit, with which the next tasks begin."""
        self._batch.git(self._repository, "commit", "--allow-empty", "-qm", "more")
        self.commit = self._batch.git(self._repository, "rev-parse", "HEAD")

    async def visit(self, id: str, script: str = "") -> tuple[TaskPlace, Mapping[str, object]]:
        """Run a script in the place of a task. Return the place, and its contents before the script."""
        task = Task(id=id, prompt="x", repo=str(self._repository), ref=self.commit)
        async with self._checkouts.place(task) as place:
            found = contents(place)
            await anyio.run_process(("sh", "-ec", script), cwd=place.folder, env=ENVIRONMENT)
            with contextlib.suppress(OSError):  # a folder that cannot be read
                await self._checkouts.patch(place)
        return place, found


def contents(place: TaskPlace) -> Mapping[str, object]:
    """Return everything that a task finds: files, folders, links, with their modes and contents."""
    found: dict[str, object] = {}
    for path in sorted(place.folder.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(place.folder))
        content = path.readlink() if path.is_symlink() else path.read_text() if path.is_file() else None
        found[name] = stat.filemode(status.st_mode), content if name != ".git" else None
    return found


@pytest.mark.parametrize("script", LEFT)
async def test_no_task_finds_what_another_one_has_left(batch: BatchWorld, script: str) -> None:
    places = Places(batch)
    _, made = await places.visit("first", script)
    _, found = await places.visit("second", "echo more >> run.sh")
    assert found == made
    third, found = await places.visit("third")
    assert found == made
    assert third.repository is not None
    assert (third.repository.git_dir / "HEAD").read_text().strip() == places.commit


async def test_what_a_task_changes_in_files_alone_costs_no_new_worktree(batch: BatchWorld) -> None:
    places = Places(batch)
    first, _ = await places.visit("first", "echo x > a.txt; rm -r sub; touch new; mkdir built; touch built/x")
    second, _ = await places.visit("second", "git commit -qam task --allow-empty")
    third, _ = await places.visit("third")
    assert first is second
    assert third is not second, "it has another HEAD"


async def test_so_many_worktrees_wait_for_a_task_of_their_commit(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "SPARE", 1)
    places = Places(batch)
    for n in range(3):
        await places.visit(f"t{n}")
        places.commit_more()
        assert len(list(places.folder.iterdir())) == 2, "a worktree and its repository"
