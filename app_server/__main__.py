"""`python -m app_server` and the console script."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # cheaper than `signal`, which makes enumerations first

ALLOCATIONS = 30_000
"""Number of new objects between two garbage collections. With the default of 700, there are 60 collections until the
end of a first turn.
"""


def main() -> None:
    """Run the command line, and exit without waiting for threads that a disk or a name server blocks.

    The proxy is checked first, because it takes a fifth of the time that importing anything else takes.
    """
    _import_nothing_from_here()
    from app_server.server.proxy.server_options import read_options  # noqa: PLC0415  behind the change of the path

    options = read_options(sys.argv[1:])
    if options is not None and _is_proxy(options):
        from app_server.server.proxy.proxy_command import run_proxy  # noqa: PLC0415  the others need none of it

        status = run_proxy(options, os.environ)
    else:
        status = _run(options)
    os._exit(status)


def _is_proxy(options: dict[str, object]) -> bool:
    if options["command"] == "proxy":
        return True
    from app_server.server.proxy.sharing import is_shared  # noqa: PLC0415  a proxy needs none of it

    return is_shared(options, os.environ)


def _run(options: dict[str, object] | None) -> int:
    """Run any other command. `options` are those of a server, None if argparse has to parse the command line. Until a
    command handles Ctrl-C, that ends the process, because nothing needs to be cleaned up by then.
    """
    gc.set_threshold(ALLOCATIONS)
    if (
        _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    ):  # a background job of a script ignores Ctrl-C
        _signal.signal(_signal.SIGINT, lambda *_: os._exit(128 + _signal.SIGINT))
    from app_server.engine.support import lazy_imports  # noqa: PLC0415  the proxy needs none of it

    lazy_imports.install()
    from app_server.cli.dispatch import main as run  # noqa: PLC0415  takes a while

    status = run(sys.argv[1:], options)
    sys.stderr.flush()
    return status


def _import_nothing_from_here() -> None:
    """Remove the folder in which Python was started from the module path: it may be a workspace, where commands of a
    turn write.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.abspath(sys.path[0]) != own:
        del sys.path[0]


if __name__ == "__main__":
    main()
