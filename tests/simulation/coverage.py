"""Coverage of simulated worlds: the situations that came about, and which event met which state of a thread."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.simulation.journal import Entry
from tests.simulation.thread_states import DEEDS, FAULTS, STATES, Threads

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
    "an MCP server asked the user",
    "killed while a turn runs",
    "a patch was written",
    "the user wrote a file",
    "a restore changed files",
    "a restore kept files",
    "a restore was undone",
    "killed in a restore",
    "a session went back",
    "a restore in a repository",
    *FAULTS,
)
"""Situations that matter. Each has to come about in the worlds that the tests play."""

EVENTS = (*dict.fromkeys(DEEDS.values()), *FAULTS)
PAIRS = tuple(f"{event} while {state}" for event in EVENTS for state in STATES)


def situations_of(journal: Sequence[Entry]) -> Counter[str]:
    """Count how often each situation came about, and each event while a thread was in each state."""
    threads = Threads()
    seen = Counter(f"{event} while {state}" for entry in journal for event, state in threads.take(entry))
    seen["an interrupt while a question is open"] = seen["interrupt while asked"]
    seen["words during the last reply"] = seen["say while speaking"] + seen["steer while speaking"]
    seen["a stored thread read while a turn runs"] = sum(
        seen[f"read while {state}"] for state in STATES if state != "idle"
    )
    shown: set[str] = set()
    for entry in journal:
        if entry.counts:
            seen[entry.message] += 1
        if not entry.who or entry.sent:
            continue
        method = entry.message.get("method")
        if method == "item/agentMessage/delta":
            shown.add(entry.who)
        elif method == "error" and entry.message["params"].get("willRetry"):
            seen["a retry after text was shown"] += entry.who in shown
        elif method == "turn/completed":
            shown.discard(entry.who)
        elif method == "item/started":
            seen["compaction"] += entry.message["params"]["item"]["type"] == "contextCompaction"
    return +seen


def reached(seen: Mapping[str, int]) -> str:
    """Return a short summary of what was reached."""
    pairs = sum(pair in seen for pair in PAIRS)
    situations = sum(name in seen for name in SITUATIONS)
    return f"{pairs} of {len(PAIRS)} pairs, {situations} of {len(SITUATIONS)} situations"


def situations_table(seen: Mapping[str, int]) -> str:
    """Return a table of how often each situation was reached, and of what was never reached."""
    lines = [f"{seen.get(name, 0):8}  {name}" for name in SITUATIONS]
    width, head = max(map(len, STATES)), max(map(len, EVENTS))
    lines += ["", "event \\ state".ljust(head) + "".join(f" {state:>{width}}" for state in STATES)]
    for event in EVENTS:
        counts = (seen.get(f"{event} while {state}", 0) for state in STATES)
        lines.append(f"{event:{head}} " + " ".join(f"{count:>{width}}" for count in counts))
    never = [name for name in (*SITUATIONS, *PAIRS) if name not in seen]
    lines += ["", f"reached: {reached(seen)}", "never reached: " + (", ".join(never) or "nothing")]
    return "\n".join(lines)
