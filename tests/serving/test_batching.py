"""What a batcher promises, whichever implementation it is."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from batching_driver import FAR_S, batcher, gathered, picture, submit, value_of, with_engine_held
from data_contracts.errors import EngineError, Overloaded, UndecodableImage
from fakes import FakeEngine, Tensor
from serving import bentoml_batching
from serving.batch_items import Item
from serving.batching import BatchAnswer, BatcherKind
from serving.latency import LatencyTable

KINDS = pytest.mark.parametrize("kind", ["passline", "bentoml"])


@KINDS
def test_a_lone_picture_goes_at_once_and_alone(kind: BatcherKind) -> None:
    engine = FakeEngine()
    answer = asyncio.run(submit(batcher(engine, kind), 3))
    assert (value_of(answer), answer.batch_size, engine.sizes) == (3, 1, [1])


def test_what_arrives_while_the_engine_works_goes_together_and_every_answer_is_its_own() -> None:
    engine, sizes = FakeEngine(), list[int]()
    queue = batcher(engine, on_batch=sizes.append)
    _, answers = asyncio.run(
        with_engine_held(engine, queue, lambda: gathered(*(submit(queue, value) for value in range(8))))
    )
    assert [value_of(answer) for answer in answers] == list(range(8))
    assert engine.sizes == sizes == [1, 8]
    assert {answer.batch_size for answer in answers} == {8}


@KINDS
def test_every_answer_is_its_own_under_load(kind: BatcherKind) -> None:
    engine = FakeEngine(delay_s=0.001)
    queue = batcher(engine, kind, max_batch=5)

    async def client(first: int) -> list[bool]:
        return [value_of(await submit(queue, value)) == value for value in range(first, first + 20)]

    async def story() -> list[list[bool]]:
        return list(await asyncio.gather(*(client(100 * number) for number in range(12))))

    assert all(all(own) for own in asyncio.run(story()))
    assert sum(engine.sizes) == 240
    assert max(engine.sizes) <= 5


def test_no_call_is_larger_than_allowed() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_batch=3)
    asyncio.run(with_engine_held(engine, queue, lambda: gathered(*(submit(queue, value) for value in range(7)))))
    assert engine.sizes == [1, 3, 3, 1]


def test_no_call_is_larger_than_pays() -> None:
    engine = FakeEngine()
    queue = batcher(engine, table=LatencyTable.of({1: 0.01, 8: 0.08}))
    asyncio.run(with_engine_held(engine, queue, lambda: gathered(*(submit(queue, value) for value in range(3)))))
    assert engine.sizes == [1, 1, 1, 1]


@KINDS
@pytest.mark.parametrize(
    "broken",
    [{"short_by": 1}, {"error": ValueError("boom")}, {"error": EngineError("boom")}],
    ids=["one answer too few", "raises anything", "raises an engine error"],
)
def test_a_bad_call_fails_each_of_its_pictures_and_only_those(broken: dict[str, Any], kind: BatcherKind) -> None:
    engine = FakeEngine(**broken)
    queue = batcher(engine, kind)

    async def story() -> tuple[list[Any], float]:
        burst = await gathered(*(submit(queue, value) for value in range(4)))
        engine.short_by, engine.error = 0, None
        return burst, value_of(await submit(queue, 9))

    burst, later = asyncio.run(story())
    assert [type(result) for result in burst] == [EngineError] * 4
    assert later == 9


@KINDS
def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(kind: BatcherKind) -> None:
    engine = FakeEngine()
    queue = batcher(engine, kind, max_queue=2)
    _, answers = asyncio.run(
        with_engine_held(engine, queue, lambda: gathered(*(submit(queue, value) for value in range(5))))
    )
    refused = [answer for answer in answers if isinstance(answer, Overloaded)]
    assert len(refused) == 3
    assert all(error.retry_after_s > 0 for error in refused)
    assert sum(engine.sizes) == 3


@KINDS
def test_a_cancelled_picture_leaves_the_queue_before_the_engine_sees_it(kind: BatcherKind) -> None:
    engine, waiting = FakeEngine(), list[int]()
    queue = batcher(engine, kind, on_queue=waiting.append)

    async def one_leaves() -> list[Any]:
        tasks = [asyncio.ensure_future(submit(queue, value)) for value in range(3)]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        return await gathered(*tasks)

    _, answers = asyncio.run(with_engine_held(engine, queue, one_leaves))
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [value_of(answers[0]), value_of(answers[2])] == [0, 2]
    assert sum(engine.sizes) == 3
    assert waiting[-1] == 0


@KINDS
def test_a_picture_whose_deadline_passed_is_not_inferred(kind: BatcherKind) -> None:
    engine = FakeEngine()
    queue = batcher(engine, kind)
    _, (late, fine) = asyncio.run(
        with_engine_held(engine, queue, lambda: gathered(submit(queue, 1, 0.01), submit(queue, 2)))
    )
    assert isinstance(late, TimeoutError)
    assert value_of(fine) == 2
    assert engine.sizes == [1, 1]


@KINDS
def test_nobody_waits_longer_than_to_their_deadline_even_if_the_engine_hangs(kind: BatcherKind) -> None:
    engine = FakeEngine(gate=threading.Event())
    queue = batcher(engine, kind)

    async def story() -> list[Any]:
        try:
            return await gathered(submit(queue, 1, 0.05), submit(queue, 2, 0.05))
        finally:
            assert engine.gate is not None
            engine.gate.set()

    assert [type(result) for result in asyncio.run(story())] == [TimeoutError] * 2


def test_what_cannot_be_answered_in_time_is_refused_at_once() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_batch=1, table=LatencyTable.of({1: 1.0}))
    _, answers = asyncio.run(
        with_engine_held(engine, queue, lambda: gathered(*(submit(queue, value, 3.5) for value in range(4))))
    )
    assert [type(answer) for answer in answers] == [BatchAnswer, BatchAnswer, Overloaded, Overloaded]
    assert 0.1 <= answers[2].retry_after_s < 1.0
    assert engine.sizes == [1, 1, 1]


def test_an_admitted_picture_keeps_its_place_in_time() -> None:
    engine = FakeEngine()
    queue = batcher(engine, max_batch=1, table=LatencyTable.of({1: 1.0}))

    async def urgent_comes_second() -> list[Any]:
        return await gathered(submit(queue, 0, 2.5), submit(queue, 1, 2.2), submit(queue, 2, 9.0))

    _, answers = asyncio.run(with_engine_held(engine, queue, urgent_comes_second))
    assert [type(answer) for answer in answers] == [BatchAnswer, Overloaded, BatchAnswer]


def test_the_earliest_deadline_goes_first() -> None:
    engine, order = FakeEngine(), list[float]()
    queue = batcher(engine, max_batch=1)

    async def noted(value: float, within_s: float) -> BatchAnswer:
        answer = await submit(queue, value, within_s)
        order.append(value)
        return answer

    work = [(1, 40.0), (2, 20.0), (3, 30.0), (4, 20.0)]
    asyncio.run(with_engine_held(engine, queue, lambda: gathered(*(noted(*one) for one in work))))
    assert order == [2, 4, 3, 1]


@KINDS
def test_a_lone_client_is_answered_whatever_was_learnt(kind: BatcherKind) -> None:
    engine = FakeEngine(delay_s=0.2)
    queue = batcher(engine, kind)

    async def story() -> list[float]:
        await submit(queue, 0)
        engine.delay_s = 0.0
        return [value_of(await submit(queue, value, 0.1)) for value in range(5)]

    assert asyncio.run(story()) == [0, 1, 2, 3, 4]


def test_an_answer_to_another_picture_is_never_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter([object(), object()])
    monkeypatch.setattr(Item, "token", property(lambda _: next(tokens), lambda *_: None))
    with pytest.raises(EngineError, match="another picture"):
        asyncio.run(submit(batcher(FakeEngine()), 1))


@KINDS
def test_a_lone_client_then_a_burst_then_a_lone_client_again(kind: BatcherKind) -> None:
    # 80 ms per call, as long as its deadline allows for: the lone client must never hear that the service is busy.
    # Five calls fit with 50 ms to spare, which a busy machine may take.
    engine, limit_s = FakeEngine(delay_s=0.08), 0.45
    queue = batcher(engine, kind, table=LatencyTable.of({1: 0.08, 8: 0.08}), deadline_s=limit_s)

    async def timed(value: float) -> tuple[Any, float]:
        started = time.monotonic()
        try:
            return await submit(queue, value, limit_s), time.monotonic() - started
        except (Overloaded, TimeoutError) as error:
            return error, time.monotonic() - started

    async def story() -> tuple[list[Any], list[tuple[Any, float]], Any]:
        alone = [await timed(value) for value in range(6)]
        burst = list(await asyncio.gather(*(timed(value) for value in range(64))))
        await asyncio.sleep(0.1)
        return [result for result, _ in alone], burst, (await timed(5))[0]

    alone, burst, last = asyncio.run(story())
    assert [value_of(answer) for answer in alone] == list(range(6))
    # BentoML's dispatcher finds some of them late only when they are.
    allowed = {BatchAnswer, Overloaded} | ({TimeoutError} if kind == "bentoml" else set())
    assert {type(result) for result, _ in burst} <= allowed
    answered = [took_s for result, took_s in burst if isinstance(result, BatchAnswer)]
    assert answered
    assert max(answered) <= limit_s
    assert value_of(last) == 5


# --- BentoML's dispatcher -------------------------------------------------------------------------------------------


def test_what_bentoml_drops_is_overload() -> None:
    engine = FakeEngine(delay_s=0.1)
    queue = batcher(engine, "bentoml", max_batch=1, deadline_s=0.15)

    async def story() -> list[Any]:
        return await gathered(*(submit(queue, value, FAR_S) for value in range(8)))

    results = asyncio.run(story())
    assert {type(result) for result in results} == {BatchAnswer, Overloaded}
    assert sum(engine.sizes) == sum(isinstance(result, BatchAnswer) for result in results)


def test_bentoml_is_imported_only_where_it_is_chosen() -> None:
    assert "CorkDispatcher" not in vars(bentoml_batching)


# --- pictures that are made ready by the engine's thread -------------------------------------------------------------


@dataclass
class Part:
    """A picture that may be broken at either end."""

    value: float
    unreadable: bool = False
    impossible: bool = False
    concluded: list[float] = field(default_factory=list)

    def prepare(self) -> Tensor:
        if self.unreadable:
            raise UndecodableImage("cut off")
        return picture(self.value)

    def conclude(self, answer: BatchAnswer) -> None:
        if self.impossible:
            raise EngineError("not a number")
        self.concluded.append(value_of(answer))


@KINDS
def test_what_is_wrong_with_a_picture_goes_to_its_caller_alone(kind: BatcherKind) -> None:
    parts = [Part(1.0), Part(2.0, unreadable=True), Part(3.0), Part(4.0, impossible=True)]
    engine = FakeEngine()
    queue = batcher(engine, kind)

    async def hand_in() -> list[Any]:
        expires_at = asyncio.get_running_loop().time() + FAR_S
        return await gathered(*(queue.submit(part, expires_at=expires_at) for part in parts))

    _, outcomes = asyncio.run(with_engine_held(engine, queue, hand_in))
    assert [type(outcome) for outcome in outcomes] == [BatchAnswer, UndecodableImage, BatchAnswer, EngineError]
    assert [part.concluded for part in parts] == [[1.0], [], [3.0], []]
    assert sum(engine.sizes) == 4, "the picture that cannot be read never reaches the engine"
