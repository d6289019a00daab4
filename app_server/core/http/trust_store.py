"""The trusted certificates: one store for all HTTP requests of this server.

It uses only the given environment; `ssl.create_default_context` would read the environment of the process.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

import certifi

from app_server.core.http.exchange import TrustUnavailable


def trust_store(env: Mapping[str, str]) -> ssl.SSLContext:
    """Those that SSL_CERT_FILE and SSL_CERT_DIR name, and no others; else the system's, which may hold a company's own,
    and the usual public ones. Takes tens of milliseconds: call it in a thread. Raises TrustUnavailable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file, folder = env.get("SSL_CERT_FILE") or None, env.get("SSL_CERT_DIR") or None
    if file is not None or folder is not None:
        _load(context, file, folder)
        return context
    system = ssl.get_default_verify_paths()
    file = system.openssl_cafile if os.path.isfile(system.openssl_cafile) else None
    folder = system.openssl_capath if os.path.isdir(system.openssl_capath) else None
    if file is not None or folder is not None:
        context.load_verify_locations(cafile=file, capath=folder)
    context.load_verify_locations(cafile=certifi.where())
    return context


def trusted_pem(env: Mapping[str, str]) -> bytes:
    """The same certificates as text, for a library that makes its own context. Raises TrustUnavailable."""
    found = trust_store(env).get_ca_certs(binary_form=True)
    if not found:
        raise TrustUnavailable(
            "SSL_CERT_DIR alone is of no use here; name the certificates with SSL_CERT_FILE"
        )
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()


def _load(context: ssl.SSLContext, file: str | None, folder: str | None) -> None:
    if folder is not None and not os.path.isdir(folder):
        raise TrustUnavailable("SSL_CERT_DIR names no folder")
    try:
        context.load_verify_locations(cafile=file, capath=folder)
    except (OSError, ValueError) as error:
        raise TrustUnavailable("SSL_CERT_FILE names no file of certificates that can be read") from error
