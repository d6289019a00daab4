"""The destination of a request: its parsed URL (host in ASCII, target quoted, credentials separate) and its proxy.
Pure.

There is one rule for the proxies of all HTTP requests of this server. It reads the common variables in lower and upper
case; lower case takes precedence, and an empty value counts as unset. Requests to this machine never use a proxy.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

_KEPT = "/%:@!$&'()*+,;=~?"
"""Characters of a target that are not quoted; the percent sign is one, since the target may be quoted already."""

DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(Struct, frozen=True):
    scheme: str
    host: bytes
    port: int | None
    target: bytes
    host_header: bytes
    authorization: bytes | None
    """Value of the authorization header for the name and password in the URL; None if it has none."""


@lru_cache(maxsize=64)
def address(url: str) -> Address:
    """Parse a URL. Raises ValueError for an invalid HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http address")
    host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
    target = quote(parts.path or "/", safe=_KEPT)
    if parts.query:
        target += "?" + quote(parts.query, safe=_KEPT)
    shown = b"[" + host + b"]" if b":" in host else host
    port = parts.port if parts.port != DEFAULT_PORTS[parts.scheme] else None
    return Address(
        scheme=parts.scheme,
        host=host,
        port=port,
        target=target.encode("ascii"),
        host_header=shown if port is None else shown + b":%d" % port,
        authorization=_basic(parts.username, parts.password),
    )


def origin(url: str) -> str | None:
    """Return scheme, host and port, without the usual port; None if the text is no URL. Error messages use it, since
    the rest of a URL may contain secrets.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host:
        return None
    shown = "" if port in (None, 0, DEFAULT_PORTS.get(parts.scheme)) else f":{port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{shown}"


def _basic(name: str | None, password: str | None) -> bytes | None:
    if name is None:
        return None
    pair = f"{unquote(name)}:{unquote(password or '')}"
    return b"Basic " + base64.b64encode(pair.encode())


CGI_VARIABLE = "REQUEST_METHOD"
"""Variable that is set if a web server started this program. The header `Proxy` of a request then becomes
HTTP_PROXY.
"""


NETWORK_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


def network_settings(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the network settings in an environment. Connections can be shared between environments with equal
    settings.
    """
    names = (*NETWORK_VARIABLES, CGI_VARIABLE.lower())
    return frozenset((name, value) for name, value in env.items() if name.lower() in names)


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy's URL; None for a direct connection. Raises ValueError if the proxy's address is invalid."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if _is_this_machine(host):
        return None
    proxy = _named(f"{parts.scheme}_proxy", env) or _named("all_proxy", env)
    if not proxy:
        return None
    port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    exceptions = _named("no_proxy", env).lower().replace(",", " ").split()
    if any(_matches(host, port, entry) for entry in exceptions):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    named = urlsplit(proxy)
    if not named.hostname or named.port == 0:
        raise ValueError("not the address of a proxy")
    return proxy


def _named(name: str, env: Mapping[str, str]) -> str:
    capitals = name.upper()
    if capitals == "HTTP_PROXY" and CGI_VARIABLE in env:
        capitals = ""
    return (env.get(name) or env.get(capitals) or "").strip()


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and (address.is_loopback or address.is_unspecified)


def _matches(host: str, port: int | None, entry: str) -> bool:
    """Return whether an entry of NO_PROXY matches this host. An entry is `*`, a name with all its subdomains, an
    address or a network of addresses, each with or without a port.
    """
    name, wanted_port = _split_port(entry)
    if wanted_port and wanted_port != str(port):
        return False
    if name == "*":
        return True
    address = _address(host)
    if address is not None:
        return _in_network(address, name)
    domain = name.removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split_port(entry: str) -> tuple[str, str]:
    """Split `name:port` or `[address]:port`, of which the port may be missing; colons without brackets are an
    address.
    """
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    name, colon, port = entry.rpartition(":")
    return (name, port) if colon and ":" not in name and port.isdigit() else (entry, "")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
