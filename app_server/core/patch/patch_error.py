"""Why a patch cannot be applied. Raised before anything is written; the model and the user may read the text."""

from __future__ import annotations

import os

from app_server.core.errors import CoreError


class PatchError(CoreError):
    """The patch does not apply to the current files; nothing was changed."""

    def for_model(self) -> str:
        """What the model reads in place of the tool's output."""
        return f"apply_patch verification failed: {self}"


class PatchSyntaxError(PatchError):
    """The text is not a patch. Line 1 is `*** Begin Patch`."""


def os_reason(error: OSError) -> str:
    """An error of the operating system in the wording that models know from this tool."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} (os error {error.errno})"
