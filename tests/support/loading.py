"""Modules that a process has imported."""

import subprocess
import sys


def modules_loaded_by(code: str) -> set[str]:
    """Return the modules that a new process has imported after it ran this code. The code must print nothing."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())
