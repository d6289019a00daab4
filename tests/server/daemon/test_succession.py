"""The options with which a server replaces another one."""

from app_server.server.daemon.control import words_of_successor


def test_all_options_stay_but_addresses_and_what_a_starter_gives() -> None:
    words = [
        "--listen",
        "unix://",
        "--startup",
        "3,4",
        "-c",
        "a=1",
        "--listen=ws://127.0.0.1:0",
        "--startup=5,6",
    ]
    addresses = ["unix:///home/s", "ws://127.0.0.1:4711"]
    assert words_of_successor(words, addresses) == [
        *("-c", "a=1"),
        *("--listen=unix:///home/s", "--listen=ws://127.0.0.1:4711"),
    ]
