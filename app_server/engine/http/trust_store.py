"""The certificates that connections trust: those that the user's environment names, or else those of the system.

The variables come from the given environment only; OpenSSL and httpx2 would read those of the process. On macOS
truststore asks the system about each chain. Elsewhere the system's certificates are files, which OpenSSL reads by
itself: truststore would find them by the environment of the process.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Mapping

import truststore

from app_server.engine.http.interface import TrustUnavailable

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)
"""Files in which Linux distributions and BSDs store their certificates, for a Python whose OpenSSL was built for
another system.
"""

_HASHED_NAME = r"[0-9a-f]{8}\.[0-9]"
"""Pattern of the file names by which OpenSSL finds a certificate in a folder."""


def trust_store(env: Mapping[str, str]) -> ssl.SSLContext:
    """Load only the certificates that SSL_CERT_FILE and SSL_CERT_DIR name, or else the system's, which may include a
    company's own. Takes tens of milliseconds: call it in a thread. Raises TrustUnavailable.
    """
    named = _named_store(env)
    if named is not None:
        return named
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if sys.platform == "darwin" else _system_store()


def trusted_pem(env: Mapping[str, str]) -> bytes:
    """Return the certificates as PEM, for libraries that create their own context. Raises TrustUnavailable."""
    found = (_named_store(env) or _system_store()).get_ca_certs(binary_form=True)
    if not found:
        raise TrustUnavailable(
            "a folder of certificates is of no use here; name the certificates with SSL_CERT_FILE"
        )
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()


def _named_store(env: Mapping[str, str]) -> ssl.SSLContext | None:
    file, folder = env.get("SSL_CERT_FILE") or None, env.get("SSL_CERT_DIR") or None
    if file is None and folder is None:
        return None
    if folder is not None and not os.path.isdir(folder):
        raise TrustUnavailable("SSL_CERT_DIR names no folder")
    return _loaded(file, folder, "SSL_CERT_FILE names no file of certificates that can be read")


def _system_store() -> ssl.SSLContext:
    """Load the certificates at the default locations of OpenSSL. `set_default_verify_paths` would read the environment
    of the process.
    """
    built = ssl.get_default_verify_paths()
    file = next(filter(os.path.isfile, (built.openssl_cafile, *BUNDLES)), None)
    folder = built.openssl_capath if _holds_certificates(built.openssl_capath) else None
    if file is None and folder is None:
        raise TrustUnavailable(
            "this system has no certificates; install its package ca-certificates, or name a file with SSL_CERT_FILE"
        )
    return _loaded(file, folder, f"the certificates of this system cannot be read: {file or folder}")


def _holds_certificates(folder: str) -> bool:
    try:
        return any(map(re.compile(_HASHED_NAME).fullmatch, os.listdir(folder)))
    except OSError:
        return False


def _loaded(file: str | None, folder: str | None, failure: str) -> ssl.SSLContext:
    """Return a context that verifies host names and chains. Raises TrustUnavailable with the text `failure`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=file, capath=folder)
    except (OSError, ValueError) as error:
        raise TrustUnavailable(failure) from error
    return context
