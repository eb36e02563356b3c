from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from data_contracts.errors import EngineError, Overloaded
from fakes import FakeEngine, Tensor
from serving.batching import BatchAnswer, Batcher

FAR_S = 60.0


def picture(value: float) -> Tensor:
    return np.full((3, 2, 2), value, np.float32)


def value_of(answer: BatchAnswer) -> float:
    return float(answer.output.flat[0])


def batcher(engine: FakeEngine, **changes: Any) -> Batcher:
    return Batcher(engine.run, **{"max_batch": 8, "max_queue": 64, **changes})


async def submit(queue: Batcher, value: float, within_s: float = FAR_S) -> BatchAnswer:
    return await queue.submit(picture(value), expires_at=asyncio.get_running_loop().time() + within_s)


async def with_engine_held(
    engine: FakeEngine, queue: Batcher, work: Callable[[], Awaitable[list[Any]]]
) -> tuple[BatchAnswer, list[Any]]:
    """Let one picture (-1) keep the engine busy while `work` starts, then open the gate."""
    engine.gate = threading.Event()
    first = asyncio.ensure_future(submit(queue, -1))
    await asyncio.to_thread(engine.entered.wait, 10)
    rest = asyncio.ensure_future(work())
    await asyncio.sleep(0.05)
    engine.gate.set()
    return await first, await rest


def test_a_lone_picture_goes_at_once_and_alone() -> None:
    engine = FakeEngine()
    answer = asyncio.run(submit(batcher(engine), 3))
    assert (value_of(answer), answer.batch_size, engine.sizes) == (3, 1, [1])


def test_what_arrives_while_the_engine_works_goes_together_and_every_answer_is_its_own() -> None:
    engine, sizes = FakeEngine(), []
    queue = batcher(engine, on_batch=sizes.append)

    async def burst() -> list[BatchAnswer]:
        return await asyncio.gather(*(submit(queue, value) for value in range(8)))

    _, answers = asyncio.run(with_engine_held(engine, queue, burst))
    assert [value_of(answer) for answer in answers] == list(range(8))
    assert engine.sizes == sizes == [1, 8]
    assert {answer.batch_size for answer in answers} == {8}


def test_no_call_is_larger_than_allowed() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_batch=3)

    async def burst() -> list[BatchAnswer]:
        return await asyncio.gather(*(submit(queue, value) for value in range(7)))

    asyncio.run(with_engine_held(engine, queue, burst))
    assert engine.sizes == [1, 3, 3, 1]


@pytest.mark.parametrize(
    "engine",
    [FakeEngine(short_by=1), FakeEngine(error=ValueError("boom")), FakeEngine(error=EngineError("boom"))],
    ids=["one answer too few", "raises anything", "raises an engine error"],
)
def test_a_bad_call_fails_each_of_its_pictures_and_only_those(engine: FakeEngine) -> None:
    queue = batcher(engine)

    async def story() -> tuple[list[Any], float]:
        burst = await asyncio.gather(*(submit(queue, value) for value in range(4)), return_exceptions=True)
        engine.short_by, engine.error = 0, None
        return burst, value_of(await submit(queue, 9))

    burst, later = asyncio.run(story())
    assert [type(result) for result in burst] == [EngineError] * 4
    assert later == 9


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_queue=2)

    async def burst() -> list[Any]:
        return await asyncio.gather(*(submit(queue, value) for value in range(5)), return_exceptions=True)

    _, answers = asyncio.run(with_engine_held(engine, queue, burst))
    refused = [answer for answer in answers if isinstance(answer, Overloaded)]
    assert len(refused) == 3
    assert all(error.retry_after_s > 0 for error in refused)
    assert engine.sizes == [1, 2]


def test_a_cancelled_picture_leaves_the_queue_before_the_engine_sees_it() -> None:
    engine, waiting = FakeEngine(), []
    queue = batcher(engine, on_queue=waiting.append)

    async def one_leaves() -> list[Any]:
        tasks = [asyncio.ensure_future(submit(queue, value)) for value in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    _, answers = asyncio.run(with_engine_held(engine, queue, one_leaves))
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [value_of(answers[0]), value_of(answers[2])] == [0, 2]
    assert engine.sizes == [1, 2]
    assert waiting[-1] == 0


def test_a_picture_whose_deadline_passed_is_not_inferred() -> None:
    engine = FakeEngine()
    queue = batcher(engine)

    async def mixed() -> list[Any]:
        return await asyncio.gather(submit(queue, 1, 0.01), submit(queue, 2), return_exceptions=True)

    _, (late, fine) = asyncio.run(with_engine_held(engine, queue, mixed))
    assert isinstance(late, TimeoutError)
    assert value_of(fine) == 2
    assert engine.sizes == [1, 1]


def test_what_cannot_be_answered_in_time_is_refused_at_once() -> None:
    engine = FakeEngine(delay_s=0.1)
    queue = batcher(engine, max_batch=1)

    async def story() -> tuple[list[Any], list[Any]]:
        await submit(queue, 0)  # the queue learns how long a call takes
        burst = await asyncio.gather(*(submit(queue, value, 0.25) for value in range(6)), return_exceptions=True)
        return burst, [await submit(queue, 7, 0.25)]

    burst, later = asyncio.run(story())
    assert isinstance(burst[0], BatchAnswer)
    assert isinstance(burst[-1], Overloaded)
    assert len(engine.sizes) < 8
    assert value_of(later[0]) == 7


def test_a_lone_client_is_answered_whatever_was_learnt() -> None:
    engine = FakeEngine(delay_s=0.2)
    queue = batcher(engine)

    async def story() -> list[float]:
        await submit(queue, 0)
        engine.delay_s = 0.0
        return [value_of(await submit(queue, value, 0.1)) for value in range(5)]

    assert asyncio.run(story()) == [0, 1, 2, 3, 4]


def test_an_answer_to_another_picture_is_never_given_out() -> None:
    queue = batcher(FakeEngine())

    async def story() -> None:
        task = asyncio.ensure_future(submit(queue, 1))
        await asyncio.sleep(0)
        queue._waiting[0].token = object()
        stray = queue._waiting[0]
        original, stray.token = stray.token, object()
        stray.answer.set_result(BatchAnswer(original, picture(1), 1, 0.0, 0.0))
        await task

    with pytest.raises(EngineError, match="another picture"):
        asyncio.run(story())


def test_a_lone_client_then_a_burst_then_a_lone_client_again() -> None:
    engine = FakeEngine(delay_s=0.02)
    queue = batcher(engine)

    async def story() -> tuple[list[Any], float, float]:
        for value in range(10):
            await submit(queue, value, 1.0)
        started = time.monotonic()
        burst = await asyncio.gather(*(submit(queue, value, 1.0) for value in range(64)), return_exceptions=True)
        took_s = time.monotonic() - started
        return burst, took_s, value_of(await submit(queue, 5, 1.0))

    burst, took_s, last = asyncio.run(story())
    assert all(isinstance(result, BatchAnswer | Overloaded) for result in burst)
    assert any(isinstance(result, BatchAnswer) for result in burst)
    assert took_s < 1.0 + 0.5
    assert last == 5
