"""Decides whether a patch is applied, needs an approval, or is refused. Pure: all paths are already resolved.

`WriteScope` says where patches may write without an approval. Some paths in it control what the user's tools execute
later: git directories, the agent's own settings, the server's home. These count as outside.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app_server.engine.support.real_path import within
from app_server.engine.workspace.patch.planner import Place
from app_server_protocol.policy import PROTECTED_FOLDERS, AskForApproval, FolderName

IGNORED_IN_NAMES = dict.fromkeys(
    (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
)
"""Characters that some file systems ignore when they compare names."""

OUTSIDE = "writing outside of the project; rejected by user approval settings"
EMPTY = "empty patch"


class WriteScope(Struct, frozen=True):
    """Places where patches may write without an approval, as absolute paths without links."""

    roots: tuple[str, ...] = ()
    protected_paths: tuple[str, ...] = ()
    """Paths inside the roots that are not writable, with everything below them."""
    reopened: tuple[str, ...] = ()
    """Roots that are inside protected paths."""
    protected_folders: tuple[FolderName, ...] = PROTECTED_FOLDERS
    """Names that are not writable anywhere below a root."""


class AskUser(Struct, frozen=True):
    reason: str | None = None
    """Reason for the question, without what the list of files already shows; None if there is nothing to add."""


class Reject(Struct, frozen=True):
    reason: str

    def for_model(self) -> str:
        return f"patch rejected: {self.reason}"


Verdict = AskUser | Reject | None
"""Decision about a patch; None if it is applied with the rights of the sandbox."""


def assess(places: Sequence[Place], approval: AskForApproval, scope: WriteScope | None) -> Verdict:
    """Decide about a patch. `places` are all paths of the patch. Without a `scope`, every path is writable."""
    if not places:
        return Reject(EMPTY)
    outside = [] if scope is None else [place for place in places if not may_write(place.real, scope)]
    protected = () if scope is None else scope.protected_folders
    match approval:
        case AskForApproval.UNTRUSTED:
            return AskUser(_reason(places, outside, protected))
        case _ if not outside:
            return None
        case AskForApproval.NEVER:
            return Reject(OUTSIDE)
        case AskForApproval.ON_REQUEST | AskForApproval.ON_FAILURE:
            return AskUser(_reason(places, outside, protected))


def may_write(real: str, scope: WriteScope) -> bool:
    inner = max((root for root in scope.reopened if within(real, root)), key=len, default="")
    if any(within(real, path) and len(path) > len(inner) for path in scope.protected_paths):
        return False
    return any(
        within(real, root) and not _is_protected(real, root, scope.protected_folders) for root in scope.roots
    )


def _is_protected(real: str, root: str, names: Sequence[str]) -> bool:
    """Return whether a path is protected by one of its names. Case is ignored, as on some file systems `.GIT` is
    `.git`.
    """
    below = real[len(root) :].split("/")
    return any(name.translate(IGNORED_IN_NAMES).casefold() in names for name in below)


def _reason(places: Sequence[Place], outside: Sequence[Place], names: Sequence[str]) -> str | None:
    sentences = [f"{place.label} is a link to {place.real}" for place in places if place.linked]
    protected = [
        place.label for place in outside if any(name in names for name in place.real.casefold().split("/"))
    ]
    if protected:
        sentences.append(f"{', '.join(protected)} can change what git or the agent will run")
    return "; ".join(sentences) or None
