"""Gather pictures that wait for the engine into one call.

While the engine works, arrivals gather; when it is free, what waits goes at once, up to the largest batch. Nothing
waits for company, so a lone client pays nothing for batching.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import numpy.typing as npt

from data_contracts.errors import EngineError, Overloaded, Problem

Tensor = npt.NDArray[np.float32]
Predict = Callable[[Tensor], Tensor]
"""Engine: (n, 3, height, width) to (n, ...)."""

_NEWEST_WEIGHS = 0.3


@dataclass(frozen=True, eq=False)
class BatchAnswer:
    """The engine's output for one picture, (...), and how it came about."""

    token: object
    output: Tensor
    batch_size: int
    queue_s: float
    infer_s: float


@dataclass(eq=False)
class _Item:
    tensor: Tensor
    expires_at: float
    arrived_at: float
    answer: asyncio.Future[BatchAnswer]
    token: object = field(default_factory=object)


def _ignore(_: int) -> None:
    pass


class Batcher:
    """One engine's queue. Use it from one event loop.

    on_batch: told the size of each engine call; on_queue: told how many pictures wait, at each change.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        max_batch: int,
        max_queue: int,
        on_batch: Callable[[int], None] = _ignore,
        on_queue: Callable[[int], None] = _ignore,
    ) -> None:
        self._predict = predict
        self._max_batch, self._max_queue = max_batch, max_queue
        self._on_batch, self._on_queue = on_batch, on_queue
        self._waiting: deque[_Item] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._call_s = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")

    async def submit(self, tensor: Tensor, *, expires_at: float) -> BatchAnswer:
        """Run one picture, (3, height, width), through the engine.

        expires_at: event loop time after which nobody wants the answer. A caller that is cancelled leaves the queue.
        Raises Overloaded at once when the queue is full or the answer would come too late, TimeoutError when it became
        too late while waiting, EngineError when the engine failed.
        """
        loop = asyncio.get_running_loop()
        self._admit(expires_at - loop.time())
        item = _Item(tensor, expires_at, loop.time(), loop.create_future())
        self._waiting.append(item)
        self._on_queue(len(self._waiting))
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        try:
            answer = await item.answer
        finally:
            with suppress(ValueError):
                self._waiting.remove(item)
                self._on_queue(len(self._waiting))
        if answer.token is not item.token:
            raise EngineError("an answer came back to another picture than its own")
        return answer

    def close(self) -> None:
        """Let the engine's thread end once its call is done."""
        self._thread.shutdown(wait=False)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._waiting and (self._runner is None or self._runner.done())

    def _admit(self, left_s: float) -> None:
        if self.idle:
            # Whatever the estimate says: a lone client is always answered, and a wrong estimate mends itself here.
            return
        wait_s = self._call_s * (1 + math.ceil((len(self._waiting) + 1) / self._max_batch))
        if len(self._waiting) >= self._max_queue:
            raise Overloaded(
                Problem("queue", f"fewer than {self._max_queue} waiting pictures", "a full queue", "Try again later."),
                retry_after_s=max(wait_s, 0.1),
            )
        if wait_s > left_s:
            raise Overloaded(
                Problem("deadline", f"an answer within {left_s:.2f} s", f"about {wait_s:.2f} s", "Try again later."),
                retry_after_s=max(wait_s - left_s, 0.1),
            )

    async def _run(self) -> None:
        while batch := self._take():
            await self._answer(batch)

    def _take(self) -> list[_Item]:
        """The pictures that go next; those that nobody waits for any more are left out."""
        now = asyncio.get_running_loop().time()
        batch: list[_Item] = []
        while self._waiting and len(batch) < self._max_batch:
            item = self._waiting.popleft()
            if item.answer.done():
                continue
            if item.expires_at <= now:
                item.answer.set_exception(TimeoutError("the deadline passed in the queue"))
                continue
            batch.append(item)
        self._on_queue(len(self._waiting))
        return batch

    async def _answer(self, batch: list[_Item]) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            outputs, infer_s = await loop.run_in_executor(self._thread, self._call, [item.tensor for item in batch])
        except Exception as error:  # noqa: BLE001  (whatever an engine raises belongs to each picture of its call)
            failure = error if isinstance(error, EngineError) else EngineError(f"the engine failed: {error!r}")
            for item in batch:
                if not item.answer.done():
                    item.answer.set_exception(failure)
            return
        self._call_s += (infer_s - self._call_s) * (_NEWEST_WEIGHS if self._call_s else 1.0)
        self._on_batch(len(batch))
        for item, output in zip(batch, outputs, strict=True):
            if not item.answer.done():
                queue_s = started_at - item.arrived_at
                item.answer.set_result(BatchAnswer(item.token, output, len(batch), queue_s, infer_s))

    def _call(self, tensors: list[Tensor]) -> tuple[list[Tensor], float]:
        """In the engine's thread: one call, checked to answer every picture."""
        started = perf_counter()
        outputs = self._predict(np.stack(tensors))
        infer_s = perf_counter() - started
        if len(outputs) != len(tensors):
            raise EngineError(f"the engine answered {len(outputs)} of {len(tensors)} pictures")
        return list(outputs), infer_s
