"""The habits of one world: the events that may happen in it, and how often. A world leaves most of them out.

Worlds that each leave out most events find more than worlds with a little of everything (swarm testing).
"""

from dataclasses import dataclass, replace

from tests.simulation.draws import Draws
from tests.simulation.moments import ALL_SIGNS, MOMENTS, Moment, edges

CALL_KINDS = (
    "shell",
    "read",
    "escalated",
    "patch",
    "patch",
    "patch",
    "plan",
    "unknown",
    "broken",
    "terminal",
    "input",
)
REQUEST_FAULTS = ("unreachable", "no answer", "late", "401", "429", "500", "503")
STREAM_FAULTS = ("cut", "idle", "garbage", "no end", "two ends", "failed", "a call twice")
DEEDS = (
    "interrupt",
    "steer",
    "settings",
    "second turn",
    "resume",
    "read",
    "fork",
    "archive",
    "compact",
    "review",
    "shell",
    "name",
    "rollback",
    "leave",
)
"""Actions of a person besides sending a message."""
GOALS = ("goal", "goal", "no goal")
"""Deeds about the goal of a thread."""
ANSWERS = (
    ("yes",),
    ("no",),
    ("yes", "no", "session"),
    ("yes", "abort"),
    ("malformed", "yes", "error"),
    ("twice", "never", "no"),
    ("interrupt", "no", "yes"),
)
"""Kinds of answers to questions. A person has one of these tuples."""
HOOKS = (
    ("agrees",),
    ("agrees", "denies"),
    ("agrees", "fails", "no JSON", "text before its answer"),
    ("hangs", "agrees"),
    ("is killed", "denies", "hangs", "launch error", "fails", "agrees"),
)
"""Outcomes of hooks. A world with hooks has one of these tuples."""
SHARED, MIDDLE = "shared.txt", "the middle of the file"
"""File of a world whose people go back, and the line behind which patches of the model add theirs. Commands and people
add lines, too.
"""
TURNS_OWN = ("interrupt", "second turn", "steer", "shell")
"""Deeds that concern the turn itself or make others wait. They are done more often."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of one world, drawn once for each."""

    api: str
    threads: int
    turns: int
    gaps: tuple[float, ...]
    """Pauses between two deeds of a person, in virtual seconds."""
    deeds: tuple[str, ...]
    eagerness: float
    """Probability that a deed is done in a turn."""
    idle_deeds: float
    """Probability that a deed is done before a turn, while nothing or something else runs."""
    impatient: bool
    """Whether a person does the next deed before the last one is answered."""
    changes_mind: float
    """Probability that a person who interrupts sends another message at once."""
    bursts: float
    """Probability that a deed follows another at once."""
    interrupts: float
    moments: tuple[Moment, ...]
    """Moments of a turn at which a deed is done."""
    thinking: tuple[float, ...]
    """Delays until a question is answered, in virtual seconds. The last may be infinite."""
    answers: tuple[str, ...]
    approval_policy: str
    sandbox_mode: str
    tool_calls: float
    calls_per_reply: tuple[int, ...]
    call_kinds: tuple[str, ...]
    repeats: float
    """Probability that a command is one that ran before."""
    call_ids_repeat: bool
    """Whether the ids of calls count from one in each reply."""
    reasoning: float
    pieces: tuple[int, ...]
    """Numbers of deltas in which a message may come."""
    tokens: tuple[int, ...]
    network_delays: tuple[float, ...]
    chunk_sizes: tuple[int, ...]
    request_faults: tuple[str, ...]
    stream_faults: tuple[str, ...]
    retries: int
    durations: tuple[float, ...]
    """Durations of a command, in virtual seconds."""
    outcomes: tuple[str, ...]
    """Outcomes of commands."""
    disk_faults: float
    slow_disk: tuple[float, ...]
    """Durations of a write in virtual seconds, during which nothing else happens."""
    full_disk: bool
    """Whether the disk is full from some moment on until the faults stop."""
    thread_delays: tuple[float, ...]
    crash_at: int | None
    """Number of the step before which the process is killed; a second server goes on with the files on the disk. None
    if it is not killed at a step.
    """
    crash_sign: tuple[str, int] | None
    """Sign at which the process is killed, and the number of its occurrence. None if it is not killed at a sign."""
    crash_later: float
    """Delay of the kill after that sign, in virtual seconds."""
    crash_write: int | None
    """Number of the write of a stored file right after which the process is killed. None if it is not killed at a
    write.
    """
    power_cut: bool
    """Whether the data that was not synced is lost with the process."""
    clock_jumps: tuple[tuple[int, float], ...]
    """Clock jumps: the step before which the clock jumps, and the number of seconds. A jump back moves only the wall
    clock.
    """
    terminals: bool
    """Whether the model is offered terminals."""
    context_window: int | None
    mcp: bool
    """Whether there is an MCP server."""
    mcp_starts: tuple[str, ...]
    mcp_calls: tuple[str, ...]
    reflex: str | None
    """Sign at which people do something else at once, repeatedly. None if there is none."""
    comes_back: bool
    """Whether a client that leaves connects again, to a new server."""
    visitor: bool
    """Whether another server runs on the same home."""
    company: tuple[str, ...]
    """APIs of further clients of the same server, which outlives each of them."""
    unattended: tuple[float, float]
    """Times for which such a server lets a turn run, and a question wait, without any client, in virtual seconds."""
    both_apis: bool
    """Whether a client of threads also listens and sends as a client of the conversation API."""
    wishes: float
    """Probability that a message comes with settings or a schema for the answer."""
    client_tools: bool
    """Whether clients of threads bring a tool."""
    read_faults: float
    """Probability that reading or moving a stored file fails."""
    hooks: tuple[str, ...]
    """Outcomes of the user's hooks; empty without hooks."""
    goes_back: bool
    """Whether people write files and go back, and commands and patches change files that are there."""
    crash_restore: int | None
    """Number of the change of a file by a restore before which the process is killed. None if it is not killed there.
    """
    repository: bool
    """Whether the workspace is a git repository."""
    git_seconds: float
    """Duration of a git command, in seconds."""


