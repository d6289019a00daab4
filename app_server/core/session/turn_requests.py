"""What an API that follows turns asks of a session: to begin one, to join the one that runs, to end it by its id.

The words are in the model's form already, so that whether they join a turn is decided at one moment, with nothing to
wait for in between.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.core.errors import CoreError
from app_server.core.turn.items import UserWords
from app_server.core.turn.settings import SettingsChange
from protocol.base import Json
from protocol.engine.events import TurnKind
from protocol.responses import ResponseItem


class StartTurn(Struct, frozen=True, kw_only=True):
    """Begin a turn with these words. The settings hold for it and for later turns, the schema for it alone."""

    words: UserWords | None
    """None: nothing was said."""
    change: SettingsChange = SettingsChange()
    output_schema: Json = None


class ChangeSettings(Struct, frozen=True):
    """For the turns to come."""

    change: SettingsChange
    now: bool = False
    """What commands and patches may do changes in the turn that runs, too, from the next one on."""


class ContinueGoal(Struct, frozen=True):
    """Begin a turn for the goal, if there is still one to work for and nothing else to do."""


class AddItems(Struct, frozen=True):
    """Items for the history, which the model sees with its next request."""

    items: tuple[ResponseItem, ...]


class RunShell(Struct, frozen=True):
    """A command that the user typed. It runs without the sandbox, within the turn that runs or in one of its own; the
    model is informed.
    """

    command: str
    timeout_ms: int


class InterruptTurn(Struct, frozen=True):
    """End this turn; nothing happens where it has ended already."""

    turn_id: str


TurnRequest = StartTurn | ChangeSettings | AddItems | RunShell | InterruptTurn | ContinueGoal


class NoActiveTurn(CoreError):
    """Nothing runs that could be steered or interrupted."""


class OtherTurnActive(CoreError):
    """Another turn runs than the client expected."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected active turn id `{expected}` but found `{found}`")


class TurnNotSteerable(CoreError):
    """A turn of this kind takes no words."""

    def __init__(self, kind: TurnKind) -> None:
        super().__init__(f"cannot steer a {kind.value} turn")
        self.kind = kind
