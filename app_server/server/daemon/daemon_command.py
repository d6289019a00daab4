"""`app-server daemon`: starts, shows, replaces and ends the shared server of the home. Answers are text, or JSON with
the names of codex.

Requests go over the server's socket, in a preface of their own. Does not load the server.
"""

from __future__ import annotations

import _socket
import json
import os
import plistlib
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from app_server import __version__
from app_server.engine.support.home import home_folder
from app_server.engine.support.socket_paths import SocketPaths, place_of_home
from app_server.server.bootstrap.standard_streams import complain
from app_server.server.daemon.addresses import SOCKETS
from app_server.server.proxy.connect import (
    NUMBER,
    Left,
    NoAnswer,
    NotRunning,
    ProxyRefused,
    as_json,
    ask,
    connect,
    is_there,
)
from app_server.server.proxy.probe_socket import signature
from app_server.server.proxy.server_options import OF_CLIENTS, option_words
from app_server.server.proxy.spawn import StartFailed, server_command, start_server

NOT_RUNNING = "notRunning"

LONGEST_END = 120
"""Time for the end of a server that does not report how long it may take, because it is of an earlier version, in
seconds.
"""

GRACE = 5
"""Additional time for a busy machine, and for the end of a process that was killed, in seconds."""

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

LAUNCHD = """
<!-- ~/Library/LaunchAgents/{label}.plist
     To use it: launchctl bootstrap gui/$UID ~/Library/LaunchAgents/{label}.plist -->
"""


class Daemon:
    """The shared server of a home, seen from another process."""

    def __init__(self, home: str, environment: Mapping[str, str], *, json: bool) -> None:
        """Begin without a request. `json` says whether answers are JSON, for programs."""
        self._home, self._environment, self._json = home, environment, json
        self._place: SocketPaths = place_of_home(home)

    def start(self, words: Sequence[str]) -> int:
        """Start the server, with `words` as its options; return the exit status."""
        try:
            started = start_server(self._place, words, self._environment, lambda: is_there(self._place))
        except StartFailed as error:
            complain("app-server daemon start", str(error), f"its log is {self._place.log}")
            return 1
        self._tell("started" if started else "alreadyRunning", self._status())
        return 0

    def show(self, *, whole: bool) -> int:
        """Print the status of the server if `whole`, else its version; return the exit status."""
        status = self._status()
        if status is not None and whole and not self._json:
            print(_for_people(status))  # noqa: T201
        else:
            more = status if whole and status is not None else {}
            self._tell(NOT_RUNNING if status is None else "running", status, **more)
        return 1 if status is None else 0

    def stop(self, *, now: bool) -> int:
        """End the server, and wait for its end as long as it may take. With `now`, a server that hangs is killed."""
        stopping = self._begin_stop(now=now)
        if stopping is not None and not stopping.wait():
            if not now:
                raise ProxyRefused(stopping.hangs())
            stopping.kill()
        self._tell(NOT_RUNNING if stopping is None else "stopped", None)
        return 0

    def reload(self, *, now: bool) -> int:
        """Start the installed version at the place of the running server. The old server serves its present clients
        until the last of them has left; with `now`, it ends at once.
        """
        succession = self._ask({"ask": "succession"})
        if succession is None:
            self._tell(NOT_RUNNING, None)
            return 1
        words, retired = succession[1]["words"], dict[str, Any]()

        def give_up() -> None:
            answered = self._ask({"ask": "retire", "now": now})
            retired.update({} if answered is None else answered[1])

        try:
            start_server(self._place, words, self._environment, lambda: False, give_up)
        except StartFailed as error:
            goes_on = "" if retired else "the server that runs goes on; "
            complain(
                "app-server daemon reload",
                f"the installed version does not start: {error}",
                f"{goes_on}the log is {self._place.log}",
            )
            return 1
        more = {"oldPid": retired["pid"], "oldClients": 0 if now else retired["clients"]} if retired else {}
        self._tell("reloaded", self._status(), **more)
        return 0

    def restart(self, words: Sequence[str], *, now: bool) -> int:
        """Replace the server. Running turns go on in the old server; the new one does not wait for them."""
        stopping = self._begin_stop(now=now)
        if stopping is not None and now and not stopping.wait():
            stopping.kill()
        return self.start(words)

    def unit(self, kind: str) -> int:
        print(UNITS[kind](server_command(self._place), self._home, self._place.socket), end="")  # noqa: T201
        return 0

    # --- requests
    def _status(self) -> dict[str, Any] | None:
        """Return the server's status; None if there is no server."""
        answered = self._ask({"ask": "status"})
        return None if answered is None else answered[1]["status"]

    def _begin_stop(self, *, now: bool) -> StoppingServer | None:
        """Return the server, which has released its place; None if there is no server."""
        answered = self._ask({"ask": "stop", "now": now})
        return None if answered is None else StoppingServer(*answered)

    def _ask(self, question: Mapping[str, object]) -> tuple[_socket.socket, dict[str, Any]] | None:
        try:
            connection = connect(self._place)
            line = ask(connection, (as_json({"preface": NUMBER, **question}) + "\n").encode())
        except (NotRunning, Left):
            return None
        except NoAnswer as error:
            raise ProxyRefused(self._silent(error)) from None
        answer = json.loads(line)
        if not answer.get("ok"):
            raise ProxyRefused(str(answer.get("reason")))
        return connection, answer

    def _silent(self, error: NoAnswer) -> str:
        """Return a sentence about a server that hangs or was stopped. No process is killed by an id from a file,
        because the id may be another process's by now.
        """
        signed = signature(self._place)
        pid = re.match(r"pid (\d+)", signed)
        if pid is None:
            return str(error)
        return f"{error}: it hangs or is stopped ({signed}); `kill -9 {pid[1]}` ends it; its log is {self._place.log}"

    def _tell(self, status: str, running: Mapping[str, Any] | None, **more: Any) -> None:
        answer: dict[str, Any] = {
            "status": status,
            "socketPath": self._place.socket,
            "cliVersion": __version__,
        }
        if running is not None:
            answer |= {"pid": running["pid"], "appServerVersion": running["version"]}
        print(json.dumps({**answer, **more}) if self._json else _in_words(answer))  # noqa: T201