def _some(
    draws: Draws, kind: str, plain: str, others: tuple[str, ...], alone: float = 0.0
) -> tuple[str, ...]:
    """Draw a few of the others, a third as often as the plain one, or none. `alone` is the probability that the plain
    one is left out when there are others.
    """
    count = draws.pick(f"number of {kind}", (0, 0, 1, 2, 4))
    chosen = tuple(draws.pick(kind, others) for _ in range(count))
    if chosen and draws.chance(f"{kind} alone", alone):
        return chosen
    return (plain,) * max(3 * len(chosen), 1) + chosen


def _moments(draws: Draws) -> tuple[Moment, ...]:
    """Draw the moments of deeds: any time, the edges of what the server does, or the edges of one part."""
    match draws.pick("moments", ("any", "edges", "an edge"), (2, 2, 3)):
        case "any":
            return MOMENTS
        case "edges":
            return edges(*ALL_SIGNS)
        case _:
            return edges(draws.pick("edge", ALL_SIGNS))


def _company(draws: Draws) -> tuple[str, ...]:
    """Draw the APIs of the clients beside the first one. There are usually none."""
    others = draws.pick("company", (0, 1, 2, 3), (0.8, 0.1, 0.07, 0.03))
    return tuple(draws.pick("api of company", ("v2", "v2", "v1", "acp")) for _ in range(others))


def _clock_jump(draws: Draws, company: tuple[str, ...]) -> float:
    """Draw the size of a clock jump in seconds. It is limited where clients share a server: a client that seems to have
    read nothing for long is disconnected.
    """
    seconds = draws.pick("clock jump", (3600.0, -600.0, 90.0))
    return min(seconds, 90.0) if company else seconds


def _with_work(draws: Draws, habits: Habits) -> Habits:
    """Return habits with which most turns change files and end, so that there is something to go back from."""
    return replace(
        habits,
        threads=draws.pick("threads with work", (1, 1, 1, 2)),
        turns=draws.pick("turns with work", (3, 6)),
        deeds=("write", "go back") if draws.chance("deeds in turns with work", 0.5) else (),
        interrupts=draws.pick("interrupts of work", (0.0, 0.0, 0.3)),
        answers=draws.pick("answers about work", (("yes",), ("yes", "no", "session"))),
        tool_calls=0.8,
        terminals=False,
        wishes=0.0,
        call_kinds=("patch", "patch", "patch", "shell"),
        request_faults=("none",),
        stream_faults=draws.pick("stream faults of work", (("none",), ("none",) * 5 + ("cut",))),
        durations=draws.pick("durations of work", ((0.2,), (0.0, 2.0))),
        outcomes=draws.pick("outcomes of work", (("0",), ("0", "0", "1"))),
        clock_jumps=(),
        hooks=(),
    )


