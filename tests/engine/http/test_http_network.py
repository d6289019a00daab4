"""Network of the HTTP client: the choice of a proxy, and trusted certificates."""

import ssl
from pathlib import Path

import pytest

from app_server.engine.http import pool, trust_store
from app_server.engine.http.address import proxy_for
from app_server.engine.http.interface import TrustUnavailable

P, Q = "http://proxy.test:3128", "http://other.test:8080"


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("http://h.test/", {}, None),
        ("http://h.test/", {"http_proxy": P}, P),
        ("http://h.test/", {"HTTP_PROXY": P}, P),
        ("http://h.test/", {"https_proxy": P, "HTTPS_PROXY": P}, None),
        ("https://h.test/", {"http_proxy": P, "HTTP_PROXY": P}, None),
        ("https://h.test/", {"https_proxy": P}, P),
        ("https://h.test/", {"HTTPS_PROXY": P}, P),
        ("HTTPS://H.TEST/", {"HTTPS_PROXY": P}, P),
        ("https://h.test/", {"https_proxy": P, "HTTPS_PROXY": Q}, P),
        ("https://h.test/", {"https_proxy": "", "HTTPS_PROXY": Q}, Q),
        ("https://h.test/", {"https_proxy": " ", "HTTPS_PROXY": " "}, None),
        ("https://h.test/", {"all_proxy": P}, P),
        ("http://h.test/", {"ALL_PROXY": P}, P),
        ("https://h.test/", {"ALL_PROXY": P, "https_proxy": Q}, Q),
        ("http://h.test/", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, None),
        ("http://h.test/", {"http_proxy": P, "REQUEST_METHOD": "GET"}, P),
        ("https://h.test/", {"https_proxy": "proxy.test:3128"}, P),
        ("https://h.test/", {"https_proxy": "socks5h://s.test:1"}, "socks5h://s.test:1"),
    ],
)
def test_the_variables(url: str, env: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, env) == proxy


HERE = (
    "localhost LOCALHOST localhost. deep.localhost 127.0.0.1 127.8.9.1 0.0.0.0 [::1] [::] [::ffff:127.0.0.1]"
)
HERE_BY_PORT = "localhost:8000 127.0.0.1:1 [::1]:1 me:pass@localhost"


@pytest.mark.parametrize("host", f"{HERE} {HERE_BY_PORT}".split())
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_never_asked_through_one(scheme: str, host: str) -> None:
    env = {"http_proxy": P, "https_proxy": P, "all_proxy": P}
    assert proxy_for(f"{scheme}://{host}/v1", env) is None


@pytest.mark.parametrize(
    "host", ["localhost.test", "notlocalhost", "127.0.0.1.test", "127.test", "10.0.0.1", "[fe80::1]"]
)
def test_what_only_looks_like_this_machine_is_another(host: str) -> None:
    assert proxy_for(f"http://{host}/", {"http_proxy": P}) == P


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        ("https://h.test/", "", False),
        ("https://h.test/", "*", True),
        ("https://h.test/", "other.test, *", True),
        ("https://h.test/", "h.test", True),
        ("https://h.test/", "H.Test", True),
        ("https://H.TEST./", "h.test", True),
        ("https://h.test/", ".h.test", True),
        ("https://h.test/", "h.test.", True),
        ("https://a.h.test/", "h.test", True),
        ("https://a.b.h.test/", ".h.test", True),
        ("https://a.h.test/", "*.h.test", True),
        ("https://ah.test/", "h.test", False),
        ("https://h.test.evil.test/", "h.test", False),
        ("https://h.test/", "a.h.test", False),
        ("https://h.test/", "x,, ,h.test", True),
        ("https://h.test/", "x h.test", True),
        ("https://h.test/", ". , *.", False),
        ("https://h.test:8443/", "h.test:8443", True),
        ("https://h.test:8443/", "h.test:443", False),
        ("https://h.test/", "h.test:443", True),
        ("http://h.test/", "h.test:80", True),
        ("http://h.test/", "h.test:443", False),
        ("https://h.test/", "*:443", True),
        ("http://10.1.2.3/", "10.1.2.3", True),
        ("http://10.1.2.3:81/", "10.1.2.3:81", True),
        ("http://10.1.2.3:81/", "10.1.2.3:82", False),
        ("http://10.1.2.3/", "10.0.0.0/8", True),
        ("http://10.1.2.3/", "10.1.2.99/24", True),
        ("http://11.1.2.3/", "10.0.0.0/8", False),
        ("http://10.1.2.3/", "2.3", False),
        ("http://10.1.2.3/", "1.2.3", False),
        ("http://[fd00::5]/", "fd00::5", True),
        ("http://[fd00::5]/", "[fd00::5]", True),
        ("http://[fd00::5]:81/", "[fd00::5]:81", True),
        ("http://[fd00::5]:81/", "[fd00::5]:82", False),
        ("http://[fd00::5]/", "fd00::/8", True),
        ("http://[fe80::1%25eth0]/", "fe80::/10", True),
        ("http://[fd00::5]/", "10.0.0.0/8", False),
        ("http://h.test/", "10.0.0.0/8", False),
        ("http://10.1.2.3/", "10.0.0.0/99, [, ::::, /8", False),
    ],
)
def test_the_exceptions(url: str, exceptions: str, direct: bool) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        assert proxy_for(url, {"all_proxy": P, name: exceptions}) == (None if direct else P)


