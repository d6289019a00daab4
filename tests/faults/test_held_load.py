"""The held load in small: nothing is lost, nothing is out of order. `python -m tests.faults.held_load` is the
whole."""

import pytest

from tests.faults.held_load import Shape, play
from tests.faults.rig import LONG
from tests.support.world import SCRIPT

pytestmark = pytest.mark.slow


def test_every_delta_of_many_streams_arrives_in_order() -> None:
    result = play("app-server", [SCRIPT, "app-server"], Shape() if LONG else Shape(20, 200, 2))
    assert result.lost == 0
    assert result.wrong == ()
    assert result.megabytes < 400
