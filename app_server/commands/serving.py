"""What servers are started with: `app-server`, which is what no command means, and `app-server acp`."""

from __future__ import annotations

from typing import Final

from app_server.commands.options import CommandCode, add_server_options

_SERVER: Final = CommandCode(add_server_options, run=None)

CODE: Final = {"app-server": _SERVER, "acp": _SERVER}