def draw_habits(draws: Draws) -> Habits:
    """Draw the habits of a world."""
    client_tools = draws.chance("tools of clients", 0.15)
    goals = draws.chance("goals", 0.15)
    both_apis = not goals and draws.chance("both APIs", 0.2)
    deeds = draws.pick("number of deeds", (1, 0, 3, 7))
    crashes = draws.pick("crash", (None, "at a step", "at a sign"), (0.75, 0.1, 0.15))
    if crashes is None:
        crashes = draws.pick("another crash", (None, "in a text", "behind a write"), (0.86, 0.07, 0.07))
    reflex = draws.pick("reflex", (None, "compaction", *ALL_SIGNS), (12, 1, *(0.2 for _ in ALL_SIGNS)))
    mcp = draws.chance("MCP", 0.2)
    terminals = draws.chance("terminals", 0.25)
    company = _company(draws)
    goes_back = draws.chance("goes back", 0.25)
    habits = Habits(
        api=draws.pick("api", ("v2", "v1", "acp", "library"), (5, 3, 2, 2)),
        threads=draws.pick("threads", (1, 1, 2, 3)),
        turns=draws.pick("turns", (1, 2, 3, 6)),
        gaps=draws.pick("gaps", ((0.0,), (1.0,), (0.0, 0.02, 1.0), (20.0, 0.0))),
        deeds=(
            *(draws.pick("deed", (*DEEDS, *TURNS_OWN, *TURNS_OWN)) for _ in range(deeds)),
            *(GOALS if goals else ()),
            *(("write", "go back") if goes_back else ()),
        ),
        eagerness=draws.pick("eagerness", (0.4, 0.9)),
        idle_deeds=draws.pick("deeds before words", (0.0, 0.3)),
        impatient=draws.chance("impatience", 0.3),
        changes_mind=draws.pick("changes of mind", (0.0, 0.0, 0.7)),
        bursts=draws.pick("bursts", (0.0, 0.0, 0.7)),
        interrupts=draws.pick("interrupts", (0.0, 0.0, 0.1, 0.5, 0.9)),
        moments=_moments(draws),
        thinking=draws.pick("thinking", ((0.0,), (0.3,), (3.0, 0.0), (0.0, 400.0))),
        answers=draws.pick("answers", ANSWERS),
        approval_policy=draws.pick(
            "policy", ("never", "untrusted", "on-request", "on-failure"), (2, 4, 2, 2)
        ),
        sandbox_mode=draws.pick("sandbox where files change", ("danger-full-access", "workspace-write"))
        if goes_back
        else draws.pick("sandbox", ("danger-full-access", "workspace-write", "read-only")),
        tool_calls=draws.pick("chance of calls", (0.7,) if goes_back else (0.3, 0.0, 0.7, 0.7)),
        calls_per_reply=draws.pick("calls", ((1,), (1,), (2, 1), (4,))),
        call_kinds=(
            *_some(draws, "call kind", "shell", CALL_KINDS, alone=0.5),
            *(("terminal", "terminal", "input") if terminals else ()),
            *(("mcp",) * 4 if mcp else ()),
            *(("client",) * 4 if client_tools else ()),
            *(("goal",) if goals else ()),
            *(("patch", "patch", "shell") * 2 if goes_back else ()),
        ),
        repeats=draws.pick("repeats", (0.0, 0.0, 0.3)),
        call_ids_repeat=not terminals and draws.chance("call ids repeat", 0.3),
        reasoning=draws.pick("reasoning", (0.0, 0.3)),
        pieces=(12,)
        if crashes == "in a text"
        else draws.pick("pieces of messages", ((1, 0, 3), (1, 0, 3), (12, 3))),
        tokens=(10, 2000)
        if reflex == "compaction"
        else draws.pick("tokens of replies", ((10,), (10, 900), (2000,))),
        network_delays=draws.pick("slow network", ((0.5,), (0.0, 0.5), (0.0, 3.0)))
        if crashes == "in a text" or reflex
        else draws.pick("network", ((0.0,), (0.01,), (0.0, 0.5), (0.0, 3.0))),
        chunk_sizes=draws.pick("small chunks", ((400,), (97, 1000)))
        if crashes == "in a text"
        else draws.pick("chunk sizes", ((1 << 20,), (400,), (97, 1000), (37, 1 << 20))),
        request_faults=_some(draws, "request fault", "none", REQUEST_FAULTS),
        stream_faults=_some(draws, "stream fault", "none", STREAM_FAULTS),
        retries=draws.pick("retries", (0, 1, 3)),
        durations=draws.pick("durations", ((0.0,), (0.2,), (0.0, 2.0), (30.0, 0.0), (1e9, 0.5))),
        outcomes=draws.pick(
            "outcomes",
            (
                ("0",),
                ("0", "1"),
                ("0", "denied", "1"),
                ("0", "flood"),
                ("launch error", "0"),
                ("launch error",),
                ("0", "signal", "unavailable"),
            ),
        ),
        disk_faults=draws.pick("disk faults", (0.0, 0.0, 0.0, 0.05, 0.4)),
        slow_disk=draws.pick("slow disk", ((0.0,), (0.0,), (0.0,), (0.0, 0.5))),
        full_disk=draws.chance("full disk", 0.05),
        thread_delays=draws.pick("thread delays", ((0.0,), (0.0, 0.01), (0.0, 1.0))),
        crash_at=100 + draws.below("step of the crash", draws.pick("last step of a crash", (3000, 1000, 300)))
        if crashes == "at a step"
        else None,
        crash_sign=(
            draws.pick("sign of the crash", ALL_SIGNS),
            1 + draws.below("signs before the crash", 6),
        )
        if crashes == "at a sign"
        else ("text", 1 + draws.below("texts before the crash", 8))
        if crashes == "in a text"
        else None,
        crash_later=draws.pick("later than the text", (0.3, 1.0, 3.0)) if crashes == "in a text" else 0.0,
        crash_write=(
            1 + draws.below("writes before the crash", draws.pick("last write of a crash", (60, 20)))
            if crashes == "behind a write"
            else None
        ),
        power_cut=draws.chance("power cut", 0.3),
        clock_jumps=tuple(
            (50 + draws.below("step of a clock jump", 2000), _clock_jump(draws, company))
            for _ in range(draws.pick("clock jumps", (0, 1, 3), (0.85, 0.1, 0.05)))
        ),
        terminals=terminals,
        context_window=1500 if reflex == "compaction" else draws.pick("window", (None, None, None, 1500)),
        mcp=mcp,
        mcp_starts=draws.pick(
            "MCP starts", (("fine",), ("fine",), ("fine", "slow", "dies"), ("mute",), ("refused",))
        ),
        mcp_calls=draws.pick(
            "MCP calls",
            (
                ("fine",),
                ("fine", "error", "garbage"),
                ("asks", "fine"),
                ("dies", "fine", "hangs"),
                ("asks and dies", "asks"),
            ),
        ),
        reflex=reflex,
        comes_back=draws.chance("comes back", 0.5),
        visitor=draws.chance("visitor", 0.15),
        company=company,
        unattended=(
            draws.seconds("turn without anybody", 3600.0, 40.0, 0.0),
            draws.seconds("question without anybody", 86400.0, 100.0, 0.0),
        ),
        both_apis=both_apis,
        wishes=draws.pick("wishes", (0.0, 0.0, 0.4)),
        client_tools=client_tools,
        # A revert that cannot be read closes its thread, and a client that listens over the old API is not notified.
        read_faults=0.0 if company else draws.pick("read faults", (0.0, 0.0, 0.0, 0.0, 0.05)),
        hooks=draws.pick("hooks", ((), *HOOKS), (0.8, *(0.2 / len(HOOKS) for _ in HOOKS))),
        goes_back=goes_back,
        crash_restore=1 + draws.below("changes before the crash", 4)
        if goes_back and crashes is None and draws.chance("crash in a restore", 0.3)
        else None,
        repository=goes_back and draws.chance("repository", 0.25),
        git_seconds=draws.seconds("time of git", 0.0, 0.02, 0.5) if goes_back else 0.0,
    )
    with_work = goes_back and draws.chance("work", 0.75)
    return _with_work(draws, habits) if with_work else habits
