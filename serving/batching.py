"""Gather pictures that wait for the engine into one call, in time.

While the engine works, arrivals gather; when it is free, what waits goes at once, earliest deadline first, in calls as
large as pay on this host. A lone client pays nothing for batching. The rules are in `serving.batch_policy`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from data_contracts.errors import EngineError, Overloaded, Problem
from serving.batch_items import AnyBatcher, BatchAnswer, Item, Lane, Picture, Predict, Tensor, ignore
from serving.batch_policy import Company, Forecast, Gaps, batch_count, company_pays, fitting_count, gap_count
from serving.engine_call import Called, run_call
from serving.engine_threads import FOREVER, EngineThreads
from serving.lanes import Lanes
from serving.latency import LatencyTable, LiveLatency

__all__ = [
    "AnyBatcher",
    "BatchAnswer",
    "Batcher",
    "BatcherKind",
    "Lane",
    "Picture",
    "Predict",
    "Tensor",
    "make_batcher",
]

BatcherKind = Literal["passline", "bentoml"]


@dataclass(frozen=True)
class _Call:
    lane: Lane
    ends_at: float


class Batcher:
    """One engine's queue. Use it from one event loop.

    predict: called from up to `streams` threads at once. table: seconds per batch size, measured at warm-up; without
    one the queue learns it. window_s: how long an idle engine may wait for company, where that is likely and pays.
    max_queue: per lane. on_batch: told the size of each engine call; on_queue: told how many pictures wait.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        max_batch: int,
        max_queue: int,
        streams: int = 1,
        table: LatencyTable | None = None,
        window_s: float = 0.0,
        on_batch: Callable[[int], None] = ignore,
        on_queue: Callable[[int], None] = ignore,
    ) -> None:
        self._predict, self._streams = predict, streams
        self._on_batch, self._on_queue = on_batch, on_queue
        self._lock = threading.Lock()
        self._latency = LiveLatency(table, max_batch)
        self._lanes = Lanes(max_queue)
        self._running: dict[int, _Call] = {}
        self._free_since = 0.0
        self._company, self._gaps = Company(window_s), Gaps()
        self._threads = EngineThreads(streams, self._lock, self._take, self._run)

    async def submit(
        self, picture: Picture | Tensor, *, expires_at: float, lane: Lane = Lane.INSPECTION
    ) -> BatchAnswer:
        """Run one picture, or its tensor (3, height, width), through the engine.

        expires_at: event loop time after which nobody wants the answer. A caller that is cancelled leaves the queue.
        Raises Overloaded at once when the lane is full, or when this picture or one that was admitted before would be
        answered too late; TimeoutError when the deadline passes all the same; EngineError when the engine failed; what
        the picture itself raises.
        """
        loop = asyncio.get_running_loop()
        item = Item(picture, expires_at, monotonic(), lane, loop.create_future())
        with self._lock:
            self._admit(item)
            self._lanes.push(item)
            self._threads.wake()
        self._on_queue(len(self._lanes))
        timer = loop.call_at(expires_at, _expire, item.answer)
        try:
            answer = await item.answer
        except BaseException:
            with self._lock:
                self._lanes.remove(item)
            self._on_queue(len(self._lanes))
            raise
        finally:
            timer.cancel()
        if answer.token is not item.token:
            raise EngineError("an answer came back to another picture than its own")
        return answer

    def close(self) -> None:
        """Let the engine's threads end once what waits is done. A picture that comes later is still answered."""
        with self._lock:
            self._threads.close()

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._running and not len(self._lanes)

    # --- in the event loop -------------------------------------------------------------------------------------------

    def _admit(self, item: Item) -> None:
        """Refuse what the lane has no place for or the engine no time."""
        now, lane = item.arrived_at, item.lane
        above = sum(self._lanes.count(higher) for higher in Lane if higher < lane)
        alone = not above and not self._lanes.count(lane) and all(call.lane > lane for call in self._running.values())
        if lane is Lane.INSPECTION:
            self._company.arrived(now, idle=alone)
            self._gaps.inspection(now)
        if alone or not self._latency.known:
            # Whatever the estimate says: a lone client is always answered, and a wrong estimate mends itself here.
            late_s = 0.0
        else:
            free_at = sorted(max(call.ends_at, now) for call in self._running.values())
            free_at[:0] = [now] * (self._streams - len(free_at))
            forecast = Forecast(free_at, self._latency.useful, self._latency.seconds)
            behind = self._lanes.deadlines_after(lane, item.expires_at)
            ahead = above + self._lanes.count(lane) - len(behind)
            late_s = forecast.late_by(item.expires_at, ahead, behind)
        if self._lanes.full(lane):
            raise _overloaded("queue", "a place in it", "a full queue", max(late_s, self._latency.seconds(1)))
        if late_s > 0:
            left_s = item.expires_at - now
            raise _overloaded("deadline", f"an answer within {left_s:.3f} s", f"{late_s:.3f} s more", late_s)

    def _deliver(self, called: Called) -> None:
        self._on_queue(len(self._lanes))
        if called.size:
            self._on_batch(called.size)
        for item, outcome in called.outcomes():
            if item.answer.done():
                continue
            if isinstance(outcome, Exception):
                item.answer.set_exception(outcome)
            else:
                item.answer.set_result(outcome)

    # --- in the engine's threads -------------------------------------------------------------------------------------

    def _take(self, stream: int) -> list[Item] | float:
        """The next call, or for how long there is nothing to do. Called with the lock held."""
        now = monotonic()
        self._lanes.drop_expired(now)
        if (lane := self._lanes.first_lane()) is None:
            return FOREVER
        pause_s, count = self._inspections(now) if lane is Lane.INSPECTION else self._in_gap(lane, now)
        if pause_s > 0:
            return pause_s
        call_s = self._latency.seconds(count)
        if now + call_s > self._lanes.first(lane).expires_at:
            count = fitting_count(self._lanes.first_deadlines(lane, count), now, self._latency.seconds)
            call_s = self._latency.seconds(count)
        if lane is not Lane.INSPECTION:
            self._gaps.used(now, call_s)
        self._running[stream] = _Call(lane, now + call_s)
        return self._lanes.take(lane, count)

    def _inspections(self, now: float) -> tuple[float, int]:
        """Seconds to wait for company, and how many go."""
        first, seconds = self._lanes.first(Lane.INSPECTION), self._latency.seconds
        count = batch_count(self._lanes.count(Lane.INSPECTION), self._streams, self._latency.useful)
        pause_s = first.arrived_at + self._company.window_s - now
        waits = (
            self._streams == 1
            and first.arrived_at >= self._free_since
            and count < self._latency.useful
            and self._company.likely(now)
            and company_pays(count, pause_s, seconds)
            and now + pause_s + seconds(count + 1) <= first.expires_at
        )
        return (pause_s if waits else 0.0), count

    def _in_gap(self, lane: Lane, now: float) -> tuple[float, int]:
        """Seconds until shadow or bulk may go, and how many."""
        quiet = self._gaps.quiet(now)
        if not quiet and any(call.lane is not Lane.INSPECTION for call in self._running.values()):
            return FOREVER, 0  # one stream at most; it looks again when it is done
        count = min(self._lanes.count(lane), gap_count(self._latency.useful, self._latency.seconds, quiet=quiet))
        return self._gaps.pause_s(now), count

    def _run(self, stream: int, batch: list[Item]) -> None:
        called = run_call(self._predict, batch)
        with self._lock:
            del self._running[stream]
            self._free_since = monotonic()
            if called.size:
                self._latency.observe(called.size, self._free_since - called.started_at)
        with suppress(RuntimeError):  # the loop is closed, nobody waits any more
            batch[0].answer.get_loop().call_soon_threadsafe(self._deliver, called)


