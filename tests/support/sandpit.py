"""A repository for tests, made with the installed git."""

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app_server.engine.workspace.git.ghost import Snapshots, TakenSnapshot
from app_server.engine.workspace.git.run_git import Git
from app_server_protocol.responses import GhostCommit
from tests.support.recorded_turns import RecordedTurns

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_ALLOW_PROTOCOL": "file",
}


@dataclass(frozen=True, slots=True)
class Sandpit:
    """Folder with a repository in it, and a scratch folder beside it."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "work"

    @property
    def git(self) -> Git:
        return Git(self.base / "home")

    @property
    def moment(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def taken(self, folder: str = "") -> TakenSnapshot:
        """Take the snapshot at the begin of a turn."""
        taken = await Snapshots(self.git).take(self.root / folder, self.moment)
        assert isinstance(taken, TakenSnapshot), taken
        return taken

    async def ghost(self, folder: str = "") -> GhostCommit:
        """Take the snapshot, and return its commit."""
        taken = await self.taken(folder)
        assert taken.commit is not None
        return taken.commit

    @property
    def turns(self) -> RecordedTurns:
        """Turns in the working tree that are recorded."""
        return RecordedTurns(self.root, self.base / "home")

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.root, env=_ENVIRONMENT, capture_output=True, check=True
        )
        return os.fsdecode(done.stdout).strip()

    def write(self, path: str, text: str = "x\n") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def commit(self, **files: str) -> str:
        for path, text in files.items():
            self.write(path.replace("__", "/"), text)
        self.run("add", "--all")
        self.run("commit", "-q", "--allow-empty", "-m", "m")
        return self.run("rev-parse", "HEAD")

    def state(self) -> tuple[str, ...]:
        """Return the state that a snapshot must not change."""
        index = (self.root / ".git" / "index").read_bytes().hex()
        head = (self.root / ".git" / "HEAD").read_text()
        return index, head, self.run("for-each-ref"), self.run("reflog", "--all")
