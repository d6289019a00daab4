"""What simulated worlds came through: situations that matter, counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.structs import Json
from tests.simulation.journal import Entry

IN_TURNS = (
    "an interrupt while a question is open",
    "a retry after text was shown",
    "words during the last reply",
    "a stored thread read while a turn runs",
    "compaction",
)
"""Which messages of the thread API show; the other situations have a note in the journal."""
SITUATIONS = (
    *IN_TURNS,
    "two questions open at once",
    "a yes after its turn",
    "a thread that is open elsewhere was refused",
    "a visitor took a thread over",
    "an MCP server asked the user",
    "killed while a turn runs",
    "an MCP server died",
    "a clock jumped",
    "the disk is full",
    "write failed",
    "short write",
    "fsync failed",
    "open failed",
    "pread failed",
    "rename failed",
    "stream cut",
    "stream idle",
    "status 401",
    "status 429",
    "status 500",
    "status 503",
    "killed",
    "power cut",
    "somebody left",
    "somebody came back",
)
"""Each has to come about in the worlds that the tests play."""

INTERRUPTS = ("turn/interrupt", "interruptConversation", "session/cancel")


@dataclass(slots=True)
class _Known:
    """What a client of the thread API knows to be going on."""

    turns: set[Json] = field(default_factory=set)
    messages: set[Json] = field(default_factory=set)
    """Of the model, that have begun and not ended."""
    questions: set[Json] = field(default_factory=set)
    was_shown_text: bool = False
    """In the turn that runs."""


def situations_of(journal: Sequence[Entry]) -> Counter[str]:
    """Return how often each situation came about."""
    seen = Counter(entry.message for entry in journal if entry.counts)
    clients: dict[str, _Known] = {}
    for entry in journal:
        if entry.who:
            found = _situation(clients.setdefault(entry.who, _Known()), entry.message, sent=entry.sent)
            seen[found] += found != ""
    return +seen


def _situation(known: _Known, message: Json, *, sent: bool) -> str:
    """Take note of a message; return the situation that it shows, or nothing."""
    method, id, params = message.get("method", ""), message.get("id"), message.get("params") or {}
    in_question, shows_text, in_message, in_turn, compacts = IN_TURNS
    if sent and not method:
        known.questions.discard(id)
    elif not sent and method and id is not None:
        known.questions.add(id)
    match method:
        case _ if sent and method in INTERRUPTS and known.questions:
            return in_question
        case "turn/start" | "turn/steer" if known.messages:
            return in_message
        case "thread/read" if known.turns:
            return in_turn
        case "serverRequest/resolved":
            known.questions.discard(params["requestId"])
        case "turn/started":
            known.turns.add(params["turn"]["id"])
        case "turn/completed":
            known.turns.discard(params["turn"]["id"])
            known.was_shown_text = False
        case "item/started" if params["item"]["type"] == "agentMessage":
            known.messages.add(params["item"]["id"])
        case "item/started" if params["item"]["type"] == "contextCompaction":
            return compacts
        case "item/completed":
            known.messages.discard(params["item"]["id"])
        case "item/agentMessage/delta":
            known.was_shown_text = True
        case "error" if params.get("willRetry") and known.was_shown_text:
            return shows_text
    return ""


def reached(seen: Mapping[str, int]) -> str:
    """Return how much came about, in a few words."""
    return f"{sum(name in seen for name in SITUATIONS)} of {len(SITUATIONS)} situations"


def situations_table(seen: Mapping[str, int]) -> str:
    """Return what came about how often, as text."""
    return "\n".join(f"{seen.get(name, 0):8}  {name}" for name in SITUATIONS)
