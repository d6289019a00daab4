"""The held load: many conversations that stream at once for a minute, and whether every delta arrives, in order.

`python -m benchmarks.held_load` plays it with this checkout's server, and with the one that REFERENCE_CODEX names
where it does. Model and client are processes of their own, so that what is measured is the server.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import replies
from benchmarks.model import serve_alone
from benchmarks.place import Place, temporary_place
from benchmarks.processes import cpu_seconds
from benchmarks.replies import Paced

OURS = (str(Path(sys.executable).with_name("app-server")), "app-server")
TICKS = 20
"""Writes of a stream per second; each holds the deltas of that time."""
DELTA = re.compile(rb'"agent_message_delta","delta":"([^"]*)"')
CONVERSATION = re.compile(rb'"conversationId":"([^"]+)"')
LATEST = 60
"""Seconds beyond the streams' own time after which what is missing counts as lost."""


@dataclass(frozen=True, slots=True)
class Shape:
    conversations: int = 100
    rate: int = 200
    """Deltas per second of each."""
    seconds: int = 60

    @property
    def deltas(self) -> int:
        return self.rate * self.seconds


# --- the model
def counting(shape: Shape) -> Paced:
    """Whatever is asked, numbers are counted aloud at a steady pace."""
    step = shape.rate // TICKS
    ticks = (range(said, said + step) for said in range(0, shape.deltas, step))
    counted = ([replies.delta(f"{n} ") for n in numbers] for numbers in ticks)
    whole = replies.says("".join(f"{n} " for n in range(shape.deltas)))
    return replies.paced(replies.begins(), *counted, whole, gap=1 / TICKS)


# --- the client
@dataclass(slots=True)
class Heard:
    """What one server said."""

    next: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    """The number that comes next, by conversation."""
    lines: int = 0
    wrong: list[str] = field(default_factory=list)
    ended: int = 0

    def take(self, line: bytes) -> None:
        self.lines += 1
        if b'"task_complete"' in line or b'"turn_aborted"' in line:
            self.ended += 1
        found = DELTA.search(line)
        conversation = CONVERSATION.search(line)
        if found is None or conversation is None:
            return
        id = conversation.group(1)
        for number in found.group(1).split():
            if int(number) != self.next[id] and len(self.wrong) < 10:
                self.wrong.append(f"{id.decode()}: {number.decode()} where {self.next[id]} was next")
            self.next[id] = int(number) + 1


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    seconds: float
    cpu: float
    megabytes: float
    lines: int
    lost: int
    wrong: tuple[str, ...]


def play(name: str, command: Sequence[str], shape: Shape) -> Result:
    model = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.held_load", "--model", *_words(shape)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert model.stdout is not None
    with temporary_place() as place:
        try:
            place.configure(model.stdout.readline().decode().strip(), "danger-full-access")
            with (place.root / "log").open("wb") as log:
                server = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=place.environment,
                    cwd=place.workspace,
                )
            try:
                return _converse(name, server, place, shape)
            finally:
                server.kill()
                server.wait()
        finally:
            model.kill()
            model.wait()


def _words(shape: Shape) -> list[str]:
    return [f"--conversations={shape.conversations}", f"--rate={shape.rate}", f"--seconds={shape.seconds}"]


def _converse(name: str, server: subprocess.Popen[bytes], place: Place, shape: Shape) -> Result:
    assert server.stdin is not None
    assert server.stdout is not None
    stdin, stdout = server.stdin, server.stdout
    count = 0

    def call(method: str, params: dict[str, object]) -> dict[str, str]:
        nonlocal count
        count += 1
        stdin.write(json.dumps({"id": count, "method": method, "params": params}).encode() + b"\n")
        stdin.flush()
        while True:
            line = stdout.readline()
            assert line, f"{name} has left"
            message = json.loads(line)
            if message.get("id") == count:
                assert "result" in message, message
                return dict(message["result"])

    call("initialize", {"clientInfo": {"name": "load", "version": "1"}})
    ids = [
        call("newConversation", {"cwd": str(place.workspace)})["conversationId"]
        for _ in range(shape.conversations)
    ]
    for id in ids:
        call("addConversationListener", {"conversationId": id})
    cpu, began = cpu_seconds(server.pid), time.monotonic()
    items = [{"type": "text", "data": {"text": "count"}}]
    for n, id in enumerate(ids):
        params = {"conversationId": id, "items": items}
        stdin.write(
            json.dumps({"id": f"s{n}", "method": "sendUserMessage", "params": params}).encode() + b"\n"
        )
    stdin.flush()
    heard, rest = Heard(), b""
    while heard.ended < shape.conversations and time.monotonic() - began < shape.seconds + LATEST:
        data = os.read(stdout.fileno(), 1 << 20)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            heard.take(line)
    seconds = time.monotonic() - began
    lost = shape.deltas * shape.conversations - sum(heard.next.values())
    return Result(
        name, seconds, cpu_seconds(server.pid) - cpu, _peak(server.pid), heard.lines, lost, tuple(heard.wrong)
    )


def _peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+)", status)
    assert found is not None
    return int(found.group(1)) / 1024


def table(results: list[Result], shape: Shape) -> str:
    head = (
        f"{shape.conversations} conversations, {shape.rate} deltas/s each, {shape.seconds} s: "
        f"{shape.conversations * shape.deltas:,} deltas\n\n"
        "| server | seconds | CPU seconds | peak MB | lines | missing | out of order |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(
        f"| {r.name} | {r.seconds:.1f} | {r.cpu:.1f} | {r.megabytes:.0f} | {r.lines:,} | {r.lost} | {len(r.wrong)} |"
        for r in results
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("conversations", 100), ("rate", 200), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    shape = Shape(args.conversations, args.rate, args.seconds)
    if args.model:
        serve_alone(counting(shape))
    results = [play("app-server", OURS, shape)]
    if reference := os.environ.get("REFERENCE_CODEX"):
        results.append(play("reference", (reference, "app-server"), shape))
    print(table(results, shape))  # noqa: T201  this is a command
    for result in results:
        for wrong in result.wrong:
            print(f"{result.name}: {wrong}")  # noqa: T201
    return int(bool(results[0].lost or results[0].wrong))


if __name__ == "__main__":
    sys.exit(main())
