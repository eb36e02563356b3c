"""BentoML's adaptive batching behind our interface, to compare with and to choose.

`CorkDispatcher` is what `@bentoml.api(batchable=True)` uses; it is a private module, read in BentoML 1.4.40. Its traps,
and what is done about them here:

- a caller that is cancelled gets an exception instead of its cancellation: told apart by `Task.cancelling`;
- what it drops looks like a cancellation: its `fallback` becomes Overloaded;
- cancelled and expired pictures stay in its queue and go to the engine: left out here before the call;
- an exception goes to every member, and too few results are an AssertionError: both become EngineError;
- its queue has no bound: bounded here;
- it drops by one latency target for all, not by the deadline of each: every caller keeps a clock of its own.

It has one queue: lanes are accepted and make no difference.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, NoReturn

from data_contracts.errors import EngineError, Overloaded, Problem
from serving.batch_items import BatchAnswer, Item, Lane, Picture, Predict, Tensor, ignore
from serving.engine_call import Outcome, run_call

Answered = Outcome | None


class _Dropped(Exception):
    """The dispatcher gave a picture up, or its caller was cancelled."""


def _dropped() -> NoReturn:
    raise _Dropped


class BentoBatcher:
    """One engine's queue, dispatched by BentoML. Use it from one event loop.

    deadline_s: BentoML's `max_latency_ms`; it drops what it expects to take longer.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        max_batch: int,
        max_queue: int,
        streams: int = 1,
        deadline_s: float = 10.0,
        on_batch: Callable[[int], None] = ignore,
        on_queue: Callable[[int], None] = ignore,
    ) -> None:
        from bentoml._internal.marshal.dispatcher import CorkDispatcher, NonBlockSema

        self._predict, self._max_queue = predict, max_queue
        self._on_batch, self._on_queue = on_batch, on_queue
        self._waiting, self._inside = set[Item](), 0
        self._pool = ThreadPoolExecutor(max_workers=streams, thread_name_prefix="engine")
        self._dispatcher = CorkDispatcher(
            max_latency_in_ms=math.ceil(deadline_s * 1000),
            max_batch_size=max_batch,
            shared_sema=NonBlockSema(streams),
            fallback=_dropped,
            get_batch_size=lambda _: 1,
        )
        self._dispatch: Callable[[Item], Coroutine[Any, Any, Answered]] = self._dispatcher(self._call)

    async def submit(
        self, picture: Picture | Tensor, *, expires_at: float, lane: Lane = Lane.INSPECTION
    ) -> BatchAnswer:
        """Run one picture, or its tensor (3, height, width), through the engine; raises what `Batcher` raises."""
        if len(self._waiting) >= self._max_queue:
            problem = Problem("queue", "a place in it", "a full queue", "Try again later.")
            raise Overloaded(problem, retry_after_s=0.1)
        item = Item(picture, expires_at, monotonic(), lane, asyncio.get_running_loop().create_future())
        self._waiting.add(item)
        self._inside += 1
        self._on_queue(len(self._waiting))
        try:
            async with asyncio.timeout_at(expires_at):
                outcome = await self._outcome(item)
        finally:
            self._inside -= 1
            self._forget([item])
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            raise TimeoutError("the deadline passed in the queue")
        if outcome.token is not item.token:
            raise EngineError("an answer came back to another picture than its own")
        return outcome

    def close(self) -> None:
        """Stop the dispatcher and let the engine's threads end."""
        self._dispatcher.shutdown()
        self._pool.shutdown(wait=False)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._inside == 0

    async def _outcome(self, item: Item) -> Answered:
        try:
            return await self._dispatch(item)
        except _Dropped:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            problem = Problem("deadline", "an answer in time", "dropped by BentoML's dispatcher", "Try again later.")
            raise Overloaded(problem, retry_after_s=0.1) from None

    async def _call(self, items: Sequence[Item]) -> list[Answered]:
        """What the dispatcher calls: one outcome per item, None for those that nobody waits for."""
        now = monotonic()
        wanted = [item for item in items if item in self._waiting and item.expires_at > now]
        self._forget(wanted)
        outcomes: dict[object, Outcome] = {}
        if wanted:
            loop = asyncio.get_running_loop()
            called = await loop.run_in_executor(self._pool, run_call, self._predict, wanted)
            if called.size:
                self._on_batch(called.size)
            outcomes = {item.token: outcome for item, outcome in called.outcomes()}
        return [outcomes.get(item.token) for item in items]

    def _forget(self, items: Sequence[Item]) -> None:
        """They do not wait any more; what is forgotten never reaches the engine."""
        self._waiting.difference_update(items)
        self._on_queue(len(self._waiting))
