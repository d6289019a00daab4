"""What the coordinator and its workers say to each other, as lines of JSON: over pipes on one machine, through actors
on many; and what a result is made of. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from app_server.batch.tasks import Checkout, Task
from app_server.core.config.types import CliOverrides
from app_server_protocol.structs import Json

HOMES, CHECKOUTS, WORK = "homes", "checkouts", ".work"
"""Folders of the batch's: for threads, by machines; for checkouts that are kept; for those that are used."""

Status = Literal["completed", "failed", "checkFailed", "timedOut", "overBudget", "lost"]
Keep = Literal["failed", "all", "none"]
Ending = Literal["final", "retry", "interrupted", "refused"]
"""What an attempt means for its task: it is done; it may do better next time; it counts for nothing, because it was
interrupted, or because the provider refuses the login."""


Amount = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A number from another machine: what JSON holds exactly, and sums of which are small."""
NodeName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,254}\Z")]
"""The name of a machine, which is the name of a folder, too."""
RolloutPlace = Annotated[
    str, Meta(pattern=r"\Asessions/[0-9]{4}/[0-9]{2}/[0-9]{2}/rollout-[A-Za-z0-9._-]{1,200}\.jsonl\Z")
]
"""The file of a thread, by its place in a home."""


class TaskUsage(Struct, frozen=True, rename="camel"):
    """Tokens, and the requests to the model that took them."""

    input_tokens: Amount = 0
    cached_input_tokens: Amount = 0
    output_tokens: Amount = 0
    requests: Amount = 0
    cost: float | None = None
    """None where a model has no price, or nobody has asked for it yet."""

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TaskUsage) -> TaskUsage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return TaskUsage(*[*map(add, astuple(self)[:-1], astuple(other)[:-1]), cost])


class Seconds(Struct):
    """Parts of the time of an attempt. `queued` is what it waited for the limits that all tasks share."""

    queued: float = 0.0
    checkout: float = 0.0
    setup: float = 0.0
    turn: float = 0.0


class CheckResult(Struct, frozen=True, rename="camel"):
    """End of the command that checks what a task did."""

    exit_code: int
    seconds: float


class ResultError(Struct, frozen=True):
    message: str


class Result(Struct, kw_only=True, rename="camel"):
    """A line of `results.jsonl`. Its worker does not know what all attempts took, nor where the patch is."""

    id: str
    status: Status = "failed"
    attempts: int = 0
    thread_id: str | None = None
    final_message: str | None = None
    output: Json = None
    patch: str | None = None
    files: Amount = 0
    check: CheckResult | None = None
    usage: TaskUsage = TaskUsage()
    declined: Amount = 0
    declined_requests: tuple[str, ...] | UnsetType = UNSET
    """What would have needed an approval, where something did."""
    started_at: str = ""
    seconds: Seconds = msgspec.field(default_factory=Seconds)
    error: ResultError | None = None
    node: str = ""
    """The machine that it ran on."""
    meta: Mapping[str, Json] | None = None


# --- what a worker is told
class Doing(Struct, frozen=True, kw_only=True):
    """Settings of what tasks do, from the command line."""

    overrides: CliOverrides
    checkout: Checkout
    schema: Json = None


class Setup(Struct, frozen=True, kw_only=True, tag="setup"):
    """Facts about all tasks; the first message."""

    folder: str
    """What the paths of tasks are relative to."""
    out: str
    """The batch's folder."""
    shared: bool
    """Checkouts and threads go into that folder; else into a temporary one, and threads are sent back."""
    doing: Doing
    seconds: float
    keep: Keep
    node: str = ""
    """The machine's name in results, which its worker knows."""


class Run(Struct, frozen=True, tag="run"):
    """The task runs now; its `ref` is the commit that it was when the batch began."""

    task: Task


class Pass(Struct, frozen=True, tag="pass"):
    """The request of a task may be sent; or may never be, where a budget of the whole batch is used up."""

    id: str
    never: bool = False


class InterruptTasks(Struct, frozen=True, tag="interrupt"):
    """Running tasks end now."""


# --- what a worker says
class Ready(Struct, frozen=True, tag="ready"):
    node: NodeName


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """A request of a task waits, of which one follows another: it takes about so many tokens. Of its attempt it may be
    the first.
    """

    id: str
    size: Amount
    first: bool


class Over(Struct, frozen=True, kw_only=True, tag="over"):
    """The request of a task is over, or was not sent after all."""

    id: str
    model: str
    usage: TaskUsage
    limited: bool = False
    """The provider asks for fewer requests."""
    retry_after: float | None = None


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """An attempt is over."""

    result: Result
    ending: Ending = "final"
    patch: bytes = b""
    events: bytes = b""
    rollout: tuple[RolloutPlace, bytes] | None = None
    """The thread's file, by its place in its home, where the coordinator cannot see that home."""


ToWorker = Setup | Run | Pass | InterruptTasks
FromWorker = Ready | Ask | Over | Ended

M = TypeVar("M")


class WrongMessage(Exception):
    """The other side says something that it cannot mean: it is broken, or lies."""


def _telling_wrong(decode: Callable[[bytes], M]) -> Callable[[bytes], M]:
    def decoded(line: bytes) -> M:
        try:
            return decode(line)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise WrongMessage(str(error)) from None

    return decoded


for_worker: Callable[[bytes], ToWorker] = _telling_wrong(msgspec.json.Decoder(ToWorker).decode)
from_worker: Callable[[bytes], FromWorker] = _telling_wrong(msgspec.json.Decoder(FromWorker).decode)


def storable(value: Json) -> Json:
    """Return a value without half characters (lone surrogates), which no file can hold; models send them."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return value
        case list():
            return [storable(each) for each in value]
        case dict():
            return {storable(key): storable(each) for key, each in value.items()}
        case _:
            return value
