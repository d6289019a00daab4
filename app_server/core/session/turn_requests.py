"""What an API that follows turns asks of a session: to begin one, to join the one that runs, to end it by its id.

The words are in the model's form already, so that whether they join a turn is decided at one moment, with nothing to
wait for in between.
"""

from __future__ import annotations

from app_server.core.errors import CoreError
from app_server.core.turn.settings import SettingsChange
from app_server.core.turn.user_words import UserWords
from protocol.base import Json
from protocol.engine.events import TurnKind
from protocol.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTurn:
    """Begin a turn with these words. The settings hold for it and for later turns, the schema for it alone."""

    words: UserWords | None
    """None: nothing was said."""
    change: SettingsChange = SettingsChange()
    output_schema: Json = None


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """For the turns to come."""

    change: SettingsChange


TurnRequest = StartTurn | ChangeSettings


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
