"""Units with which a service manager listens for the shared server, and starts it with its first client. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from app_server.shared.addresses import SOCKETS

LABEL = "app-server"

SYSTEMD = """\
# ~/.config/systemd/user/{label}.socket
# To use it: systemctl --user enable --now {label}.socket
[Unit]
Description=The app-server that all clients of this user share

[Socket]
ListenStream={socket}
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target

# ~/.config/systemd/user/{label}.service
[Unit]
Description=The app-server that all clients of this user share
Requires={label}.socket

[Service]
Environment={home}
ExecStart={command}
TimeoutStopSec=90
"""

LAUNCHD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- ~/Library/LaunchAgents/{label}.plist
     To use it: launchctl bootstrap gui/$UID ~/Library/LaunchAgents/{label}.plist -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{label}</string>
  <key>ProgramArguments</key>
  <array>
{command}
  </array>
  <key>EnvironmentVariables</key>
  <dict>
    <key>CODEX_HOME</key>
    <string>{home}</string>
  </dict>
  <key>Sockets</key>
  <dict>
    <key>{sockets}</key>
    <dict>
      <key>SockPathName</key>
      <string>{socket}</string>
      <key>SockPathMode</key>
      <integer>384</integer>
    </dict>
  </dict>
</dict>
</plist>
"""


def systemd_unit(command: Sequence[str], home: str, socket: str) -> str:
    """Return both files of a socket-activated service, one behind the other."""
    return SYSTEMD.format(
        label=LABEL,
        socket=socket.replace("%", "%%"),
        home=_quoted(f"CODEX_HOME={home}"),
        command=" ".join(_quoted(word, in_command=True) for word in command),
    )


def _quoted(word: str, *, in_command: bool = False) -> str:
    """Quote a word for systemd, which takes `%` everywhere and `$` in commands for something else."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if in_command:
        text = text.replace("$", "$$")
    return f'"{text}"' if any(c in text for c in " \t'\"\\;") else text


def launchd_unit(command: Sequence[str], home: str, socket: str) -> str:
    """Return the property list of a socket-activated agent."""
    words = "\n".join(f"    <string>{escape(word)}</string>" for word in command)
    return LAUNCHD.format(
        label=LABEL, command=words, home=escape(home), socket=escape(socket), sockets=SOCKETS
    )
