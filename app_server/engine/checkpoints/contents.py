"""Finds contents of files by their object ids: in the folder of a thread's checkpoints, or in the repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import anyio

from app_server.engine.checkpoints.kept_files import MAX_CONTENT_BYTES, CheckpointFolder, digest_of
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.repository import Repository
from app_server.engine.workspace.git.run_git import TIME_LIMIT, Git

_IDS: Final = frozenset("0123456789abcdef")


class Contents:
    """The contents that one restore may need."""

    def __init__(self, folder: CheckpointFolder, git: Git, repositories: Sequence[Repository]) -> None:
        self._folder, self._git, self._repositories = folder, git, repositories
        self._sizes: dict[str, int] = {}
        """Sizes of the contents that only a repository has."""
        self._kept: set[str] = set()

    async def find(self, digests: Iterable[str]) -> set[str]:
        """Return those of the object ids whose content can be read."""
        wanted = {each for each in digests if len(each) in (40, 64) and _IDS.issuperset(each)}
        self._kept |= await run_in_thread(self._folder.has, wanted)
        for repository in self._repositories:
            missing = sorted(wanted - self._kept - self._sizes.keys())
            if missing:
                await self._find_in(repository, missing)
        return wanted & (self._kept | self._sizes.keys())

    async def _find_in(self, repository: Repository, digests: Sequence[str]) -> None:
        names = b"".join(each.encode() + b"\n" for each in digests)
        try:
            with anyio.fail_after(TIME_LIMIT):
                output = await self._git.output(repository, ["cat-file", "--batch-check"], names)
        except (GitError, TimeoutError):
            return
        for digest, line in zip(digests, output.splitlines(), strict=False):
            parts = line.split()
            if len(parts) == 3 and parts[1] == b"blob" and int(parts[2]) <= MAX_CONTENT_BYTES:
                self._sizes[digest] = int(parts[2])

    async def read(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of object ids that `find` has found. Those that cannot be read any more are left out."""
        wanted = dict.fromkeys(digests)
        found: dict[str, bytes] = {}
        for digest in wanted:
            if (
                digest in self._kept
                and (content := await run_in_thread(self._folder.get, digest)) is not None
            ):
                found[digest] = content
        for repository in self._repositories:
            for group in _groups([each for each in wanted if each not in found], self._sizes):
                found.update(await self._of_repository(repository, group))
        return found

    def digest_of(self, content: bytes, *, like: str) -> str:
        """Return the object id of a new content, of the same kind as another one."""
        return digest_of(content, sha256=len(like) == 64)

    async def _of_repository(self, repository: Repository, digests: Sequence[str]) -> dict[str, bytes]:
        names = b"".join(each.encode() + b"\n" for each in digests)
        try:
            output = await self._git.output(repository, ["cat-file", "--batch"], names)
        except GitError:
            return {}
        return dict(_parsed(output))


def _parsed(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the objects in the output of `git cat-file --batch`."""
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        parts = output[at:end].split()
        at = end + 1
        if len(parts) == 3:
            size = int(parts[2])
            if parts[1] == b"blob":
                yield parts[0].decode(), output[at : at + size]
            at += size + 1


def _groups(digests: Sequence[str], sizes: dict[str, int]) -> Iterator[list[str]]:
    """Yield the object ids in groups that can be read at once."""
    group: list[str] = []
    room = MAX_CONTENT_BYTES
    for digest in digests:
        if digest not in sizes:
            continue
        if group and sizes[digest] > room:
            yield group
            group, room = [], MAX_CONTENT_BYTES
        group.append(digest)
        room -= sizes[digest]
    if group:
        yield group
