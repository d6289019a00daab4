"""The habits of one world: what may happen in it, and how often. A world leaves most things out.

Worlds that each leave out most things find more than worlds that do a little of everything (swarm testing).
"""

from dataclasses import dataclass

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
"""What a person may do beside saying something."""
GOALS = ("goal", "goal", "no goal")
"""Deeds about what a thread works for by itself."""
ANSWERS = (
    ("yes",),
    ("no",),
    ("yes", "no", "session"),
    ("yes", "abort"),
    ("malformed", "yes", "error"),
    ("twice", "never", "no"),
    ("interrupt", "no", "yes"),
)
"""What somebody answers to questions, one of these."""
TURNS_OWN = ("interrupt", "second turn", "steer", "shell")
"""What is about the turn itself, or makes others wait, and is done more often."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Drawn once for each world."""

    api: str
    threads: int
    turns: int
    gaps: tuple[float, ...]
    """Seconds between two deeds of a person."""
    deeds: tuple[str, ...]
    eagerness: float
    """The chance that a deed is done in a turn."""
    idle_deeds: float
    """The chance that it is done before a turn, while nothing or something else runs."""
    impatient: bool
    """A person does the next thing before the last one is answered."""
    changes_mind: float
    """The chance that somebody who interrupts says something else at once."""
    bursts: float
    """The chance that a deed follows another at once."""
    interrupts: float
    moments: tuple[Moment, ...]
    """When a deed is done in a turn."""
    thinking: tuple[float, ...]
    """Seconds until a question is answered; the last may be for ever."""
    answers: tuple[str, ...]
    approval_policy: str
    sandbox_mode: str
    tool_calls: float
    calls_per_reply: tuple[int, ...]
    call_kinds: tuple[str, ...]
    repeats: float
    """The chance that a command is one that ran before."""
    call_ids_repeat: bool
    """The ids of calls count from one in each reply."""
    reasoning: float
    pieces: tuple[int, ...]
    """In how many deltas a message comes."""
    tokens: tuple[int, ...]
    network_delays: tuple[float, ...]
    chunk_sizes: tuple[int, ...]
    request_faults: tuple[str, ...]
    stream_faults: tuple[str, ...]
    retries: int
    durations: tuple[float, ...]
    """Seconds that a command runs."""
    outcomes: tuple[str, ...]
    """How commands end."""
    disk_faults: float
    slow_disk: tuple[float, ...]
    """Seconds that a write takes, in which nothing else happens."""
    full_disk: bool
    """From some moment on, nothing can be written until the faults stop."""
    thread_delays: tuple[float, ...]
    crash_at: int | None
    """The step before which the process is killed; a second server goes on with what is on the disk."""
    crash_sign: tuple[str, int] | None
    """The same as people are shown something for the so manieth time."""
    crash_later: float
    """So many seconds behind that."""
    crash_write: int | None
    """The same right behind the so manieth write of a stored file."""
    power_cut: bool
    """With the process, what was not synced is lost."""
    clock_jumps: tuple[tuple[int, float], ...]
    """Before which steps the clock jumps, and by how many seconds: the wall clock alone, where it goes back."""
    terminals: bool
    """The model is offered terminals."""
    context_window: int | None
    mcp: bool
    """There is an MCP server."""
    mcp_starts: tuple[str, ...]
    mcp_calls: tuple[str, ...]
    reflex: str | None
    """The sign at which people do something else at once, time and again."""
    comes_back: bool
    """Who leaves connects again, to a new server."""
    visitor: bool
    """Another server runs on the same home."""
    company: tuple[str, ...]
    """The APIs of further clients of the same server, which outlives each of them."""
    unattended: tuple[float, float]
    """The seconds that such a server lets a turn run, and a question wait, without anybody."""
    both_apis: bool
    """A client of threads also listens and speaks as one of the conversation API does."""
    wishes: float
    """The chance that words come with settings or a schema for the answer."""
    client_tools: bool
    """Clients of threads bring a tool."""
    read_faults: float
    """The chance that reading what is stored, or moving it, fails."""


def _some(
    draws: Draws, kind: str, plain: str, others: tuple[str, ...], alone: float = 0.0
) -> tuple[str, ...]:
    """Draw a few of the others, a third as often as the plain one, or none. `alone`: the chance that the plain one is
    left out where there are others.
    """
    count = draws.pick(f"number of {kind}", (0, 0, 1, 2, 4))
    chosen = tuple(draws.pick(kind, others) for _ in range(count))
    if chosen and draws.chance(f"{kind} alone", alone):
        return chosen
    return (plain,) * max(3 * len(chosen), 1) + chosen


def _moments(draws: Draws) -> tuple[Moment, ...]:
    """Draw when people do things: at any time, at the edges of what the server does, or at the edges of one part."""
    match draws.pick("moments", ("any", "edges", "an edge"), (2, 2, 3)):
        case "any":
            return MOMENTS
        case "edges":
            return edges(*ALL_SIGNS)
        case _:
            return edges(draws.pick("edge", ALL_SIGNS))


def _company(draws: Draws) -> tuple[str, ...]:
    """Draw who uses the first server beside the first client: nobody, as a rule."""
    others = draws.pick("company", (0, 1, 2, 3), (0.8, 0.1, 0.07, 0.03))
    return tuple(draws.pick("api of company", ("v2", "v2", "v1", "acp")) for _ in range(others))


def _clock_jump(draws: Draws, company: tuple[str, ...]) -> float:
    """Draw by how much a clock jumps: who shares a server is cut off when it seems to have read nothing for long."""
    seconds = draws.pick("clock jump", (3600.0, -600.0, 90.0))
    return min(seconds, 90.0) if company else seconds


def draw_habits(draws: Draws) -> Habits:
    """Draw a world's habits."""
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
    return Habits(
        api=draws.pick("api", ("v2", "v1", "acp", "library"), (5, 3, 2, 2)),
        threads=draws.pick("threads", (1, 1, 2, 3)),
        turns=draws.pick("turns", (1, 2, 3, 6)),
        gaps=draws.pick("gaps", ((0.0,), (1.0,), (0.0, 0.02, 1.0), (20.0, 0.0))),
        deeds=(
            *(draws.pick("deed", (*DEEDS, *TURNS_OWN, *TURNS_OWN)) for _ in range(deeds)),
            *(GOALS if goals else ()),
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
        sandbox_mode=draws.pick("sandbox", ("danger-full-access", "workspace-write", "read-only")),
        tool_calls=draws.pick("chance of calls", (0.3, 0.0, 0.7, 0.7)),
        calls_per_reply=draws.pick("calls", ((1,), (1,), (2, 1), (4,))),
        call_kinds=(
            *_some(draws, "call kind", "shell", CALL_KINDS, alone=0.5),
            *(("terminal", "terminal", "input") if terminals else ()),
            *(("mcp",) * 4 if mcp else ()),
            *(("client",) * 4 if client_tools else ()),
            *(("goal",) if goals else ()),
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
        # A revert that cannot be read closes its thread, and who listens over the old API is not told.
        read_faults=0.0 if company else draws.pick("read faults", (0.0, 0.0, 0.0, 0.0, 0.05)),
    )
