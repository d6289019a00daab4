"""Common budgets of all tasks: rates, totals, prices, and the slowdown of all when a provider asks for fewer
requests.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.batch.budget import Ledger, SharedLimits
from app_server.cli.batch.worker_messages import Ask, Over, TaskUsage
from app_server.client.prices import ModelPrice
from app_server_protocol.values import replace


def ask(number: int, size: int = 100) -> Ask:
    return Ask(id=str(number), size=size, first=False)


def over(
    number: int, tokens: int = 100, *, limited: bool = False, after: float | None = None, model: str = "m"
) -> Over:
    usage = TaskUsage(input_tokens=tokens, requests=1)
    return Over(id=str(number), model=model, usage=usage, limited=limited, retry_after=after)


def passed(ledger: Ledger, now: float = 0.0) -> list[int]:
    """Return the numbers of the requests that may be sent now."""
    return [int(each.id) for each, answer in ledger.answers(now) if not answer.never]


def ledger(**limits: object) -> Ledger:
    return Ledger(SharedLimits(**limits), 0.0, {})  # type: ignore[arg-type]


def test_without_limits_everything_passes_at_once() -> None:
    found = ledger()
    for number in range(1000):
        found.ask(ask(number, 10**6))
    assert passed(found) == list(range(1000))


def test_requests_a_minute_are_spread() -> None:
    found = ledger(requests_per_minute=60)
    for number in range(20):
        found.ask(ask(number))
    assert len(passed(found)) == 5, "five seconds' worth is saved up"
    assert found.wait(0.0) == pytest.approx(1.0)
    assert len(passed(found, 3.0)) == 3
    assert len(passed(found, 60.0)) == 5


def test_tokens_a_minute_count_what_was_used_and_not_what_was_thought() -> None:
    found = ledger(tokens_per_minute=6000)
    found.ask(ask(1, size=6000))
    found.ask(ask(2, size=100))
    assert passed(found) == [1]
    assert found.wait(0.0) == pytest.approx(55.0, abs=0.1)
    found.over(over(1, tokens=100), 0.0)
    assert passed(found, 0.0) == [2]


def test_a_total_is_exceeded_by_one_request_at_most() -> None:
    found = ledger(tokens=1000)
    for number in range(8):
        found.ask(ask(number, size=10))
    assert passed(found) == list(range(8)), "as far as is known they are small"
    for number in range(8):
        found.over(over(number, tokens=120), 0.0)
    assert (found.tokens, found.exhausted) == (960, False)
    for number in range(8, 16):
        found.ask(ask(number, size=10))
    assert passed(found) == [8], "it may take more than there is: the others wait"
    found.over(over(8, tokens=120), 0.0)
    assert [answer.never for _, answer in found.answers(0.0)] == [True] * 7
    assert found.tokens == 1080


def test_money_is_counted_by_model() -> None:
    prices = {
        "m": ModelPrice(input=1.0, output=10.0, cached_input=0.1),
        "cheap": ModelPrice(input=0.5, output=0.5),
    }
    found = Ledger(SharedLimits(cost=0.001, prices=prices), 0.0, {})
    found.ask(ask(1))
    assert passed(found) == [1]
    usage = TaskUsage(input_tokens=300, cached_input_tokens=200, output_tokens=10, requests=1)
    priced = found.over(Over(id="1", model="m", usage=usage), 0.0)
    assert priced == replace(usage, cost=found.cost)
    assert found.cost == pytest.approx((100 * 1.0 + 200 * 0.1 + 10 * 10.0) / 1e6)
    assert not found.exhausted
    found.ask(ask(2))
    assert passed(found) == [2]
    found.over(over(2, tokens=2000, model="cheap"), 0.0)
    assert found.exhausted


def test_what_earlier_runs_spent_counts() -> None:
    found = Ledger(SharedLimits(tokens=100), 0.0, {"m": TaskUsage(input_tokens=60, output_tokens=40)})
    assert found.exhausted


def test_a_refusal_holds_everybody_for_as_long_as_the_provider_asks() -> None:
    found = ledger()
    for number in range(3):
        found.ask(ask(number))
    assert passed(found) == [0, 1, 2]
    found.over(over(1, 0, limited=True, after=30.0), 1.0)
    found.ask(ask(3))
    assert passed(found, 30.9) == []
    assert passed(found, 31.0) == [3]


def test_refusals_halve_the_rate_and_it_comes_back() -> None:
    found = ledger(requests_per_minute=600)

    def sent_in_a_minute(begin: float, *, refused: bool) -> int:
        count = 0
        for tick in range(600):
            now = begin + tick / 10
            found.ask(ask(int(now * 10)))
            for number in passed(found, now):
                count += 1
                found.over(over(number, 1, limited=refused, after=0.0), now)
        return count

    before = sent_in_a_minute(0, refused=False)
    during = sent_in_a_minute(60, refused=True)
    again = sent_in_a_minute(120, refused=False)
    after = sent_in_a_minute(240, refused=False)
    assert before == pytest.approx(600, rel=0.05)
    assert during < before / 4
    assert during < again < after
    assert after == pytest.approx(600, rel=0.05)


def test_refusals_of_requests_that_were_sent_together_halve_once() -> None:
    found = ledger(requests_per_minute=6000)
    for number in range(100):
        found.ask(ask(number))
    for number in passed(found):
        found.over(over(number, 0, limited=True, after=0.0), 0.1)
    for number in range(100, 700):
        found.ask(ask(number))
    assert len(passed(found, 5.0)) == pytest.approx(250, abs=20)


def test_a_worker_that_dies_gives_back_what_it_had() -> None:
    found = ledger(tokens=100)
    found.ask(ask(1, size=100))
    found.ask(ask(2, size=100))
    assert passed(found) == [1]
    found.gone(["1"])
    assert passed(found) == [2]


def test_a_request_that_waits_no_more_is_forgotten() -> None:
    found = ledger(requests_per_minute=1)
    found.ask(ask(1))
    found.ask(ask(2))
    assert passed(found) == [1]
    assert found.over(over(2), 0.0) is None
    assert passed(found, 600.0) == []
    assert found.over(over(1), 0.0) is not None


@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 300)), max_size=60),
    st.randoms(use_true_random=False),
)
def test_no_order_of_requests_exceeds_the_total_by_more_than_one(
    total: int, requests: list[tuple[int, int]], chance: Random
) -> None:
    """This holds as long as no request takes more than was reserved for it, except the one that runs alone."""
    found = ledger(tokens=total)
    under_way: list[Over] = []
    for number, (size, _) in enumerate(requests):
        found.ask(ask(number, size))
        for each, answer in found.answers(0.0):
            if not answer.never:
                under_way.append(over(int(each.id), min(requests[int(each.id)][1], each.size)))
        if under_way and chance.random() < 0.5:
            found.over(under_way.pop(chance.randrange(len(under_way))), 0.0)
    for each_over in under_way:
        found.over(each_over, 0.0)
    assert found.tokens <= total + max((min(used, size) for size, used in requests), default=0)
