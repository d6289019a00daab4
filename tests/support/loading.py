"""What a process has imported."""

import subprocess
import sys


def modules_loaded_by(code: str) -> set[str]:
    """The modules that a new process has imported after this code, which prints nothing."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())
