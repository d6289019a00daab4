"""The parts that measure: the prepared model, the stored conversations, the sums of a profile, the footprint."""

import cProfile
import json
import os
import sys
from pathlib import Path

import anyio
import httpx
import pytest

from benchmarks import replies
from benchmarks.aggregate import part_of, shares
from benchmarks.bench import Benchmark
from benchmarks.compare import OURS, once, sides
from benchmarks.model import PreparedModel
from benchmarks.processes import cpu_seconds, descendants, footprint
from benchmarks.stored import store, store_one
from benchmarks.turns import start


async def asked(url: str) -> list[str]:
    """The types of the events of one reply."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{url}/responses", content=b"x" * 100_000)
    lines = answer.text.splitlines()
    return [json.loads(line.removeprefix("data: "))["type"] for line in lines if line.startswith("data: ")]


async def test_the_model_gives_its_replies_in_order_and_then_the_usual_one() -> None:
    model = PreparedModel()
    model.replies.append(replies.reply(replies.runs(["true"], "c1")))
    async with model.serving() as url:
        first, second = await asked(url), await asked(url)
    assert first == ["response.created", "response.output_item.done", "response.completed"]
    assert "response.output_text.delta" in second
    assert (model.requests, model.received) == (2, 200_000)


async def test_a_paced_reply_is_whole_and_knows_when_its_pieces_left() -> None:
    model = PreparedModel()
    model.replies.append(replies.paced(replies.delta("a"), replies.delta("b"), gap=0.0))
    async with model.serving() as url:
        assert (await asked(url)).count("response.output_text.delta") == 2
    assert len(model.sent_at) == 5
    assert model.sent_at == sorted(model.sent_at)


async def test_a_long_stream_survives_being_cut_into_chunks() -> None:
    model = PreparedModel()
    model.replies.append(replies.stream(2_000))
    async with model.serving() as url:
        assert (await asked(url)).count("response.output_text.delta") == 2_000


async def test_nothing_but_requests_for_a_reply_is_answered() -> None:
    model = PreparedModel()
    async with model.serving() as url, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/models")).status_code == 404
    assert model.requests == 0


def test_stored_conversations_are_as_many_and_as_long_as_asked(tmp_path: Path) -> None:
    store(tmp_path, 30, exchanges=2)
    paths = list(tmp_path.rglob("rollout-*.jsonl"))
    assert len(paths) == 30
    assert {len(path.read_text().splitlines()) for path in paths} == {9}
    assert store_one(tmp_path, 5) not in paths


def test_a_profile_is_summed_up_by_part_and_built_ins_count_for_their_caller() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(200):
        json.dumps(list(range(100)))
        replies.delta("x")
    profiler.disable()
    found = shares(profiler)
    assert {"json", "benchmarks.replies"} <= {name for name, _ in found.parts}
    assert sum(share for _, share in found.parts) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("app_server/core/session/turn.py", "app_server.core.session"),
        ("app_server/rpc/outgoing.py", "app_server.rpc"),
        ("protocol/v1/turn.py", "protocol"),
        (".venv/lib/python3.12/site-packages/httpx/_client.py", "httpx"),
    ],
)
def test_files_belong_to_a_folder_of_ours_or_to_a_library(file: str, part: str) -> None:
    root = Path(replies.__file__).parent.parent
    assert part_of(str(root / file)) == part


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_footprint_includes_those_below() -> None:
    async with await anyio.open_process([sys.executable, "-c", "input()"]) as child:
        assert child.pid in descendants(os.getpid())
        held = footprint(os.getpid())
        assert held.processes >= 2
        assert held.rss > 1
        assert cpu_seconds(os.getpid()) > 0
        assert child.stdin is not None
        await child.stdin.aclose()


@pytest.mark.process
async def test_a_benchmark_measures_the_real_server() -> None:
    found = await once(Benchmark("start", start), sides()[OURS])
    assert found["ready_s"] >= found["start_s"] > 0
