"""Why a patch cannot be applied. Raised before anything is written; the text is fit for model and user."""

from __future__ import annotations

import os

from app_server.core.errors import CoreError


class PatchError(CoreError):
    """The patch cannot be applied to the files as they are; nothing was changed."""

    def for_model(self) -> str:
        """What the model reads in place of the tool's output."""
        return f"apply_patch verification failed: {self}"


class PatchSyntaxError(PatchError):
    """The text is no patch. Lines are counted from 1, the line `*** Begin Patch`."""


def os_reason(error: OSError) -> str:
    """An operating system's refusal in the words that models of this tool know."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} (os error {error.errno})"
