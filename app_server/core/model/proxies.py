"""Which proxy a request goes through, by the usual environment variables. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy's URL, or None for a direct connection."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    # HTTP_PROXY in capitals may come from a request's header in a CGI environment; it is not looked at.
    names = ("http_proxy",) if parts.scheme == "http" else ("https_proxy", "HTTPS_PROXY")
    proxy = next((env[name] for name in (*names, "all_proxy", "ALL_PROXY") if env.get(name)), None)
    if proxy is None or _exempt(host, parts.port, env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _exempt(host: str, port: int | None, exceptions: str) -> bool:
    for entry in exceptions.lower().replace(",", " ").split():
        name, _, wanted_port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if wanted_port and wanted_port != str(port):
            continue
        if name == "*" or _in_network(host, name):
            return True
        domain = name.lstrip("*").lstrip(".")
        if domain and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network.strip("[]"), strict=False)
    except ValueError:
        return False
