"""Messages between the coordinator and its workers, as lines of JSON, and the fields of a result. Pure.

The lines are sent over pipes on one machine, and through actors on many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from app_server.cli.batch.batch_tasks import Checkout, Task
from app_server.engine.config.config_values import CliOverrides
from app_server_protocol.encoding import Json

HOMES, CHECKOUTS, WORK = "homes", "checkouts", ".work"
"""Names of the batch's folders: for threads, by machine; for checkouts that are kept; for those in use."""

Status = Literal["completed", "failed", "checkFailed", "timedOut", "overBudget", "lost"]
Keep = Literal["failed", "all", "none"]
Ending = Literal["final", "retry", "interrupted", "refused"]
"""Meaning of an attempt for its task. "final": it is the result. "retry": another attempt may succeed. "interrupted"
and "refused": it does not count, because it was interrupted, or because the provider refuses the login.
"""


Amount = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A number from another machine. JSON represents it exactly, and sums of such numbers stay small."""
NodeName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,254}\Z")]
"""Name of a machine, which is also the name of a folder."""
RolloutPlace = Annotated[
    str, Meta(pattern=r"\Asessions/[0-9]{4}/[0-9]{2}/[0-9]{2}/rollout-[A-Za-z0-9._-]{1,200}\.jsonl\Z")
]
"""Path of a thread's file, relative to a home."""


class TaskUsage(Struct, frozen=True, rename="camel"):
    """Tokens, and the number of requests to the model that used them."""

    input_tokens: Amount = 0
    cached_input_tokens: Amount = 0
    output_tokens: Amount = 0
    requests: Amount = 0
    cost: float | None = None
    """Cost. None if a model has no price, or the cost was not computed yet."""

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TaskUsage) -> TaskUsage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return TaskUsage(*[*map(add, astuple(self)[:-1], astuple(other)[:-1]), cost])


class Seconds(Struct):
    """Times of the parts of an attempt, in seconds. `queued` is the time that it waited for the limits of all tasks."""

    queued: float = 0.0
    checkout: float = 0.0
    setup: float = 0.0
    turn: float = 0.0


class CheckResult(Struct, frozen=True, rename="camel"):
    """Outcome of the command that checks the work of a task."""

    exit_code: int
    seconds: float


class ResultError(Struct, frozen=True):
    message: str


class Result(Struct, kw_only=True, rename="camel"):
    """A line of `results.jsonl`. The worker does not know the usage of all attempts, nor the path of the patch."""

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
    """Descriptions of the requests that would have needed an approval. Unset if there were none."""
    started_at: str = ""
    seconds: Seconds = msgspec.field(default_factory=Seconds)
    error: ResultError | None = None
    node: str = ""
    """Name of the machine on which it ran."""
    meta: Mapping[str, Json] | None = None


# --- messages to a worker
class Doing(Struct, frozen=True, kw_only=True):
    """Settings of the work of all tasks, from the command line."""

    overrides: CliOverrides
    checkout: Checkout
    schema: Json = None


class Setup(Struct, frozen=True, kw_only=True, tag="setup"):
    """Facts about all tasks. It is the first message."""

    folder: str
    """Folder to which the paths of tasks are relative."""
    out: str
    """The batch's folder."""
    shared: bool
    """Whether checkouts and threads are stored in the batch's folder. If not, they are stored in a temporary one, and
    threads are sent back.
    """
    doing: Doing
    seconds: float
    keep: Keep
    node: str = ""
    """Name of the machine in results, which its worker knows."""


class Run(Struct, frozen=True, tag="run"):
    """Start of a task. Its `ref` is the commit that was found when the batch began."""

    task: Task


class Pass(Struct, frozen=True, tag="pass"):
    """Permission to send a task's request. With `never` it may never be sent, because a budget of the whole batch is
    used up.
    """

    id: str
    never: bool = False


class InterruptTasks(Struct, frozen=True, tag="interrupt"):
    """Request to interrupt all running tasks."""


# --- messages of a worker
class Ready(Struct, frozen=True, tag="ready"):
    node: NodeName


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """A waiting request of a task. A task has at most one at a time. `size` is its expected size in tokens. `first`
    says that it may be the first of its attempt.
    """

    id: str
    size: Amount
    first: bool


class Over(Struct, frozen=True, kw_only=True, tag="over"):
    """End of a task's request, which may not have been sent after all."""

    id: str
    model: str
    usage: TaskUsage
    limited: bool = False
    """Whether the provider asks for fewer requests."""
    retry_after: float | None = None


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """End of an attempt."""

    result: Result
    ending: Ending = "final"
    patch: bytes = b""
    events: bytes = b""
    rollout: tuple[RolloutPlace, bytes] | None = None
    """Path relative to its home and content of the thread's file. None if the coordinator can see that home."""


ToWorker = Setup | Run | Pass | InterruptTasks
FromWorker = Ready | Ask | Over | Ended

M = TypeVar("M")


class WrongMessage(Exception):
    """The other side sent an invalid message: it is broken, or lies."""


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
    """Return a value without half characters (lone surrogates), which no file can hold, although models send them."""
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
