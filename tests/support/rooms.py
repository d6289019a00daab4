"""The structure of the product, measured: entries of `app_server`, rooms, arrows between them, and names that are gone.

`python -m tests.support.rooms` prints it; `tests/test_rooms.py` holds the bounds.

A room is the protocol, `cli`, `client`, the engine, or a package of `server`; modules directly in `server`, with
`bootstrap`, are the room `server`. Modules directly in `app_server` belong to no room. There is an arrow where a module
of a room imports one of another room, also inside a function.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Final

from tests.support.source_modules import SOURCES, imports, modules, nodes

NOT_ENTRIES: Final = {"__init__.py", "__pycache__", "py.typed"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OLD_MODULES: Final = _words(
    """
    places shared errands headless startup machine identity beneath masking assembly lazy_engine keeping so_far
    unused caller opening openings remedies own_programs pictures handle model_calls assemble contract planted
    fence kinds lasting probing light prepared offer faults stdio_link http_link interfaces exchange item_bytes
    payload listing pages stored_events news thread_work_handlers fold shown words meeting reading structs talking
    upkeep building serving doors http_door visits reception lifetime looking server_places socket_place starting
    nearby explained written_calls room rule_book codex_words codex_openings
    """
)
"""Names that modules and packages had."""

OLD_CLASSES: Final = _words(
    """
    Door Doors HttpDoor Visit Arrival KeptVisit Reception Speech Nonsense HeldPlace SocketPlace KeptPlace
    PlaceRefused Found Reload Successor Predecessor HandedOver Together Lifetime Brought NobodyListens Alone Room
    LongMessages Work Unattended IdleUnloader Seat FollowedApi Followers Joining SoFar GrowingItem Copy
    OpenQuestion Questions ClientQuestion ClientLine Outgoing Backlog Patience Capacity Missed State Asked
    SharedLines SharedPlace StreamedText TextPart Repeats Written TurnWishes UserWords ToolTurn Services
    CallersModel CurrentCaller Caller RequestShape TurnSteps OpenTexts NoRollout CutText Leftover TakenBack
    NotedNow ThreadNotes LatestLines GivenHistory Opened Decide Answer KeepRule AllowFiles Inquiry Discreet
    GatheringStream RouteTable McpLink MachineSandbox Confinement RuleBook GoalKeeper ClientPlace SettingsPlace
    Launch Handover Inbox NewsFilter ThreadNews SessionNews Ticket LinePacer ShownCall NotDone RequestRoom
    WindowRoom
    """
)
"""Names that classes had. The wire has a class `Turn`."""

OLD_FUNCTIONS: Final = _words(
    """
    hears_all has_folder asked_last untold unloads opened_in taken_back continue_elsewhere goes_on_from
    find_lasting tell_untold make_adapter prime alike begin_and_end errand
    """
)
"""Names that functions, fields and parameters had."""


def entries() -> list[str]:
    """Return the names of the packages and modules directly in `app_server`."""
    named = (path for path in SOURCES[0].iterdir() if path.name not in NOT_ENTRIES)
    # A folder that a checkout has left behind has compiled files only.
    return sorted(path.name for path in named if path.is_file() or any(path.rglob("*.py")))


def room_of(module: str) -> str | None:
    """Return the room of a module; None if it belongs to no room."""
    match module.split("."):
        case ["app_server_protocol", *_]:
            return "protocol"
        case ["app_server", "server", package, _, *_] if package != "bootstrap":
            return package
        case ["app_server", ("cli" | "client" | "engine" | "server") as room, *_]:
            return room
    return None


@cache
def arrows() -> Mapping[tuple[str, str], list[str]]:
    """Return the pairs of rooms of which the first imports the second, with the imports."""
    found = defaultdict(list)
    for module in sorted(modules()):
        for imported in sorted(imports(module)):
            above, below = room_of(module), room_of(imported)
            if above is not None and below is not None and above != below:
                found[above, below].append(f"{module} imports {imported}")
    return found


def rooms() -> list[str]:
    return sorted(
        {room for module in modules() if (room := room_of(module)) is not None and _is_whole(module)}
    )


def _is_whole(module: str) -> bool:
    """Return whether a module is more than the `__init__` of a package of `server`, which `room_of` cannot tell."""
    return modules()[module].name != "__init__.py"


def old_names() -> list[str]:
    """Return where a name of the product is one that is gone."""
    found = [
        module
        for module in modules()
        if any(part in OLD_MODULES for part in module.split(".")[1:] if part != "shared")
    ]
    for module in modules():
        for node in nodes(module):
            match node:
                case ast.ClassDef(name=name) if name in OLD_CLASSES:
                    found.append(f"{module}: class {name}")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                    if name in OLD_FUNCTIONS:
                        found.append(f"{module}: {name}")
                case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) if name in OLD_FUNCTIONS:
                    found.append(f"{module}: {name}")
    return sorted(set(found))


def shared_module_names() -> dict[str, int]:
    """Return the names that more than two modules have, and how many."""
    names = Counter(path.stem for path in modules().values() if not path.stem.startswith("__"))
    return {name: count for name, count in names.items() if count > 2}


def report() -> str:
    lines = [
        f"entries: {len(entries())}: {', '.join(entries())}",
        f"rooms: {len(rooms())}: {', '.join(rooms())}",
        f"arrows: {len(arrows())}",
        *(
            f"  {above} -> {below}: {len(found)} imports, as {found[0]}"
            for (above, below), found in sorted(arrows().items())
        ),
        f"old names: {old_names()}",
        f"names of more than two modules: {shared_module_names()}",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(report())
