"""The files of a world's user: what people write into the workspace between and during turns, and the rule that no
restore takes any of it away. It does not ask the product whose a line is: it knows which lines people wrote.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.habits import SHARED

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

NOTES = "notes of the user"


@dataclass(slots=True)
class UsersFiles:
    """What people wrote into the workspace."""

    lines: dict[bytes, bool] = field(default_factory=dict)
    """Each line, with whether a command may have run when it was written."""
    uncertain_restores: int = 0
    """Number of begins and ends of restores that include what changed while commands ran. An undo is one."""
    restoring: bool = False
    """Whether a restore is changing files."""
    changes: int = 0
    """Number of changes of files by restores."""
    before_kill: Mapping[str, bytes] = field(default_factory=dict)
    """Files before the restore in which the process was killed."""

    def write(self, world: "SimWorld", word: str) -> None:
        """Add a line to a file of the workspace, or to a new one."""
        folder, draws = Path(world.workspace), world.draws
        place = draws.pick("file of the user", [folder / NOTES, folder / SHARED, *files_in(folder)])
        line = f"line of the user {word}".encode()
        before = place.read_bytes() if place.exists() else b""
        after = draws.pick("place of the line", (before + line + b"\n", line + b"\n" + before))
        probe = world.root / "clock of the user"
        _let_time_pass(probe, _changed(probe))
        if draws.chance("an editor saves by renaming", 0.3):
            beside = world.root / "saved by an editor"
            beside.write_bytes(after)
            beside.rename(place)
        else:
            place.write_bytes(after)
        _let_time_pass(probe, place.stat().st_ctime_ns)
        busy = any(person.busy() or person.asking for person in world.people) or world.habits.terminals
        self.lines[line] = busy or world.commands.running > 0
        world.model.note("the user wrote a file")


def files_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file() and not each.is_symlink())


def contents_of(folder: Path) -> Mapping[str, bytes]:
    return {str(each): each.read_bytes() for each in files_in(folder)}


def users_lines(folder: Path) -> set[bytes]:
    """Return the lines of people that are on the disk."""
    lines = (line for place in files_in(folder) for line in place.read_bytes().splitlines())
    return {line for line in lines if line.startswith(b"line of the user ")}


def lost_lines(world: "SimWorld") -> Iterator[str]:
    """Yield the lines of people that are gone. Only a line that was written while a command may have run can go, and
    only with a restore that includes such lines.
    """
    files = world.record.files
    there = users_lines(Path(world.workspace))
    for line, beside_commands in files.lines.items():
        if line not in there and not (beside_commands and files.uncertain_restores):
            yield f"{line.decode()} is gone, which only the user wrote"


def _changed(path: Path) -> int:
    """Change a file, and return the time of that by the clock of the file system."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, b".")
        return os.fstat(fd).st_ctime_ns
    finally:
        os.close(fd)


def _let_time_pass(probe: Path, since: int) -> None:
    """Wait for the clock of the file system, which is real and may stand still for milliseconds: whether a person wrote
    before or after a command must not be left to it.
    """
    while _changed(probe) <= since:
        pass
