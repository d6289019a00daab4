"""httpx, set up by the same rules as everything else here, for those who ask seldom: logins, MCP servers, telemetry.

Imports httpx, so import it late. Nothing is read from the process's own environment, and no redirect is followed:
requests carry tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TypedDict

import httpx

from app_server.core.http.address import proxy_for
from app_server.core.http.connections import trust_store


class HttpxOptions(TypedDict):
    """Arguments of `httpx.Client` and `httpx.AsyncClient`."""

    verify: ssl.SSLContext | bool
    proxy: httpx.Proxy | None
    trust_env: bool
    follow_redirects: bool


def httpx_options(url: str, env: Mapping[str, str]) -> HttpxOptions:
    """Return the options for requests to `url`. Reads certificates where there is something to encrypt, so call it in
    a thread. Raises ValueError where the URL or its proxy is none, and TrustUnavailable.
    """
    named = proxy_for(url, env)
    try:
        proxy = None if named is None else httpx.Proxy(named)
    except httpx.InvalidURL as error:
        raise ValueError("the proxy is no address") from error
    encrypted = proxy is not None and proxy.url.scheme == "https"
    trust = trust_store(env) if encrypted or not url.lower().startswith("http://") else None
    if proxy is not None and encrypted:
        proxy.ssl_context = trust
    # Without encryption there is nothing to verify: loading certificates would be for nothing.
    return HttpxOptions(
        verify=trust if trust is not None else False, proxy=proxy, trust_env=False, follow_redirects=False
    )
