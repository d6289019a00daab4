"""The server's parsing of a preface, and its answer."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server import __version__
from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.layers import combine
from app_server.server.daemon.preface import BadPreface, Question, no, parse_preface, yes
from app_server.server.proxy.connect import ProxyRefused, accepted, preface
from app_server.server.server_settings import ClientSettings
from app_server_protocol.encoding import Json

HOME = Path("/home/user/.codex")
OURS = CliOverrides(settings=(("model", '"ours"'),))
NONE = CliOverrides()


def server(cli: CliOverrides = NONE, *, has_cwd: bool = True) -> ClientSettings:
    return ClientSettings(home=HOME, cwd=Path("/started"), cli=cli, has_cwd=has_cwd)


def place_of(line: bytes, above: CliOverrides = NONE) -> ClientSettings:
    said = parse_preface(line, server(above))
    assert isinstance(said, ClientSettings)
    return said


def said(**changed: Json) -> bytes:
    good: Json = {"preface": 1, "version": "9", "pid": 7, "api": None, "cwd": "/w", "options": {}, "env": {}}
    return json.dumps({**good, **changed}).encode()


@given(st.dictionaries(st.binary().map(os.fsdecode), st.binary().map(os.fsdecode)))
def test_a_server_has_the_environment_as_the_client_has_it(environment: dict[str, str]) -> None:
    line = preface(7, "acp", "/work", environment, {"options": {"config": ["a=1"]}, "all_threads": True})
    place = place_of(line)
    assert place.environment == environment
    assert (place.home, place.cwd, place.acp, place.receives_all_threads) == (HOME, Path("/work"), True, True)
    assert place.cli.settings == (("a", "1"),)
    assert place.shared
    assert place.brings_environment


def test_what_the_server_was_started_with_counts_more_than_what_a_client_brings() -> None:
    options = {"config": ["model=theirs", "review_model=theirs"], "model": "theirs", "sandbox": "read-only"}
    cli = place_of(said(options=options), OURS).cli
    settings = combine({}, cli, RequestOverrides()).settings
    assert settings == {"model": "ours", "review_model": "theirs", "sandbox_mode": "read-only"}


def test_a_profile_of_the_server_counts_more() -> None:
    file = {"profiles": {"a": {"model": "a"}, "b": {"model": "b"}}}
    cli = place_of(said(options={"profile": "a"}), CliOverrides(profile="b")).cli
    assert combine(file, cli, RequestOverrides()).profile == "b"


def test_the_daemon_asks_over_a_preface() -> None:
    assert parse_preface(b'{"preface":1,"ask":"stop","now":true}', server()) == Question("stop", now=True)
    assert parse_preface(b'{"preface":1,"ask":"status"}', server()) == Question("status")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (said(preface=2), "of form 1, not 2"),
        (said(preface="1"), "lacks something"),
        (said(api="v3"), "lacks something"),
        (said(cwd=None), "lacks something"),
        (said(cwd="relative"), "no absolute working directory"),
        (said(env=[]), "lacks something"),
        (said(env={"A": 1}), "lacks something"),
        (said(options=None), "lacks something"),
        (said(options={"config": "a=1"}), "cannot be used"),
        (said(options={"config": [1]}), "lacks something"),
        (said(options={"config": ["a"]}), "expected key=value"),
        (said(options={"ask_for_approval": "maybe"}), "cannot be used"),
        (said(env={"APP_SERVER_MAX_REQUESTS": "many"}), "APP_SERVER_MAX_REQUESTS expects a number"),
        (b"[]", "lacks something"),
        (b'{"ask":"status"}', "lacks something"),
    ],
)
def test_a_bad_preface_is_told_what_is_wrong(line: bytes, why: str) -> None:
    with pytest.raises(BadPreface, match=why):
        parse_preface(line, server())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["preface", "api", "cwd", "env", "options", "pid", "ask"]), JSON))
def test_nothing_else_comes_of_any_preface(changed: dict[str, Json]) -> None:
    for line in (said(**changed), json.dumps(changed).encode()):
        try:
            parse_preface(line, server())
        except BadPreface:
            pass


def test_a_proxy_understands_the_answers() -> None:
    assert accepted(yes()[:-1])
    assert json.loads(yes(status={"pid": 1})) == {
        "preface": 1,
        "version": __version__,
        "status": {"pid": 1},
        "ok": True,
    }
    with pytest.raises(ProxyRefused, match=r"^full$"):
        accepted(no("full")[:-1])


def test_an_environment_is_not_shown() -> None:
    assert "hunter2" not in repr(place_of(said(env={"KEY": "hunter2"})))
    with pytest.raises(BadPreface) as told:
        place_of(said(env={"KEY": ["hunter2"]}))
    assert "hunter2" not in str(told.value)
