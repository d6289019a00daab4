"""The profile by which sandbox-exec confines a command on macOS. Pure.

Paths are passed as parameters, so that no name can inject rules into the profile's text. After `(deny default)` it
allows only the minimum that shells and build tools need.
"""

from __future__ import annotations

from app_server.engine.sandbox.plan import SandboxPlan

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
"""Absolute path of sandbox-exec: a search of PATH could find another program."""

BASE = """\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow file-read*)
(allow file-test-existence)
(allow file-write-data
  (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))
(allow file-ioctl (literal "/dev/null"))
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow user-preference-read)
"""

SYSTEM = """\
(allow file-read-metadata)
(allow file-read* (literal "/") (subpath "/System") (subpath "/Library/Apple") (subpath "/private/var/db/dyld")
  (subpath "/private/etc") (subpath "/usr") (subpath "/bin") (subpath "/sbin") (subpath "/dev"))
"""
"""Rights without which programs do not start, for a permission profile that shows only some paths."""

NETWORK = """\
(allow network-outbound)
(allow network-inbound)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SecurityServer")
  (global-name "com.apple.networkd")
  (global-name "com.apple.ocspd")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd"))
"""


def profile(plan: SandboxPlan) -> tuple[str, dict[str, str]]:
    """Return the profile's text and its parameters. Later rules win over earlier ones, so denials come last."""
    parameters: dict[str, str] = {}

    def name(kind: str, path: str) -> str:
        key = f"{kind}_{len(parameters)}"
        parameters[key] = path
        return f'(param "{key}")'

    text = [BASE if plan.view.visible is None else BASE.replace("(allow file-read*)\n", SYSTEM)]
    if plan.view.visible is not None:
        text += [f"(allow file-read* (subpath {name('SEEN', place)}))\n" for place in plan.view.visible]
    if plan.network:
        text.append(NETWORK)
    text += [f"(allow file-write* (subpath {name('ROOT', root)}))\n" for root in plan.writable_roots]
    for path in dict.fromkeys((*plan.protected, *plan.reserved)):
        # A rule for the path itself and one for a folder at it, so that a missing name cannot be created either.
        key = name("FENCE", path)
        text.append(f"(deny file-write* (literal {key}) (subpath {key}))\n")
    for place in plan.pinned:
        text.append(f"(deny file-write-unlink (literal {name('PINNED', place)}))\n")  # nor can it be renamed
    for place in plan.view.hidden:
        key = name("HIDDEN", place)
        text.append(f"(deny file-read* file-write* (literal {key}) (subpath {key}))\n")
    for place in plan.view.reopened:
        text.append(f"(allow file-read* file-write* (subpath {name('REOPENED', place)}))\n")
    shown = plan.view.programs if plan.view.shows_programs else ()
    text += [f"(allow file-read* (subpath {name('SEEN', place)}))\n" for place in shown]
    secrets = [name("SECRET", f"{plan.home}/{secret}") for secret in plan.secrets]
    text += [f"(deny file-read* file-write* (literal {key}) (subpath {key}))\n" for key in secrets]
    return "".join(text), parameters


def wrap(argv: tuple[str, ...], plan: SandboxPlan) -> tuple[str, ...]:
    """Return the command line that runs `argv` under the profile of `plan`."""
    text, parameters = profile(plan)
    defined = [f"-D{key}={value}" for key, value in parameters.items()]
    return (SANDBOX_EXEC, "-p", text, *defined, "--", *argv)
