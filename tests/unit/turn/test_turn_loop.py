"""The turn loop: ask, run what is called, ask again; what the user says meanwhile; when it compacts, when it ends."""

import anyio
import pytest

from app_server.core.context.environment_context import user_text
from app_server.core.turn.items import UserWords
from app_server.core.turn.loop import ContextStillFull
from protocol.events.notices import ErrorEvent
from tests.unit.model.scripted import COMPLETED, answer, event, message_done
from tests.unit.turn.conftest import Bench
from tests.unit.turn.test_turn_model_call import note

WORDS = UserWords(user_text("go"))


def costing(tokens: int) -> bytes:
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    return event("response.completed", response={"id": "r1", "usage": usage})


async def test_a_turn_goes_on_as_long_as_the_model_calls(bench: Bench) -> None:
    bench.answers(
        answer(note("a"), COMPLETED), answer(note("b"), COMPLETED), answer(message_done("done"), COMPLETED)
    )
    last = await bench.loop(bench.model_call()).run(WORDS)
    assert last == "done"
    assert bench.tool.ran == ["a", "b"]
    assert len(bench.inputs(2)) == 5
    kinds = await bench.kinds()
    assert kinds[0] == "TurnStarted"
    assert kinds.count("ItemCompleted UserMessage") == 1


async def test_words_join_ahead_of_the_next_request_behind_the_outputs(bench: Bench) -> None:
    async def somebody_speaks() -> None:
        bench.pending_input.append(UserWords(user_text("and this")))

    bench.tool.hold = somebody_speaks
    bench.answers(answer(note("a"), COMPLETED), answer(message_done("both"), COMPLETED))
    await bench.loop(bench.model_call()).run(WORDS)
    assert [item.get("role", item["type"]) for item in bench.inputs(1)] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]


async def test_words_during_the_last_reply_are_left_for_the_next_turn(bench: Bench) -> None:
    late = UserWords(user_text("one more thing"))
    bench.answers(answer(message_done("done"), COMPLETED))

    class SaysMoreWhileTheModelAnswers:
        def __init__(self) -> None:
            self.taken: list[UserWords] = []

        def take_input(self) -> list[UserWords]:
            if bench.http.requests:
                self.taken.append(late)
            return []

        def has_steered(self) -> bool:
            return False

    loop = bench.loop(bench.model_call())
    loop.input = user = SaysMoreWhileTheModelAnswers()
    await loop.run(WORDS)
    assert not user.taken, "nobody asked for input once the model had ended"


async def test_a_context_over_its_limit_is_compacted_once(bench: Bench) -> None:
    bench.answers(answer(message_done("long"), costing(900)), answer(message_done("short"), costing(10)))
    last = await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert last == "short"
    assert bench.compacted == 1


async def test_a_context_that_stays_over_its_limit_ends_the_turn(bench: Bench) -> None:
    bench.answers(answer(message_done("long"), costing(900)), answer(message_done("still"), costing(800)))
    with pytest.raises(ContextStillFull, match=r"limit 500, current 800"):
        await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert bench.compacted == 1


async def test_a_failed_compaction_is_reported_and_not_repeated(bench: Bench) -> None:
    bench.compaction_fails = True
    bench.answers(answer(message_done("long"), costing(900)), answer(message_done("still"), costing(800)))
    with pytest.raises(ContextStillFull):
        await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert bench.compacted == 1
    errors = [each.event.message for each in await bench.events() if isinstance(each.event, ErrorEvent)]
    assert errors == ["no summary"]
    assert len(bench.http.requests) == 2


async def test_a_limit_that_is_reached_again_later_is_compacted_again(bench: Bench) -> None:
    bench.answers(
        answer(note("a"), costing(600)),
        answer(note("b"), costing(10)),
        answer(note("c"), costing(700)),
        answer(message_done("ok"), costing(20)),
    )
    await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert bench.compacted == 2


async def test_an_interrupted_turn_leaves_its_words_and_whole_pairs(bench: Bench) -> None:
    forever = anyio.Event()
    bench.tool.hold = forever.wait
    bench.answers(answer(note("a"), COMPLETED))
    loop = bench.loop(bench.model_call())
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run, WORDS)
        await anyio.wait_all_tasks_blocked()
        bench.pending_input.append(UserWords(user_text("wait")))
        group.cancel_scope.cancel()
    loop.interrupted()
    assert [item.type for item in bench.history.items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert bench.history.for_prompt() == list(bench.history.items)