SENTENCES = {
    "started": "the shared server was started",
    "alreadyRunning": "the shared server runs already",
    "running": "the shared server runs",
    "notRunning": "no shared server runs",
    "stopped": "the shared server has ended",
    "reloaded": "the shared server was replaced",
}


def _in_words(answer: Mapping[str, Any]) -> str:
    """Return an answer as text for a person."""
    lines = [SENTENCES[answer["status"]]]
    if "pid" in answer:
        lines[0] += f": version {answer['appServerVersion']}, pid {answer['pid']}"
    lines.append(f"its socket is {answer['socketPath']}")
    if answer.get("appServerVersion", answer["cliVersion"]) != answer["cliVersion"]:
        lines.append(f"this program has the version {answer['cliVersion']}")
    if answer.get("oldClients"):
        lines.append(f"clients that still use the old one (pid {answer['oldPid']}): {answer['oldClients']}")
    return "\n".join(lines)


class StoppingServer:
    """A server that is ending. Its process holds the other end of the connection as long as it lives."""

    def __init__(self, connection: _socket.socket, answer: Mapping[str, Any]) -> None:
        """Begin to wait. `answer` is the server's, with its process id and the time that its end may take."""
        self._connection, self._pid = connection, answer.get("pid")
        self._within = answer.get("within", LONGEST_END) + GRACE

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the process, for `seconds` or, if None, as long as it may take; return whether it has
        ended.
        """
        deadline = time.monotonic() + (self._within if seconds is None else seconds)
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if waiting.poll(left * 1000) and not self._hears():
                return True
        return False

    def _hears(self) -> bool:
        """Return whether the connection is still open. Input from the server is ignored."""
        try:
            return self._connection.recv(1024) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def hangs(self) -> str:
        """Return a sentence about a server that has not ended in time."""
        who = "the shared server" if self._pid is None else f"the shared server (pid {self._pid})"
        how = "" if self._pid is None else f"; `kill -9 {self._pid}` ends it"
        return f"{who} has given up its place, and has not ended within {self._within:g} s{how}"

    def kill(self) -> None:
        """Kill the process, by the id that the server has reported. Raises ProxyRefused if it reported none, or lives
        on.

        The connection is open, so the process is the one that answered, and no other has its id.
        """
        if self.wait(0.01):
            return
        if self._pid is None:
            raise ProxyRefused(self.hangs())
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        if not self.wait(GRACE):
            raise ProxyRefused(self.hangs())


def _for_people(status: Mapping[str, Any]) -> str:
    lines = [
        f"app-server {status['version']}, pid {status['pid']}, since {_time(status['started'])}",
        *(f"listening on {address}" for address in status["addresses"]),
        f"threads {status['threadsLoaded']}, turns running {status['turnsRunning']},"
        f" open questions {status['questionsOpen']}, commands running {status['commandsRunning']}",
    ]
    if status["memoryBytes"]:
        lines.append(f"memory {status['memoryBytes'] >> 20} MiB")
    if status["log"]:
        lines.append(f"log {status['log']}")
    lines += [
        f"client {each['number']}: {each['name'] or '?'}, pid {each['pid']}, since {_time(each['since'])},"
        f" unread {each['unreadBytes']} bytes"
        for each in status["clients"]
    ]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def run_daemon(command: str, options: Mapping[str, Any]) -> int:
    """Run one of the commands, with the options that were given, by name; return the exit status."""
    daemon = Daemon(home_folder(os.environ), os.environ, json=bool(options.get("json")))
    now = bool(options.get("now"))
    words = [*(f"--listen={each}" for each in options.get("listen", ())), *option_words(options, OF_CLIENTS)]
    try:
        match command:
            case "start":
                return daemon.start(words)
            case "status":
                return daemon.show(whole=True)
            case "version":
                return daemon.show(whole=False)
            case "stop":
                return daemon.stop(now=now)
            case "reload":
                return daemon.reload(now=now)
            case "restart":
                return daemon.restart(words, now=now)
            case "unit":
                return daemon.unit(options["manager"])
            case _:
                raise AssertionError(command)
    except ProxyRefused as error:
        complain(f"app-server daemon {command}", str(error))
        return 1


def systemd_unit(command: Sequence[str], home: str, socket: str) -> str:
    """Return both files of a socket-activated service, one after the other."""
    return SYSTEMD.format(
        label=LABEL,
        socket=socket.replace("%", "%%"),
        home=_quoted(f"CODEX_HOME={home}"),
        command=" ".join(_quoted(word, in_command=True) for word in command),
    )


def _quoted(word: str, *, in_command: bool = False) -> str:
    """Quote a word for systemd, which gives `%` a meaning everywhere, and `$` in commands."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if in_command:
        text = text.replace("$", "$$")
    return f'"{text}"' if any(c in text for c in " \t'\"\\;") else text


def launchd_unit(command: Sequence[str], home: str, socket: str) -> str:
    """Return the property list of a socket-activated agent."""
    unit = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": {"CODEX_HOME": home},
        "Sockets": {SOCKETS: {"SockPathName": socket, "SockPathMode": 0o600}},
    }
    return plistlib.dumps(unit, sort_keys=False).decode().replace("\n", LAUNCHD.format(label=LABEL), 1)


UNITS = {"systemd": systemd_unit, "launchd": launchd_unit}
