"""TCP listeners are for this machine only."""

import socket

import pytest

from app_server.server.daemon.addresses import (
    BadOption,
    CannotListen,
    LoopbackAddress,
    listen_on,
    parse_loopback,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("ws://127.0.0.1:8080", "127.0.0.1", 8080),
        ("ws://127.0.0.1:0", "127.0.0.1", 0),
        ("ws://[::1]:65535", "[::1]", 65535),
        ("ws://127.0.0.1:8080/", "127.0.0.1", 8080),
    ],
)
def test_addresses_of_the_loopback_are_taken(text: str, host: str, port: int) -> None:
    assert parse_loopback(text) == LoopbackAddress(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "ws://0.0.0.0:8080",
        "ws://[::]:8080",
        "ws://192.168.1.2:8080",
        "ws://localhost:8080",
        "ws://example.org:8080",
        "ws://127.0.0.1",
        "ws://127.0.0.1:",
        "ws://127.0.0.1:-1",
        "ws://127.0.0.1:٣",
        "ws://127.0.0.1:8080/rpc",
        "ws://::1:8080",
        "ws://127.0.0.1.example.org:80",
        "ws://user@127.0.0.1:80",
        "wss://127.0.0.1:8080",
        "ws://",
    ],
)
def test_others_are_refused_with_a_word_on_tunnels(text: str) -> None:
    with pytest.raises(BadOption, match="ssh -L"):
        parse_loopback(text)


def test_no_port_is_larger_than_65535() -> None:
    with pytest.raises(BadOption, match="65535"):
        parse_loopback("ws://127.0.0.1:65536")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_free_port_is_listened_on(host: str) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with listen_on(LoopbackAddress(host, 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((host.strip("[]"), port)):
            assert not listener.getblocking()
            listener.accept()[0].close()


def test_a_port_in_use_is_said() -> None:
    with listen_on(LoopbackAddress("127.0.0.1", 0)) as listener:
        address = LoopbackAddress("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(CannotListen, match=f"cannot listen on {address.url}: .*in use"):
            listen_on(address)