@pytest.mark.parametrize(
    "proxy", ["http://", "http://[bad", "http://h:99999999", "http://h:port", "http://h:0", ":1"]
)
def test_a_proxy_that_is_no_address(proxy: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of the library's own
        proxy_for("http://h.test/", {"all_proxy": proxy})
    assert proxy_for("http://localhost/", {"all_proxy": proxy}) is None


def test_small_letters_win_among_the_exceptions() -> None:
    env = {"all_proxy": P, "no_proxy": "h.test", "NO_PROXY": "other.test"}
    assert proxy_for("http://h.test/", env) is None
    assert proxy_for("http://other.test/", env) == P


ONE = "-----END CERTIFICATE-----\n"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """Write a file with one certificate in it."""
    pem = trust_store.trusted_pem({}).decode()
    file = tmp_path / "one.pem"
    file.write_text(pem[pem.index("-----BEGIN") : pem.index(ONE) + len(ONE)])
    return file


def test_those_of_the_system_unless_the_user_names_others(one: Path) -> None:
    assert len(trust_store.trust_store({}).get_ca_certs()) > 50
    assert len(trust_store.trust_store({"SSL_CERT_FILE": "", "SSL_CERT_DIR": ""}).get_ca_certs()) > 50
    assert len(trust_store.trust_store({"SSL_CERT_FILE": str(one)}).get_ca_certs()) == 1
    assert trust_store.trust_store({"SSL_CERT_DIR": str(one.parent)}).get_ca_certs() == []
    assert trust_store.trusted_pem({"SSL_CERT_FILE": str(one)}).count(b"BEGIN CERTIFICATE") == 1


def built_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make OpenSSL look as if it was built for a system that keeps its certificates in a folder."""
    paths = ssl.DefaultVerifyPaths("", "", "", str(folder / "cert.pem"), "", str(folder / "certs"))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)


def test_a_python_that_was_built_for_another_system_finds_this_ones(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_for(one.parent, monkeypatch)
    monkeypatch.setattr(trust_store, "BUNDLES", (str(one.parent / "none.pem"), str(one)))
    assert len(trust_store.trust_store({}).get_ca_certs()) == 1
    one.rename(one.parent / "cert.pem")
    assert len(trust_store.trust_store({}).get_ca_certs()) == 1


def test_a_system_without_certificates_is_told_what_to_install(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_for(one.parent, monkeypatch)
    monkeypatch.setattr(trust_store, "BUNDLES", ())
    (one.parent / "certs").mkdir()
    with pytest.raises(TrustUnavailable, match="ca-certificates"):
        trust_store.trust_store({})
    assert len(trust_store.trust_store({"SSL_CERT_FILE": str(one)}).get_ca_certs()) == 1
    one.rename(one.parent / "certs" / "01234567.0")
    assert trust_store.trust_store({}).verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(TrustUnavailable, match="SSL_CERT_FILE"):
        trust_store.trusted_pem({})


def test_certificates_of_the_system_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built_for(tmp_path, monkeypatch)
    (tmp_path / "cert.pem").write_text("nothing of the kind")
    with pytest.raises(TrustUnavailable, match=r"cannot be read: .*cert\.pem"):
        trust_store.trust_store({})


def test_names_and_certificates_are_verified() -> None:
    context = trust_store.trust_store({})
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "env", [{"SSL_CERT_FILE": "none.pem"}, {"SSL_CERT_DIR": "none"}, {"SSL_CERT_FILE": "empty"}]
)
def test_what_cannot_be_read_is_not_replaced_by_anything(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    named = {key: str(tmp_path / name) for key, name in env.items()}
    with pytest.raises(TrustUnavailable, match=next(iter(env))):
        trust_store.trust_store(named)


def test_a_folder_alone_is_nothing_that_can_be_listed(tmp_path: Path) -> None:
    with pytest.raises(TrustUnavailable):
        trust_store.trusted_pem({"SSL_CERT_DIR": str(tmp_path)})


def test_the_processs_own_environment_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setenv("HTTPS_PROXY", "http://nowhere.test:1")
    context = trust_store.trust_store({})
    assert len(context.get_ca_certs()) > 50
    assert not context.keylog_filename
    assert proxy_for("https://h.test/", {}) is None
    assert not keys.exists()


def test_a_proxy_that_is_spoken_to_in_secret_is_verified_the_same(one: Path) -> None:
    context = trust_store.trust_store({"SSL_CERT_FILE": str(one)})
    proxy = pool.named_proxy("https://me:pass@p.test:1", context)
    assert proxy is not None
    assert proxy.ssl_context is context
    assert proxy.auth == (b"me", b"pass")


@pytest.mark.anyio
@pytest.mark.parametrize("proxy", ["http://[bad", "nonsense://x", "http://h:99999999"])
async def test_an_invalid_proxy_url_is_rejected(proxy: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of the libraries' own
        await pool.PoolManager({"all_proxy": proxy}).find("http://h.test/")
