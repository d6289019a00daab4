"""Rules for the texts that clients of a shared server are shown: each gets every text whole, and no part twice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from tests.simulation.followers import Follower, Heard


def _text_of(item: Json) -> str | None:
    """Return the text of a message or of a thought, in either API that has items; None for any other item."""
    match item:
        case {"type": "agentMessage", "text": text}:
            return str(text)
        case {"type": "reasoning", "summary": [*parts]}:
            return "".join(parts)
        case {"AgentMessage": {"content": [{"Text": {"text": text}}]}}:
            return str(text)
        case _:
            return None


def _pieces(heard: Iterable[Heard]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield begins, pieces and ends of texts, with the ids of thread, turn and item."""
    for each in heard:
        if each.sent:
            continue
        params, msg = each.params, each.params.get("msg") or {}
        match each.method:
            case "item/started" | "item/completed" if (text := _text_of(params["item"])) is not None:
                kind = "begin" if each.method == "item/started" else "end"
                yield kind, (params["threadId"], params["turnId"], params["item"]["id"]), text
            case "item/agentMessage/delta" | "item/reasoning/summaryTextDelta":
                yield "piece", (params["threadId"], params["turnId"], params["itemId"]), params["delta"]
            case "codex/event/item_started" | "codex/event/item_completed" if (
                text := _text_of(msg["item"])
            ) is not None:
                kind = "begin" if msg["type"] == "item_started" else "end"
                yield (
                    kind,
                    (params["conversationId"], msg["turn_id"], msg["item"]["AgentMessage"]["id"]),
                    text,
                )
            case "codex/event/agent_message_content_delta":
                yield "piece", (params["conversationId"], msg["turn_id"], msg["item_id"]), msg["delta"]


def text_not_whole(one: Follower) -> Iterator[str]:
    """Yield texts whose begin and pieces differ from their end."""
    so_far: dict[tuple[str, ...], str] = {}
    for kind, name, text in _pieces(one.heard):
        if kind == "begin":
            so_far[name] = text
        elif kind == "piece" and name in so_far:
            so_far[name] += text
        elif kind == "end" and name in so_far:
            shown = so_far.pop(name)
            if shown not in ("", text):  # without pieces, the text comes whole at its end
                yield f"{one.person.name} was shown {shown[:80]!r} of {name[2]}, which is {text[:80]!r}"


def chunks_not_whole(all_of_them: Sequence[Follower]) -> Iterator[str]:
    """Yield messages that a session was shown differently than the clients with items."""
    whole: dict[_Name, set[str]] = {}
    for one in all_of_them:
        for kind, (thread, _, item), text in _pieces(one.heard):
            if kind == "end":
                whole.setdefault((thread, item), set()).add(text)
    for one in all_of_them:
        if one.person.api != "acp" or one.person.left_early:
            continue
        for name, text, is_over in _texts_of_sessions(one.heard):
            texts = whole.get(name, {text})
            if not (text in texts if is_over else any(each.startswith(text) for each in texts)):
                yield f"{one.person.name} was shown {text[:80]!r} of {name[1]}, which is {texts}"


_Name = tuple[str, str]
"""Ids of a message's session and of the message."""


@dataclass(slots=True)
class _Session:
    """A client's view of a session: the messages in the order in which they were first shown, with their texts."""

    texts: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    """Texts at the time when the session was loaded again, until its replay begins. A text that comes until then was on
    its way, and the replay contains it, too.
    """
    replays: int = 0
    """Number of replays that were requested and have not begun."""

    is_known: bool = False
    """Whether something may be on its way when the session is loaded."""

    def ask_for(self) -> None:
        self.replays += self.is_known or bool(self.texts)
        self.before, self.texts, self.is_known = {**self.before, **self._so_far()}, {}, True

    def replay_begins_with(self, id: str) -> bool:
        """Return whether the message with this id begins a replay: it was over, and is shown again."""
        return self.replays > 0 and id in [*{**self.before, **self.texts}][:-1]

    def begin_replay(self) -> dict[str, str]:
        """Begin with no texts, and return the messages that were on their way, as far as they had come."""
        on_its_way = self._so_far()
        self.texts, self.before = {}, {}
        self.replays -= 1
        return on_its_way

    def _so_far(self) -> dict[str, str]:
        return {id: self.before.get(id, "") + text for id, text in self.texts.items()}


def _texts_of_sessions(heard: Iterable[Heard]) -> Iterator[tuple[_Name, str, bool]]:
    """Yield the texts of messages as sessions are shown them, and whether they are final."""
    sessions: dict[str, _Session] = {}
    for each in heard:
        update = each.params.get("update") or {}
        kind = update.get("sessionUpdate")
        if each.sent and each.method == "session/load":
            sessions.setdefault(each.params["sessionId"], _Session()).ask_for()
        elif "sessionId" in (each.message.get("result") or {}):
            sessions.setdefault(each.message["result"]["sessionId"], _Session()).is_known = True
        elif kind in ("user_message_chunk", "agent_message_chunk"):
            id, session = update["messageId"], sessions.setdefault(each.params["sessionId"], _Session())
            if session.replay_begins_with(id):
                for on_its_way, text in session.begin_replay().items():
                    yield (each.params["sessionId"], on_its_way), text, False
            session.texts[id] = session.texts.get(id, "") + update["content"].get("text", "")
    for name, session in sessions.items():
        for id, text in session.texts.items():
            yield (name, id), text, True
