"""The rule of texts that sessions are shown. A session may be loaded while a part of a text is on its way."""

from types import SimpleNamespace
from typing import Any

import pytest

from app_server_protocol.encoding import Json
from tests.simulation.followers import Follower, Heard
from tests.simulation.text_rules import chunks_not_whole

pytestmark = pytest.mark.simulation

NEW = "new"
LOAD = "load"
WORDS = ("user_message_chunk", "u", "please")


def said(id: str, text: str) -> tuple[str, str, str]:
    return "agent_message_chunk", id, text


def message(each: Any) -> Json:
    if each == NEW:
        return {"id": 0, "result": {"sessionId": "s"}}
    if each == LOAD:
        return {"id": 1, "method": "session/load", "params": {"sessionId": "s"}}
    kind, id, text = each
    update = {"sessionUpdate": kind, "messageId": id, "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": "s", "update": update}}


def follower(api: str, messages: list[tuple[bool, Json]]) -> Follower:
    person: Any = SimpleNamespace(name=f"{api}.1", api=api, left_early=False)
    return Follower(person, [Heard(n, 0.0, sent, each) for n, (sent, each) in enumerate(messages)])


def problems(*shown: Any) -> list[str]:
    item = {"type": "agentMessage", "id": "m", "text": "one two"}
    ended = {"method": "item/completed", "params": {"threadId": "s", "turnId": "t", "item": item}}
    session = follower("acp", [(each == LOAD, message(each)) for each in shown])
    return list(chunks_not_whole([follower("v2", [(False, ended)]), session]))


@pytest.mark.parametrize(
    "shown",
    [
        [WORDS, said("m", "one two")],
        [WORDS, said("m", "one"), said("m", " two")],
        [LOAD, WORDS, said("m", "one"), said("m", " two")],
        [WORDS, said("m", "one"), LOAD, WORDS, said("m", "one two")],
        [WORDS, said("m", "one"), LOAD, said("m", " two"), WORDS, said("m", "one two")],
        [
            WORDS,
            said("n", "before"),
            LOAD,
            said("m", "one"),
            WORDS,
            said("n", "before"),
            said("m", "one two"),
        ],
        [NEW, LOAD, said("m", "one two"), WORDS, said("m", "one two")],
        [WORDS, said("m", "one two"), LOAD, LOAD, WORDS, said("m", "one two"), WORDS, said("m", "one two")],
        [WORDS, said("m", "one"), LOAD, said("m", " t"), LOAD, said("m", "wo"), WORDS, said("m", "one two")],
    ],
)
def test_a_replay_shows_again_what_was_on_its_way(shown: list[Any]) -> None:
    assert problems(*shown) == []


@pytest.mark.parametrize(
    "shown",
    [
        [WORDS, said("m", "one"), said("m", "one two")],
        [WORDS, said("m", "one")],
        [WORDS, said("m", "one two"), LOAD, said("m", " two"), WORDS, said("m", "one two")],
        [WORDS, said("m", "one"), LOAD, WORDS, said("m", "one two"), said("m", " two")],
        [WORDS, said("m", "one"), LOAD, said("m", " two"), WORDS, said("m", "one two"), said("m", " two")],
        [LOAD, said("m", "one"), WORDS, said("m", "one two")],
        [
            WORDS,
            said("n", "x"),
            said("m", "one"),
            LOAD,
            WORDS,
            said("n", "x"),
            said("m", "one"),
            said("m", "one two"),
        ],
    ],
)
def test_a_text_that_is_shown_twice_or_in_part_is_a_problem(shown: list[Any]) -> None:
    assert len(problems(*shown)) == 1
