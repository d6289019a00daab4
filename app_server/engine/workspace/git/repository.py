"""Reads a git repository's files without running git: its location, settings, HEAD and references, the git metadata of
a conversation, and the folders of a project.

It executes nothing of a repository and does not trust its files. It reads only regular files up to a maximum size, and
follows only names that git itself would write. In settings, it ignores includes, and everything after a syntax error.
It ignores bare repositories, because a folder in a working tree can imitate one.

Files for the agent are read only if both `.git`, as for git, and the files belong to the user or to root: otherwise any
user could instruct the model through a shared folder such as /tmp. Write permissions do not count, because on some file
systems every user has them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from app_server.engine.config.project_trust import confirmed_git_dir, marks_repository
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RootDir, read_named
from app_server_protocol.rollout import GitInfo

# These patterns are texts: `re` compiles them when the first repository is read.
_SECTION = r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]'
_KEY = r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?[ \t]*"
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


def parse_git_config(text: str) -> Mapping[str, str]:
    """Return the last value of each key, under names such as `remote.origin.url` (section and key in lower case)."""
    return dict(git_settings(text))


def git_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield each key with its value, in the order of the text."""
    section = ""
    at = 0
    while (at := _skip_blank(text, at)) < len(text):
        if text[at] == "[":
            match = re.compile(_SECTION).match(text, at)
            if match is None:
                break
            name = match[2]
            section = match[1].lower() + ("" if name is None else "." + re.sub(r"\\(.)", r"\1", name))
        else:
            match = re.compile(_KEY).match(text, at)
            if match is None or not section:
                break
        at = match.end()
        if text[match.start()] != "[":
            value, at = _value(text, at) if match[2] else ("true", at)
            yield f"{section}.{match[1].lower()}", value


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] in "#;":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif not (text[at].isspace() or text[at] == "\ufeff"):
            break
        else:
            at += 1
    return at


def _value(text: str, at: int) -> tuple[str, int]:
    """Return a value from its first character to the end of its line, and the index of that end."""
    out: list[str] = []
    keep = 0
    quoted = False
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if char == '"':
            quoted = not quoted
            keep = len(out)
        elif char == "\\" and at + 1 < len(text):
            at += 1
            if text[at] != "\n":
                out.append(_ESCAPES.get(text[at], text[at]))
                keep = len(out)
        elif char in "#;" and not quoted:
            at = at + len(text[at:].partition("\n")[0])
            break
        else:
            out.append(char)
            if quoted or not char.isspace():
                keep = len(out)
        at += 1
    return "".join(out[:keep]), at


MAX_FILE_BYTES = 64 * 1024
MAX_CONFIG_BYTES = 1024 * 1024
MAX_PACKED_REFS_BYTES = 16 * 1024 * 1024
MAX_REF_DEPTH = 5

_OBJECT_ID = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_REF_NAME = r"refs/(?!.*(?:^|/)\.)(?!.*\.\.)[^\x00-\x20\x7f~^:?*\[\\]+"


class Repository(Struct, frozen=True):
    """A working tree and its git directory, by their real paths. A linked worktree shares data in a separate common
    directory.
    """

    root: Path
    git_dir: Path
    common_dir: Path

    @property
    def objects_dir(self) -> Path:
        return self.common_dir / "objects"


def find_repository(folder: Path) -> Repository | None:
    """Return the repository whose working tree contains `folder`; None if there is none."""
    folder = Path(real_path(folder))
    for root in (folder, *folder.parents):
        entry = root / ".git"
        try:
            mode = entry.stat().st_mode
        except (OSError, ValueError):
            continue
        git_dir = Path(real_path(entry)) if stat.S_ISDIR(mode) else _linked_git_dir(entry)
        if git_dir is None or not os.path.isfile(git_dir / "HEAD"):
            continue
        shared = (read_small(git_dir / "commondir") or "").strip()
        common_dir = Path(real_path(git_dir / shared)) if shared else git_dir
        return Repository(root, git_dir, common_dir)
    return None


def _linked_git_dir(entry: Path) -> Path | None:
    """Return the target of a `.git` file of a worktree or a submodule; None if the file is no such file."""
    text = read_small(entry) or ""
    target = text.removeprefix("gitdir:").strip()
    if not text.startswith("gitdir:") or not target or "\n" in target or "\0" in target:
        return None
    return Path(real_path(entry.parent / target))


def config_of(repository: Repository) -> Mapping[str, str]:
    """Return the repository's own settings, without included files."""
    return parse_git_config(read_small(repository.common_dir / "config", MAX_CONFIG_BYTES) or "")


def is_own(repository: Repository) -> bool:
    """Return whether the git directory and its objects belong to this working tree: they are in it, without links, or
    in a repository that points back to it. A command can make a `.git` that leads anywhere.
    """
    marker = repository.root / ".git"
    if marker == repository.git_dir == repository.common_dir:
        confirmed = True
    elif marker.is_symlink():
        confirmed = False
    else:
        tree = config_of(repository).get("core.worktree")  # only a submodule has it
        confirmed = confirmed_git_dir(marker) == repository.common_dir or (
            tree is not None and real_path(repository.git_dir / tree) == str(repository.root)
        )
    try:
        with RootDir(repository.common_dir) as opened:
            return confirmed and stat.S_ISDIR(opened.stat("objects").st_mode)
    except OSError:
        return False


