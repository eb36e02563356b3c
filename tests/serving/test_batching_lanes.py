"""Lanes, streams, company and threads of Passline's own batcher."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from batching_driver import FAR_S, batcher, gathered, submit, value_of, with_engine_held
from data_contracts.errors import Overloaded
from fakes import FakeEngine, Tensor
from serving import engine_threads
from serving.batching import BatchAnswer, Batcher, BatcherKind, Lane, make_batcher
from serving.engine_threads import EngineThreads
from serving.latency import LatencyTable

KINDS = pytest.mark.parametrize("kind", ["passline", "bentoml"])


# --- streams --------------------------------------------------------------------------------------------------------


@KINDS
def test_two_streams_work_at_once(kind: BatcherKind) -> None:
    both = threading.Barrier(2, timeout=10)

    def predict(batch: Tensor) -> Tensor:
        both.wait()  # a single stream would never get past this
        return batch

    queue = make_batcher(kind, predict, max_batch=1, max_queue=64, streams=2)

    async def story() -> list[Any]:
        return await gathered(submit(queue, 1), submit(queue, 2))

    assert [value_of(answer) for answer in asyncio.run(story())] == [1, 2]


def test_streams_share_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineThreads, "wake", lambda _: None)  # nothing is taken until all wait
    queue = Batcher(FakeEngine().run, max_batch=8, max_queue=64, streams=2)

    async def story() -> list[int]:
        tasks = [asyncio.ensure_future(submit(queue, value)) for value in range(9)]
        await asyncio.sleep(0)
        taken = [queue._take(stream) for stream in (0, 1)]
        for task in tasks:
            task.cancel()
        await gathered(*tasks)
        return [len(items) for items in taken if isinstance(items, list)]

    assert asyncio.run(story()) == [3, 2]


# --- lanes ----------------------------------------------------------------------------------------------------------


def test_inspections_go_before_shadow_and_bulk() -> None:
    engine, order = FakeEngine(), list[float]()
    queue = batcher(engine, max_batch=1)

    async def noted(value: float, lane: Lane) -> BatchAnswer:
        answer = await submit(queue, value, FAR_S, lane)
        order.append(value)
        return answer

    work = [(1, Lane.BULK), (2, Lane.SHADOW), (3, Lane.INSPECTION)]
    asyncio.run(with_engine_held(engine, queue, lambda: gathered(*(noted(*one) for one in work))))
    assert order == [3, 2, 1]


def test_full_lower_lanes_take_no_place_from_inspections() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_queue=2)
    lanes = [Lane.BULK] * 3 + [Lane.SHADOW] * 3 + [Lane.INSPECTION] * 3
    _, answers = asyncio.run(
        with_engine_held(
            engine, queue, lambda: gathered(*(submit(queue, at, FAR_S, lane) for at, lane in enumerate(lanes)))
        )
    )
    refused = [isinstance(answer, Overloaded) for answer in answers]
    assert refused == [False, False, True] * 3


def test_an_inspection_is_not_refused_for_what_waits_below_it() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_batch=1, table=LatencyTable.of({1: 1.0}))

    async def work() -> list[Any]:
        return await gathered(*(submit(queue, value, 50.0, Lane.BULK) for value in range(9)), submit(queue, 9, 2.5))

    _, answers = asyncio.run(with_engine_held(engine, queue, work))
    assert value_of(answers[-1]) == 9


def test_lanes_never_share_a_call() -> None:
    engine = FakeEngine()
    queue = batcher(engine)
    work = [Lane.INSPECTION, Lane.INSPECTION, Lane.SHADOW, Lane.BULK]
    asyncio.run(with_engine_held(engine, queue, lambda: gathered(*(submit(queue, 1, FAR_S, lane) for lane in work))))
    assert engine.sizes == [1, 2, 1, 1]


def test_a_starved_shadow_picture_fails_by_its_deadline() -> None:
    engine = FakeEngine(delay_s=0.01)
    queue = batcher(engine)

    async def busy(until: float) -> None:
        while time.monotonic() < until:
            await submit(queue, 0)

    async def story() -> list[Any]:
        busy_clients = [asyncio.ensure_future(busy(time.monotonic() + 0.3)) for _ in range(3)]
        await asyncio.sleep(0.05)
        results = await gathered(*(submit(queue, value, 0.1, Lane.SHADOW) for value in range(40)))
        await asyncio.gather(*busy_clients)
        return results

    assert {type(result) for result in asyncio.run(story())} <= {BatchAnswer, TimeoutError, Overloaded}


def test_bulk_has_the_whole_engine_when_no_inspection_is_about() -> None:
    engine = FakeEngine()
    queue = batcher(engine, table=LatencyTable.of({1: 0.01, 8: 0.02}))

    async def work() -> list[Any]:
        return await gathered(*(submit(queue, value, FAR_S, Lane.BULK) for value in range(8)))

    async def story() -> list[Any]:
        engine.gate = threading.Event()
        first = asyncio.ensure_future(submit(queue, -1, FAR_S, Lane.BULK))
        await asyncio.to_thread(engine.entered.wait, 10)
        rest = asyncio.ensure_future(work())
        await asyncio.sleep(0.02)
        engine.gate.set()
        await first
        return await rest

    asyncio.run(story())
    assert engine.sizes == [1, 8]


# --- company --------------------------------------------------------------------------------------------------------


def test_an_idle_engine_waits_for_company_that_used_to_come() -> None:
    engine = FakeEngine()
    queue = Batcher(engine.run, max_batch=8, max_queue=64, table=LatencyTable.of({1: 0.4, 8: 0.41}), window_s=0.2)

    async def story() -> list[Any]:
        now = time.monotonic()
        for _ in range(8):
            queue._company.arrived(now - 0.001, idle=True)
            queue._company.arrived(now, idle=False)
        first = asyncio.ensure_future(submit(queue, 1))
        await asyncio.sleep(0.02)
        return await gathered(first, submit(queue, 2))

    first, second = asyncio.run(story())
    assert engine.sizes == [2]
    assert first.queue_s > second.queue_s


def test_without_a_window_nothing_waits() -> None:
    engine = FakeEngine()
    queue = batcher(engine, table=LatencyTable.of({1: 0.4, 8: 0.41}))

    async def story() -> None:
        for _ in range(8):
            first = asyncio.ensure_future(submit(queue, 1))
            await asyncio.sleep(0.02)
            await asyncio.gather(first, submit(queue, 2))

    asyncio.run(story())
    assert engine.sizes == [1] * 16


# --- threads --------------------------------------------------------------------------------------------------------


@KINDS
def test_idle_says_whether_anything_waits_or_runs(kind: BatcherKind) -> None:
    engine = FakeEngine()
    queue = batcher(engine, kind)

    async def look() -> list[Any]:
        return [queue.idle]

    async def story() -> tuple[bool, list[Any], bool]:
        before = queue.idle
        _, during = await with_engine_held(engine, queue, look)
        return before, during, queue.idle

    assert asyncio.run(story()) == (True, [False], True)


def engine_thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("engine-")]


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_closing_ends_the_threads_and_a_late_picture_is_still_answered() -> None:
    before = len(engine_thread_names())
    queue = batcher(FakeEngine(), streams=2)

    async def story() -> float:
        await submit(queue, 1)
        queue.close()
        assert await asyncio.to_thread(wait_for, lambda: len(engine_thread_names()) <= before)
        return value_of(await submit(queue, 2))

    assert asyncio.run(story()) == 2
    assert wait_for(lambda: len(engine_thread_names()) <= before)


def test_closing_lets_what_was_taken_finish() -> None:
    engine = FakeEngine()
    queue = batcher(engine)

    async def close_with_two_waiting() -> list[Any]:
        tasks = [asyncio.ensure_future(submit(queue, value)) for value in range(2)]
        await asyncio.sleep(0)
        queue.close()
        return await gathered(*tasks)

    _, answers = asyncio.run(with_engine_held(engine, queue, close_with_two_waiting))
    assert [value_of(answer) for answer in answers] == [0, 1]


def test_a_dropped_batcher_leaves_no_thread_and_no_engine_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_threads, "LINGER_S", 0.05)
    engine = FakeEngine()
    queue = Batcher(engine.run, max_batch=8, max_queue=64)
    asyncio.run(submit(queue, 1))
    alive = weakref.ref(queue)
    del queue

    def gone() -> bool:
        gc.collect()
        return alive() is None

    assert wait_for(gone)


def test_no_wake_is_lost_however_often_threads_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_threads, "LINGER_S", 0.0005)  # as long as the pause between two pictures
    queue = batcher(FakeEngine(), streams=3)

    async def client(number: int) -> None:
        for step in range(60):
            assert value_of(await submit(queue, number + step, 5.0)) == number + step
            await asyncio.sleep(0.0004 + 0.0002 * number)

    async def story() -> None:
        await asyncio.gather(*(client(number) for number in range(3)))

    asyncio.run(story())
    assert queue.idle
