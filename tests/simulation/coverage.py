"""What simulated worlds came through: situations that matter, and which deed met which state of a thread."""

from collections import Counter
from collections.abc import Mapping, Sequence

from protocol.structs import Json
from tests.support.client import Logged

SITUATIONS = (
    "two questions open at once",
    "an interrupt while a question is open",
    "a retry after text was shown",
    "words during the last reply",
    "a yes after its turn",
    "a stored thread read while a turn runs",
    "compaction",
    "a thread that is open elsewhere was refused",
    "a visitor took a thread over",
    "somebody came back",
    "an MCP server died",
    "an MCP server asked the user",
    "killed",
    "killed while a turn runs",
    "power cut",
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
)
"""Each has to come about in the worlds that the tests play."""

DEEDS = {
    "turn/start": "say",
    "turn/steer": "steer",
    "turn/interrupt": "interrupt",
    "thread/resume": "resume",
    "thread/read": "read",
    "thread/fork": "fork",
    "thread/archive": "archive",
    "thread/compact/start": "compact",
    "thread/shellCommand": "shell",
    "thread/settings/update": "settings",
    "thread/name/set": "name",
    "thread/goal/set": "goal",
    "thread/goal/clear": "no goal",
    "review/start": "review",
    "thread/revert": "revert",
}
STATES = ("idle", "accepted", "asked", "speaking", "running", "between", "compacting")


class _Thread:
    """What a client knows of a thread."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.accepted = False
        self.items: dict[str, str] = {}
        self.questions: set[Json] = set()

    def state(self) -> str:
        if self.questions:
            return "asked"
        kinds = set(self.items.values())
        if "contextCompaction" in kinds:
            return "compacting"
        if kinds & {"agentMessage", "reasoning"}:
            return "speaking"
        if kinds:
            return "running"
        if self.turn is not None:
            return "between"
        return "accepted" if self.accepted else "idle"


def pairs(log: Sequence[Logged]) -> Counter[str]:
    """Return how often each deed met each state of its thread, over the thread API, as `deed while state`."""
    threads: dict[str, _Thread] = {}
    found: Counter[str] = Counter()
    for entry in log:
        message = entry.message
        params = message.get("params") or {}
        id = params.get("threadId")
        if not isinstance(id, str):
            continue
        thread = threads.setdefault(id, _Thread())
        method = message.get("method", "")
        if entry.sent:
            if method in DEEDS:
                found[f"{DEEDS[method]} while {thread.state()}"] += 1
                thread.accepted |= method == "turn/start"
        elif method == "turn/started":
            thread.turn, thread.accepted = params["turn"]["id"], False
        elif method == "turn/completed":
            thread.turn, thread.items, thread.questions = None, {}, set()
        elif method == "item/started":
            thread.items[params["item"]["id"]] = params["item"]["type"]
        elif method == "item/completed":
            thread.items.pop(params["item"]["id"], None)
        elif method == "serverRequest/resolved":
            thread.questions.discard(params.get("requestId"))
        elif "id" in message and method:
            thread.questions.add(message["id"])
    return found


def situations_of(log: Sequence[Logged]) -> Counter[str]:
    """Return the situations that can be read off what was said."""
    found = pairs(log)
    seen: Counter[str] = Counter(found)
    seen["an interrupt while a question is open"] = found["interrupt while asked"]
    seen["words during the last reply"] = found["say while speaking"] + found["steer while speaking"]
    seen["a stored thread read while a turn runs"] = sum(
        found[f"read while {state}"] for state in STATES if state != "idle"
    )
    seen["compaction"] = sum(
        1
        for entry in log
        if entry.message.get("method") == "item/started"
        and entry.message["params"]["item"]["type"] == "contextCompaction"
    )
    shown = False
    for entry in log:
        method = entry.message.get("method")
        if method == "item/agentMessage/delta":
            shown = True
        elif method == "error" and entry.message["params"].get("willRetry"):
            seen["a retry after text was shown"] += shown
        elif method == "turn/completed":
            shown = False
    return +seen


def situations_table(seen: Mapping[str, int]) -> str:
    """Return what was reached how often, and what never was, as text."""
    lines = [f"{seen.get(name, 0):8}  {name}" for name in SITUATIONS]
    width = max(map(len, STATES))
    lines += ["", "deed \\ state " + " ".join(f"{state:>{width}}" for state in STATES)]
    for deed in DEEDS.values():
        counts = (seen.get(f"{deed} while {state}", 0) for state in STATES)
        lines.append(f"{deed:12} " + " ".join(f"{count:>{width}}" for count in counts))
    never = [
        f"{deed} while {state}"
        for deed in DEEDS.values()
        for state in STATES
        if not seen.get(f"{deed} while {state}")
    ]
    missing = [name for name in SITUATIONS if not seen.get(name)]
    lines += ["", "never reached: " + (", ".join([*missing, *never]) or "nothing")]
    return "\n".join(lines)