class Head(Struct, frozen=True):
    """The branch and commit that are checked out. An unborn branch has no commit; a detached HEAD has no branch."""

    branch: str | None
    commit: str | None


def read_head(repository: Repository) -> Head:
    text = (read_small(repository.git_dir / "HEAD") or "").strip()
    if not text.startswith("ref:"):
        return Head(None, text if re.fullmatch(_OBJECT_ID, text) else None)
    ref = text.removeprefix("ref:").strip()
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    if branch == ".invalid":
        # The content of HEAD in repositories with the reftable format, which this module does not read.
        return Head(None, None)
    return Head(branch, resolve_ref(repository, ref))


def resolve_ref(repository: Repository, ref: str) -> str | None:
    """Return the object id of a reference; None if there is none."""
    for _ in range(MAX_REF_DEPTH):
        if not re.fullmatch(_REF_NAME, ref):
            return None
        text = read_small(repository.git_dir / ref) or read_small(repository.common_dir / ref)
        if text is None:
            return _packed_ref(repository, ref)
        text = text.strip()
        if not text.startswith("ref:"):
            return text if re.fullmatch(_OBJECT_ID, text) else None
        ref = text.removeprefix("ref:").strip()
    return None


def _packed_ref(repository: Repository, ref: str) -> str | None:
    packed = read_small(repository.common_dir / "packed-refs", MAX_PACKED_REFS_BYTES) or ""
    match = re.search(rf"^({_OBJECT_ID}) {re.escape(ref)}$", packed, re.MULTILINE)
    return match[1] if match else None


def read_small(path: Path, limit: int = MAX_FILE_BYTES) -> str | None:
    """Return the text of a regular file within the limit; None for anything else."""
    try:
        return read_named(path, limit).decode("utf-8", "replace")
    except OSError:
        return None


_WITH_USER = r"(?i)([a-z][a-z0-9+.-]*://)([^/?#]*)@"


def read_git_info(folder: Path) -> GitInfo | None:
    """Return commit, branch and remote of the repository that contains `folder`; None if there is none."""
    repository = find_repository(folder)
    if repository is None:
        return None
    head = read_head(repository)
    return GitInfo(
        commit_hash=head.commit,
        # A branch without a commit does not exist yet.
        branch=head.branch if head.commit else None,
        repository_url=origin_url(repository),
    )


def origin_url(repository: Repository) -> str | None:
    """Return the URL of `origin` without credentials; None if there is none."""
    values = config_of(repository)
    url = values.get("remote.origin.url")
    return without_credentials(_rewritten(url, values)) if url else None


def _rewritten(url: str, values: Mapping[str, str]) -> str:
    """Return the URL after the repository's `url.BASE.insteadOf` rules. The longest prefix wins."""
    rules = [
        (prefix, key.removeprefix("url.").removesuffix(".insteadof"))
        for key, prefix in values.items()
        if key.startswith("url.") and key.endswith(".insteadof") and url.startswith(prefix)
    ]
    prefix, base = max(rules, key=lambda rule: len(rule[0]), default=("", ""))
    return base + url.removeprefix(prefix)


def without_credentials(url: str) -> str:
    """Return the URL without its password; over http also without the user, which may be a token."""
    match = re.match(_WITH_USER, url)
    if match is None:
        return url
    scheme, user = match[1], match[2].partition(":")[0]
    keeps_user = user and scheme.lower() not in ("http://", "https://")
    return scheme + (f"{user}@" if keeps_user else "") + url[match.end() :]


OnRefusal = Callable[[str], None]
"""Callback that gets a message for the user about files that were not read."""


class Project(Struct, frozen=True):
    """Folders that may contain files for the agent."""

    folders: list[Path]
    """Folders from the repository's root to the working directory, by their real paths."""
    owner: int | None = None
    """User id of another user, whose repository the user has declared safe; None if there is none."""


def belongs_to_another(facts: os.stat_result, owner: int | None = None) -> bool:
    """Return whether a file belongs to another user: not to this user, to root, or to the owner of a safe
    repository.
    """
    return facts.st_uid not in (os.geteuid(), 0, owner)


def project_of(
    cwd: Path, purpose: str, on_refusal: OnRefusal, is_safe: Callable[[Path], bool] = lambda folder: False
) -> Project:
    """Return the folders from the repository's root to `cwd`. It is `cwd` alone outside of a repository, and in another
    user's repository, unless `is_safe` accepts its root.

    `purpose` names the files that are looked for, in the message about a repository of another user.
    """
    cwd = Path(real_path(cwd))
    chain = [cwd]
    for directory in (cwd, *cwd.parents):
        if directory != cwd:
            chain.append(directory)
        marker = directory / ".git"
        if marks_repository(marker):
            owner = _other_owner(marker)
            if owner is None or is_safe(directory):
                return Project(chain[::-1], owner)
            on_refusal(
                f"{marker} belongs to another user: {purpose} above {cwd} are not looked for. If you trust it:"
                f" `git config --global --add safe.directory {directory}`."
            )
            break
    return Project([cwd])


def _other_owner(path: Path) -> int | None:
    """Return the id of the other user who owns the entry itself, not the target of a link; None for this user and
    root.
    """
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return None
    return None if owner in (os.geteuid(), 0) else owner
