"""Who may ask the page's server: whoever has the token, from the page itself. Pure.

The token is the first part of every path: what the page loads has it by itself, and there is no cookie that another
page could use. A name that was made to point at this machine does not pass for `Host`, nor another page for `Origin`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from protocol.records import dataclass

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every response."""


@dataclass(frozen=True, slots=True)
class Guard:
    token: str
    port: int

    @property
    def hosts(self) -> tuple[str, ...]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def refusal(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused; None if it is not. Names of headers are in lower case."""
        if headers.get("host") not in self.hosts:
            return "this page is served to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in self.hosts]:
            return "requests of other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests of other pages are refused"
        given = path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return "the address needs the token that `app-server inspect` printed"
        return None
