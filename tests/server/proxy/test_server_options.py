"""The light parse of the command lines of servers and proxies, and when a plain server is a proxy."""

import os
from pathlib import Path

import pytest

from app_server.server.proxy.proxy_command import words_alone
from app_server.server.proxy.server_options import read_options
from app_server.server.proxy.sharing import is_shared, is_sharing_wanted


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("", {"command": None, "api": None}),
        ("app-server", {"command": None, "api": None}),
        ("acp", {"command": None, "api": "acp"}),
        (
            "--listen unix:// --startup 3,4 -c a=1 --listen=unix:///s",
            {
                "command": None,
                "api": None,
                "listen": ["unix://", "unix:///s"],
                "startup": "3,4",
                "config": ["a=1"],
            },
        ),
        ("proxy", {"command": "proxy", "api": None}),
        ("app-server proxy acp", {"command": "proxy", "api": "acp"}),
        ("proxy app-server", {"command": "proxy", "api": None}),
        (
            "app-server -s read-only --stdio",
            {"command": None, "api": None, "sandbox": "read-only", "stdio": True},
        ),
        (
            "-c a=1 proxy --sock /run/s -c b=2 --config=c=3 --no-start -p work --enable x --all-threads",
            {
                "command": "proxy",
                "api": None,
                "config": ["a=1", "b=2", "c=3"],
                "sock": "/run/s",
                "no_start": True,
                "profile": "work",
                "enable": ["x"],
                "all_threads": True,
            },
        ),
    ],
)
def test_plain_words_are_read(line: str, options: object) -> None:
    assert read_options(line.split()) == options


@pytest.mark.parametrize(
    "line",
    [
        *(
            "--strict-config",
            "-s everything",
            "--add-dir /nowhere",
            "--stdio=1",
            "--listen",
            "proxy --help",
            "proxy -h",
            "exec hello",
            "chat",
            "--version",
        ),
        *(
            "proxy -c",
            "proxy -c a",
            "proxy -c =1",
            "-c a=1 proxy -p",
            "proxy --sock --no-start",
            "proxy -ca=1",
        ),
        *(
            "proxy extra",
            "acp proxy",
            "proxy --stdio",
            "proxy --listen unix://",
            "proxy acp acp",
            "--sock /run/s",
            "acp --no-start",
            "proxy --no-start=1",
        ),
        *("proxy --conf a=1", "proxy -- acp", "proxy proxy"),
    ],
)
def test_everything_else_is_left_to_argparse(line: str) -> None:
    assert read_options(line.split()) is None


def test_a_server_that_serves_alone_has_the_same_options() -> None:
    given = {
        "api": "acp",
        "config": ["a=1", "b=2"],
        "profile": "work",
        "enable": ["x"],
        "sandbox": "read-only",
    }
    assert words_alone(given) == [
        *("acp", "--config=a=1", "--config=b=2", "--enable=x", "--profile=work", "--sandbox=read-only"),
        "--stdio",
    ]
    assert words_alone({"api": None, "sock": "/run/s", "no_start": True}) == ["--stdio"]


YES, NO = "[app_server]\nshared = true\n", "[app_server]\nshared = false\n"


@pytest.mark.parametrize(
    ("config", "environment", "wanted"),
    [
        ("", {}, False),
        (YES, {}, True),
        ("app_server.shared = true", {}, True),
        (NO, {}, False),
        (YES, {"APP_SERVER_SHARED": "0"}, False),
        (NO, {"APP_SERVER_SHARED": "1"}, True),
        (YES, {"CI": "true"}, False),
        (YES, {"APP_SERVER_SHARED": "1", "CI": "true"}, False),
        (YES, {"CI": ""}, True),
        (YES, {"APP_SERVER_SHARED": "maybe"}, True),
        ('[app_server]\nshared = "true"\n', {}, False),
        ("[other]\nshared = true\n", {}, False),
        ("app_server = 1 # shared", {}, False),
        ("[app_server\nshared = true\n", {}, False),
    ],
)
def test_the_user_decides_whether_servers_are_shared(
    config: str, environment: dict[str, str], wanted: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(config)
    assert is_sharing_wanted(environment, str(tmp_path)) is wanted
    assert is_shared({}, {**environment, "CODEX_HOME": str(tmp_path)}) is wanted


@pytest.mark.parametrize(
    ("line", "shared"),
    [
        *(("--stdio", False), ("acp --listen stdio://", False), ("--listen unix://", False)),
        *(("-s read-only", False), ("acp -a never", False)),
        *(("acp", True), ("-c a=1 --enable x -p work -m mine --analytics-default-enabled", True)),
    ],
)
def test_options_that_ask_for_a_server_of_its_own_get_one(line: str, shared: bool, tmp_path: Path) -> None:
    environment = {"APP_SERVER_SHARED": "1", "CODEX_HOME": str(tmp_path)}
    options = read_options(line.split())
    assert options is not None
    assert is_shared(options, environment) is shared


def test_no_file_and_no_readable_one_is_a_no(tmp_path: Path) -> None:
    assert not is_sharing_wanted({}, str(tmp_path / "none"))
    (tmp_path / "config.toml").mkdir()
    assert not is_sharing_wanted({}, str(tmp_path))


def test_nothing_is_read_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may have no end: the user would wait for a step that normally takes no time."""
    (tmp_path / "config.toml").symlink_to("/dev/zero")
    monkeypatch.setattr(os, "read", None)
    assert not is_sharing_wanted({}, str(tmp_path))
