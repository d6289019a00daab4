"""Units for service managers."""

import plistlib
import shlex

from app_server.server.daemon.addresses import SOCKETS
from app_server.server.daemon.daemon_command import launchd_unit, systemd_unit

COMMAND = ("/opt/my tools/python", "-m", "app_server", "--listen", "unix://")
HOME, SOCKET = "/home/a user/100%", "/home/a user/100%/app-server-control/app-server.sock"


def test_systemd_gets_words_that_mean_what_they_say() -> None:
    lines = dict(
        line.split("=", 1) for line in systemd_unit(COMMAND, HOME, SOCKET).splitlines() if "=" in line
    )
    assert lines["ListenStream"] == SOCKET.replace("%", "%%")
    assert shlex.split(lines["ExecStart"]) == list(COMMAND)
    assert shlex.split(lines["Environment"]) == [f"CODEX_HOME={HOME}".replace("%", "%%")]
    assert (lines["SocketMode"], lines["DirectoryMode"]) == ("0600", "0700")


def test_words_that_systemd_would_expand_are_kept() -> None:
    unit = systemd_unit(("/bin/$HOME/x", 'say "hi"', "a\\b"), "/h", "/h/s")
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert line == 'ExecStart=/bin/$$HOME/x "say \\"hi\\"" "a\\\\b"'


def test_launchd_gets_a_property_list() -> None:
    unit = plistlib.loads(launchd_unit((*COMMAND, "<&>"), HOME, SOCKET).encode())
    assert unit["ProgramArguments"] == [*COMMAND, "<&>"]
    assert unit["EnvironmentVariables"] == {"CODEX_HOME": HOME}
    assert unit["Sockets"][SOCKETS] == {"SockPathName": SOCKET, "SockPathMode": 0o600}
