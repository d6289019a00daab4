"""The launcher's dataclasses behave as the standard ones do, as far as it uses them, and load little."""

import subprocess
import sys
from pathlib import Path

import pytest

from app_server.core.sandbox.confine.light_dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2


@dataclass(slots=True)
class Line:
    start: Point
    names: list[str] = field(default_factory=list)
    length: int = field(init=False)
    _open: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        self.length = self.start.x + self.start.y


def test_values_and_defaults() -> None:
    line, other = Line(Point(1)), Line(start=Point(3, y=4), names=["a"])
    assert (line.start.y, line.names, line.length, line._open) == (2, [], 3, True)
    assert (other.start.x, other.names, other.length) == (3, ["a"], 7)
    assert line.names is not Line(Point(1)).names


def test_equality_hash_and_changed_copies_of_frozen_ones() -> None:
    assert Point(1) == Point(1, 2) == replace(Point(5), x=1)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2
    assert Point(1) != Point(2)
    assert Line(Point(1)) != Line(Point(1))


@pytest.mark.parametrize("values", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_arguments(values: tuple[tuple[int, ...], dict[str, int]]) -> None:
    with pytest.raises(TypeError):
        Point(*values[0], **values[1])


def test_the_launcher_loads_no_modules_that_take_long() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); import app_server.core.launcher.main; print(*sys.modules)"
    )
    root = str(Path(__file__).parents[3])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True
    )
    assert not {"dataclasses", "inspect", "ast", "typing", "re"} & set(ran.stdout.split())
