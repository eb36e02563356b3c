"""Pictures, batchers and stories for the tests of batching."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from fakes import FakeEngine, Tensor
from serving.batching import AnyBatcher, BatchAnswer, BatcherKind, Lane, make_batcher

FAR_S = 60.0


def picture(value: float) -> Tensor:
    return np.full((3, 2, 2), value, np.float32)


def value_of(answer: BatchAnswer) -> float:
    return float(answer.output.flat[0])


def batcher(engine: FakeEngine, kind: BatcherKind = "passline", **changes: Any) -> AnyBatcher:
    return make_batcher(kind, engine.run, **{"max_batch": 8, "max_queue": 64, "deadline_s": FAR_S, **changes})


async def submit(queue: AnyBatcher, value: float, within_s: float = FAR_S, lane: Lane = Lane.INSPECTION) -> BatchAnswer:
    return await queue.submit(picture(value), expires_at=asyncio.get_running_loop().time() + within_s, lane=lane)


async def with_engine_held(
    engine: FakeEngine, queue: AnyBatcher, work: Callable[[], Awaitable[list[Any]]], held_s: float = 0.05
) -> tuple[BatchAnswer, list[Any]]:
    """Let one picture (-1) keep the engine busy while `work` starts, then open the gate."""
    engine.gate = threading.Event()
    first = asyncio.ensure_future(submit(queue, -1))
    await asyncio.to_thread(engine.entered.wait, 10)
    rest = asyncio.ensure_future(work())
    await asyncio.sleep(held_s)
    engine.gate.set()
    return await first, await rest


async def gathered(*work: Awaitable[BatchAnswer]) -> list[Any]:
    return list(await asyncio.gather(*work, return_exceptions=True))
