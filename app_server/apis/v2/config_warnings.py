"""What the user should know about the settings, sent when a client first speaks this API, and not again by threads."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.apis.v2.notify import ThreadNotifier
from app_server.core.config.types import SettingsWarning
from app_server.core.errors import ConfigError, FilePosition
from protocol.v2 import notifications
from protocol.v2.errors import ConfigWarningNotification, TextPosition, TextRange


class ConfigWarnings:
    """Of one connection."""

    def __init__(self, notifier: ThreadNotifier) -> None:
        self._notifier = notifier
        self._sent: set[str] = set()

    def send(self, source: ConfigSource) -> None:
        """Settings with which no thread can begin are reported here too: a client may ask for no thread for long."""
        try:
            warnings = source.load().notices.warnings
        except ConfigError as error:
            self._notifier.notify(notifications.CONFIG_WARNING, _of_error(error))
            return
        for warning in warnings:
            self._sent.add(str(warning))
            self._notifier.notify(notifications.CONFIG_WARNING, _of_warning(warning))

    def sent(self, warning: str) -> bool:
        return warning in self._sent


def _of_warning(warning: SettingsWarning) -> ConfigWarningNotification:
    place = warning.place
    return ConfigWarningNotification(
        summary=warning.text,
        path=None if place is None else place.path,
        range=None if place is None else _range(place),
    )


def _of_error(error: ConfigError) -> ConfigWarningNotification:
    position = error.position
    return ConfigWarningNotification(
        summary="The configuration cannot be used; threads cannot begin until it is corrected.",
        details=str(error),
        path=None if position is None else position.path,
        range=None if position is None else _range(position),
    )


def _range(position: FilePosition) -> TextRange:
    """Where the value begins; nothing here knows where it ends."""
    at = TextPosition(line=position.line, column=position.column)
    return TextRange(start=at, end=at)
