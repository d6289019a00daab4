"""Which certificates are believed, and that nothing of the process's own environment decides."""

import ssl
from pathlib import Path

import certifi
import httpx
import pytest

from app_server.core.http.connections import trust_store, trusted_pem
from app_server.core.http.exchange import TrustUnavailable
from app_server.core.http.httpx_options import httpx_options

ONE = "-----END CERTIFICATE-----\n"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A file with one certificate in it."""
    pem = Path(certifi.where()).read_text(encoding="utf-8")
    file = tmp_path / "one.pem"
    file.write_text(pem[pem.index("-----BEGIN") : pem.index(ONE) + len(ONE)])
    return file


def test_the_usual_ones_unless_the_user_names_others(one: Path) -> None:
    assert len(trust_store({}).get_ca_certs()) > 50
    assert len(trust_store({"SSL_CERT_FILE": "", "SSL_CERT_DIR": ""}).get_ca_certs()) > 50
    assert len(trust_store({"SSL_CERT_FILE": str(one)}).get_ca_certs()) == 1
    assert trust_store({"SSL_CERT_DIR": str(one.parent)}).get_ca_certs() == []
    assert trusted_pem({"SSL_CERT_FILE": str(one)}).count(b"BEGIN CERTIFICATE") == 1


def test_names_and_certificates_are_verified() -> None:
    context = trust_store({})
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "env", [{"SSL_CERT_FILE": "none.pem"}, {"SSL_CERT_DIR": "none"}, {"SSL_CERT_FILE": "empty"}]
)
def test_what_cannot_be_read_is_not_replaced_by_anything(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    named = {key: str(tmp_path / name) for key, name in env.items()}
    with pytest.raises(TrustUnavailable, match=next(iter(env))):
        trust_store(named)
    with pytest.raises(TrustUnavailable):
        httpx_options("https://h.test/", named)
    assert httpx_options("http://h.test/", named)["verify"] is False


def test_a_folder_alone_is_nothing_that_can_be_listed(tmp_path: Path) -> None:
    with pytest.raises(TrustUnavailable):
        trusted_pem({"SSL_CERT_DIR": str(tmp_path)})


def test_the_processs_own_environment_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setenv("HTTPS_PROXY", "http://nowhere.test:1")
    options = httpx_options("https://h.test/", {})
    assert isinstance(options["verify"], ssl.SSLContext)
    assert len(options["verify"].get_ca_certs()) > 50
    assert not options["verify"].keylog_filename
    assert (options["proxy"], options["trust_env"], options["follow_redirects"]) == (None, False, False)
    assert not keys.exists()


def test_a_proxy_that_is_spoken_to_in_secret_is_verified_the_same(one: Path) -> None:
    options = httpx_options(
        "http://h.test/", {"all_proxy": "https://me:pass@p.test:1", "SSL_CERT_FILE": str(one)}
    )
    assert options["proxy"] is not None
    assert options["proxy"].ssl_context is not None
    assert len(options["proxy"].ssl_context.get_ca_certs()) == 1
    assert httpx.AsyncClient(**options).trust_env is False


@pytest.mark.parametrize("proxy", ["http://[bad", "nonsense://x", "http://h:99999999"])
def test_an_invalid_proxy_url_is_rejected(proxy: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of the libraries' own
        httpx_options("http://h.test/", {"all_proxy": proxy})
