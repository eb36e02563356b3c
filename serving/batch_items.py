"""What goes through a batcher: pictures that wait, and the answers that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[np.float32]
Predict = Callable[[Tensor], Tensor]
"""Engine: (n, 3, height, width) to (n, ...)."""


class Lane(IntEnum):
    """Who may wait for whom. Shadow and bulk run in the gaps that inspection leaves, and are promised nothing."""

    INSPECTION = 0
    SHADOW = 1
    BULK = 2


@dataclass(frozen=True, eq=False)
class BatchAnswer:
    """The engine's output for one picture, (...), and how it came about."""

    token: object
    output: Tensor
    batch_size: int
    queue_s: float
    infer_s: float


class Picture(Protocol):
    """A picture that the engine's thread makes ready before the call and concludes after it.

    For engines on the CPU: pixels and engine share the same cores, so one thread that takes a picture all the way loses
    no time to other threads, and what waits is a file instead of a tensor many times its size.
    """

    def prepare(self) -> Tensor:
        """The tensor, (3, height, width). What it raises goes to this picture's caller and to no other."""
        ...

    def conclude(self, answer: BatchAnswer) -> None:
        """Do what is left. What it raises goes to this picture's caller."""
        ...


@dataclass(eq=False, slots=True)
class Item:
    """A picture, or its tensor (3, height, width), that waits for its answer. Times are of the monotonic clock."""

    picture: Picture | Tensor
    expires_at: float
    arrived_at: float
    lane: Lane
    answer: asyncio.Future[BatchAnswer]
    token: object = field(default_factory=object)


class AnyBatcher(Protocol):
    """An engine's queue, whichever implementation. Used from one event loop."""

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        ...

    async def submit(
        self, picture: Picture | Tensor, *, expires_at: float, lane: Lane = Lane.INSPECTION
    ) -> BatchAnswer:
        """Run one picture, or its tensor (3, height, width), through the engine; see `serving.batching.Batcher`."""
        ...

    def close(self) -> None:
        """Take nothing new; let what was taken finish and the engine's threads end."""
        ...


def ignore(_: int) -> None:
    """Watch nothing."""
