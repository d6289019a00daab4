"""`app-server proxy`: the command that an editor starts instead of a server. It has no engine, and passes bytes to a
server.

If it cannot get a server, it becomes the server of its client, so that an editor works in any case.
"""

from __future__ import annotations

import os
import select
import sys

from app_server.engine.support.home import home_folder
from app_server.engine.support.socket_paths import BadSocketPath, SocketPaths, place_at
from app_server.server.proxy.connect import MOST_BYTES, NotRunning, ProxyRefused, is_there, meet, preface
from app_server.server.proxy.relay import DIED, Relay
from app_server.server.proxy.server_options import OF_CLIENTS, option_words

TYPE_CHECKING = False

if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Mapping
else:
    import _signal  # cheaper than `signal`, which makes enumerations first


class ServeDirectly(Exception):
    """Raised if this process has to serve the client itself; the text is a clause with the reason."""


def run_proxy(options: Mapping[str, object], environment: Mapping[str, str]) -> int:
    """Serve stdin and stdout by a shared server; return the exit status. `options` are the given ones, by name."""
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda *_: os._exit(0))  # the system closes the socket
    replace_closed()
    may_start = not options.get("no_start")
    try:
        connection = _meet(options, environment, may_start=may_start)
    except ServeDirectly as why:
        if not may_start:
            return _fail(str(why))
        notice(f"this client is served alone: {why}")
        return _serve_alone(options)
    except NotRunning:
        return _fail("no shared server is running")
    if Relay(connection, 0, 1).run() == DIED:
        return _fail("the shared server ended; threads are stored and can be resumed")
    return 0


def _meet(
    options: Mapping[str, object], environment: Mapping[str, str], *, may_start: bool
) -> _socket.socket:
    """Connect to a shared server. Raises ServeDirectly, and NotRunning if no server may be started."""
    line = _preface(options, environment)
    if len(line) > MOST_BYTES:
        raise ServeDirectly(f"the environment has more than {MOST_BYTES:,} bytes")
    try:
        sock = options.get("sock")
        place = place_at(home_folder(environment), None if sock is None else os.path.abspath(str(sock)))
        return meet(place, line, lambda: _start(place, environment, may_start=may_start))
    except (BadSocketPath, ProxyRefused) as error:
        raise ServeDirectly(str(error)) from None
    except OSError as error:
        raise ServeDirectly(error.strerror or str(error)) from None


def _start(place: SocketPaths, environment: Mapping[str, str], *, may_start: bool) -> None:
    if not may_start:
        raise NotRunning
    from app_server.server.proxy.spawn import StartFailed, start_server  # noqa: PLC0415  one of a hundred needs it

    try:
        start_server(place, (), environment, lambda: is_there(place))
    except StartFailed as error:
        raise ServeDirectly(f"no shared server could be started: {error}") from None


def _preface(options: Mapping[str, object], environment: Mapping[str, str]) -> bytes:
    try:
        cwd = os.getcwd()
    except FileNotFoundError:  # the directory was deleted; threads name their own
        cwd = "/"
    more: dict[str, object] = {
        "all_threads": bool(options.get("all_threads")),
        "options": {each.name: options[each.name] for each in OF_CLIENTS if each.name in options},
    }
    api = options.get("api")
    return preface(os.getpid(), None if api is None else str(api), cwd, dict(environment), more)


def _serve_alone(options: Mapping[str, object]) -> int:
    """Become a server without a proxy, with the same interpreter."""
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    os.execv(sys.executable, [sys.executable, *before, *words_alone(options)])


def words_alone(options: Mapping[str, object]) -> list[str]:
    """Return the words of a command line that starts a server with the same options, and without a proxy."""
    return [*(["acp"] if options.get("api") == "acp" else []), *option_words(options, OF_CLIENTS), "--stdio"]


def replace_closed() -> None:
    """Open a file for each closed standard descriptor, else the socket would get its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)  # gets the lowest free number


def notice(text: str) -> None:
    """Print a line for the user on stderr, if it has a reader."""
    waiting = select.poll()
    waiting.register(2, select.POLLOUT)
    try:
        if waiting.poll(0):
            os.write(2, f"app-server: {text}\n".encode(errors="backslashreplace"))
    except OSError:
        pass


def _fail(text: str) -> int:
    notice(text)
    return 1
