"""A lasting setting of a thread is written in few modules, and nothing on its way drops it."""

import os
import subprocess
import sys

import pytest

from tests.support.source_modules import ROOT

pytestmark = [pytest.mark.scenario, pytest.mark.slow]

CASE = "tests/server/apis/v2/added_setting_case.py"


@pytest.mark.parametrize(
    ("left_out", "passes"),
    [("", True), ("app_server_protocol.rollout", False)],
    ids=["carried", "not stored"],
)
def test_a_field_that_is_added_to_the_declaration_is_carried(left_out: str, passes: bool) -> None:
    """The field is added to the declaration, to the stored line and to the shapes of an API: to no conversion."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.added_setting", CASE]
    environment = {**os.environ, "ADDED_SETTING_LEFT_OUT": left_out}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout[-4000:]
    assert "assert None == 'mint'" in done.stdout or passes, done.stdout[-4000:]
