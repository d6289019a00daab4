"""The measuring parts of the benchmarks, and the computation of results from samples."""

import cProfile
import json
import math
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import anyio
import httpx2
import pytest

from benchmarks import replies, shared
from benchmarks.aggregate import shares
from benchmarks.bench import Benchmark
from benchmarks.chart import svg
from benchmarks.compare import OURS, REFERENCE, Samples, once, rows, sides
from benchmarks.figures import Unit, written
from benchmarks.growth import GROWTHS, Point, table
from benchmarks.model import PreparedModel, model_process
from benchmarks.processes import cpu_seconds, descendants, footprint
from benchmarks.report import insert
from benchmarks.turns import start


async def asked(url: str) -> list[str]:
    """Send a request; return the types of the events of its reply."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{url}/responses", content=b"x" * 100_000)
    lines = answer.text.splitlines()
    return [json.loads(line.removeprefix("data: "))["type"] for line in lines if line.startswith("data: ")]


async def test_the_model_gives_its_replies_in_order_and_then_the_usual_one() -> None:
    model = PreparedModel()
    model.replies.append(replies.command("true"))
    async with model.serving() as url:
        first, second = await asked(url), await asked(url)
    assert first == ["response.created", "response.output_item.done", "response.completed"]
    assert "response.output_text.delta" in second
    assert (model.requests, model.received) == (2, 200_000)


async def test_a_paced_reply_is_whole_and_knows_when_its_pieces_left() -> None:
    model = PreparedModel()
    model.replies.append(replies.paced(*replies.counted(2), gap=0.0))
    async with model.serving() as url:
        assert (await asked(url)).count("response.output_text.delta") == 2
    assert len(model.sent_at) == 6
    assert model.sent_at == sorted(model.sent_at)


async def test_a_long_stream_survives_being_cut_into_chunks() -> None:
    model = PreparedModel()
    model.replies.append(replies.reply(*replies.counted(2_000)))
    async with model.serving() as url:
        assert (await asked(url)).count("response.output_text.delta") == 2_000


async def test_nothing_but_requests_for_a_reply_is_answered() -> None:
    model = PreparedModel()
    async with model.serving() as url, httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/models")).status_code == 404
    assert model.requests == 0


def test_a_profile_is_summed_up_by_part_and_built_ins_count_for_their_caller() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(200):
        json.dumps(list(range(100)))
        replies.counted(1)
    profiler.disable()
    found = shares(profiler)
    assert {"json", "benchmarks.replies"} <= {name for name, _ in found}
    assert sum(share for _, share in found) == pytest.approx(1.0)


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


BOTH: Samples = {
    "turn_s": {OURS: [0.010, 0.020, 0.030], REFERENCE: [0.100, 0.040, 0.100]},
    "start_s": {OURS: [0.3], REFERENCE: [0.1]},
    "rss_100_mb": {OURS: [60.0], REFERENCE: []},
}


def test_the_ratio_is_the_median_of_the_rounds_not_of_the_sides() -> None:
    turn = next(row for row in rows(BOTH) if row.figure.name == "turn_s")
    assert turn.ours == 0.020
    assert turn.ratio == pytest.approx(0.3)
    assert turn.spread == pytest.approx((0.1, 0.5))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0000123, Unit.SECONDS, "12 µs"),
        (0.00543, Unit.SECONDS, "5.43 ms"),
        (0.7891, Unit.SECONDS, "789 ms"),
        (12.34, Unit.SECONDS, "12.3 s"),
        (6092, Unit.COUNT, "6,092"),
        (math.nan, Unit.MEBIBYTES, "–"),
    ],
)
def test_values_are_written_in_the_unit_that_fits(value: float, unit: Unit, text: str) -> None:
    assert written(value, unit) == text


def test_a_result_replaces_its_place_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- begin a -->\nold\n<!-- end a -->\nbetween\n<!-- begin b -->\n<!-- end b -->\n"
    )
    insert(page, "a", "new \\1")
    insert(page, "a", "newer \\1")
    text = page.read_text()
    assert "newer \\1" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("between\n<!-- begin b -->\n<!-- end b -->\n")


def test_bars_to_the_left_are_shorter_than_one_and_begin_at_equality() -> None:
    picture = ElementTree.fromstring(svg(rows(BOTH)))
    bars = {each.get("class"): each for each in picture.iter("{http://www.w3.org/2000/svg}rect")}
    less, more = bars["less"], bars["more"]
    end = float(less.get("x", "")) + float(less.get("width", ""))
    assert end == pytest.approx(float(more.get("x", "")), abs=0.2)


def test_growth_says_what_one_more_costs() -> None:
    length = next(growth for growth in GROWTHS if growth.name == "length")
    points = [Point(10, {"turn": 0.004, "memory": 50.0}), Point(110, {"turn": 0.005, "memory": 51.0})]
    assert table(length, points) == [
        ("items", "turn", "memory"),
        ("10", "4.00 ms", "50.0 MiB"),
        ("110", "5.00 ms (+10.0 µs)", "51.0 MiB (+10.2 KiB)"),
    ]


def test_a_client_of_a_shared_server_is_measured_to_the_end_of_its_turn() -> None:
    with model_process("HELLO") as url:
        [found] = shared.measure(OURS, sides()[OURS], url, 1)
    assert 0 < found["initialize"] < found["thread"] < found["turn"]
    assert found["proxy_threads"] == 1
    assert found["proxy_rss"] < found["server_pss"]