def _expire(answer: asyncio.Future[BatchAnswer]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("the deadline passed before the engine answered"))


def _overloaded(subject: str, expected: str, got: str, retry_after_s: float) -> Overloaded:
    return Overloaded(Problem(subject, expected, got, "Try again later."), retry_after_s=max(retry_after_s, 0.1))


def make_batcher(
    kind: BatcherKind,
    predict: Predict,
    *,
    max_batch: int,
    max_queue: int,
    streams: int = 1,
    table: LatencyTable | None = None,
    window_s: float = 0.0,
    deadline_s: float = 10.0,
    on_batch: Callable[[int], None] = ignore,
    on_queue: Callable[[int], None] = ignore,
) -> AnyBatcher:
    """Passline's queue, or BentoML's dispatcher behind the same interface; the latter has no use for some of it.

    deadline_s: the usual time that a caller gives; BentoML's dispatcher must know it beforehand.
    """
    if kind == "bentoml":
        from serving.bentoml_batching import BentoBatcher  # importing BentoML takes a second that not everyone needs

        return BentoBatcher(
            predict,
            max_batch=max_batch,
            max_queue=max_queue,
            streams=streams,
            deadline_s=deadline_s,
            on_batch=on_batch,
            on_queue=on_queue,
        )
    return Batcher(
        predict,
        max_batch=max_batch,
        max_queue=max_queue,
        streams=streams,
        table=table,
        window_s=window_s,
        on_batch=on_batch,
        on_queue=on_queue,
    )
