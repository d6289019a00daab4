"""The git information in a conversation's metadata. Reads a few small files, and runs no git."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from app_server.core.git.repository import Repository, config_of, find_repository, read_head
from app_server.core.git.revision import Revision

_WITH_USER = re.compile(r"([a-z][a-z0-9+.-]*://)([^/?#]*)@", re.IGNORECASE)


def read_git_info(folder: Path) -> Revision | None:
    """Commit, branch and remote of the repository that contains `folder`; None outside of one."""
    repository = find_repository(folder)
    if repository is None:
        return None
    head = read_head(repository)
    return Revision(
        commit_hash=head.commit,
        # A branch without a commit does not exist yet.
        branch=head.branch if head.commit else None,
        repository_url=origin_url(repository),
    )


def origin_url(repository: Repository) -> str | None:
    """The URL of `origin`, without credentials."""
    values = config_of(repository)
    url = values.get("remote.origin.url")
    return without_credentials(_rewritten(url, values)) if url else None


def _rewritten(url: str, values: Mapping[str, str]) -> str:
    """The URL after the repository's `url.BASE.insteadOf` rules: the longest prefix wins."""
    rules = [
        (prefix, key.removeprefix("url.").removesuffix(".insteadof"))
        for key, prefix in values.items()
        if key.startswith("url.") and key.endswith(".insteadof") and url.startswith(prefix)
    ]
    prefix, base = max(rules, key=lambda rule: len(rule[0]), default=("", ""))
    return base + url.removeprefix(prefix)


def without_credentials(url: str) -> str:
    """The URL without its password; over http also without the user, which may be a token."""
    match = _WITH_USER.match(url)
    if match is None:
        return url
    scheme, user = match[1], match[2].partition(":")[0]
    keeps_user = user and scheme.lower() not in ("http://", "https://")
    return scheme + (f"{user}@" if keeps_user else "") + url[match.end() :]
