"""The first line that a proxy says to a server, and how it reads the answer. Fast to import: no `json`.

The line is private to this program: who writes and who reads it agree on a number. `shared/preface.py` reads it.
"""

from __future__ import annotations

from app_server import __version__

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Said = str | int | bool | None | Sequence[str] | Mapping[str, object]

NUMBER = 1
"""Of the form of prefaces and answers."""

MOST_BYTES = 4 << 20
"""Of a preface, most of which is the environment."""

MOST_OF_ANSWER = 1 << 20

BEGINNING_OF_ANY = b'{"preface":'
BEGINNING = b"%b%d," % (BEGINNING_OF_ANY, NUMBER)
ACCEPTED = b'"ok":true}'

ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\"} | {
    code: f"\\u{code:04x}" for code in (*range(0x20), 0x7F, *range(0xDC80, 0xDD00))
}
"""What JSON does not take as it is, and the bytes that are no UTF-8, as Python keeps them in a string."""


class ProxyRefused(Exception):
    """The server does not serve this proxy; the text is a clause that says why."""


def preface(
    pid: int, api: str | None, cwd: str, environment: Mapping[str, str], more: Mapping[str, object]
) -> bytes:
    """Return the line. `more` are the options of the command line."""
    said = {"preface": NUMBER, "version": __version__, "pid": pid, "api": api, "cwd": cwd, **more}
    return (as_json({**said, "env": environment}) + "\n").encode()


def as_json(value: object) -> str:
    """Return strings, numbers, truth values, null, lists and objects of them as JSON without spaces."""
    if isinstance(value, str):
        return f'"{value.translate(ESCAPED)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{as_json(key)}:{as_json(each)}' for key, each in value.items())}}}"
    raise TypeError(f"not for JSON: {type(value)}")


def accepted(line: bytes) -> bool:
    """Tell whether the server serves this proxy. Raises ProxyRefused with the server's reason, or because it is not
    ours.
    """
    if line.startswith(BEGINNING) and line.endswith(ACCEPTED):
        return True
    import json  # noqa: PLC0415  another server comes, and that takes longer

    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict) or "preface" not in said:
        raise ProxyRefused("what listens there is no server of this kind")
    if said.get("preface") != NUMBER:
        raise ProxyRefused("the server there is of a version that does not understand this one")
    raise ProxyRefused(str(said.get("reason", "the server there gave no reason")))
