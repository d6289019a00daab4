"""What a shared server loads before it serves anybody."""

import subprocess
import sys

EXTRAS = ("ray", "rich", "prompt_toolkit", "starlette", "uvicorn", "opentelemetry", "shtab", "httpx")

LOADS = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # as where it is not installed
from app_server.shared.loading import load_everything
load_everything()
before = set(sys.modules)
import app_server.apis.v2.handlers.thread_list, app_server.apis.acp.routes, app_server.core.shell.script
print(sorted(set(sys.modules) - before))
"""


def test_everything_of_a_server_is_loaded_and_nothing_of_an_extra() -> None:
    done = subprocess.run((sys.executable, "-c", LOADS), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
