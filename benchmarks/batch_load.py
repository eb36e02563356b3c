"""Load for a batcher: engines that only take time, and generators that keep to theirs."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from data_contracts.errors import Overloaded
from serving.batching import AnyBatcher, Lane, Tensor

PICTURE: Tensor = np.zeros((3, 4, 4), np.float32)
CALL_S, PICTURE_S = 0.008, 0.001
_PR_SET_TIMERSLACK = 29


def gpu_seconds(size: int) -> float:
    """What the fake GPU engine takes for a batch.

    >>> gpu_seconds(16)
    0.024
    """
    return round(CALL_S + PICTURE_S * size, 9)


def precise_sleeps() -> None:
    """Let this thread's sleeps end on time: Linux rounds them up by 50 us otherwise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class FakeGpu:
    """8 ms + 1 ms per picture, asleep: it takes no processor and holds no lock, as a GPU's driver does.

    early_s: how much later than asked a sleep ends here, taken off each one. over_s: by how much calls took too long.
    """

    def __init__(self, early_s: float = 0.0) -> None:
        self.over_s: list[float] = []
        self._early_s = early_s
        self._thread = threading.local()

    def run(self, batch: Tensor) -> Tensor:
        """The batch itself, later."""
        end = time.monotonic() + gpu_seconds(len(batch))
        if not hasattr(self._thread, "ready"):
            precise_sleeps()
            self._thread.ready = True
        time.sleep(max(end - time.monotonic() - self._early_s, 0.0))
        self.over_s.append(time.monotonic() - end)
        return batch


def sleep_excess_s(rounds: int = 200) -> float:
    """Median of how much later than asked a sleep of 9 ms ends here."""
    excess: list[float] = []

    def sleeper() -> None:
        gpu = FakeGpu()
        for _ in range(rounds):
            gpu.run(PICTURE[None])
        excess.extend(gpu.over_s)

    thread = threading.Thread(target=sleeper)
    thread.start()
    thread.join()
    return max(0.0, float(np.median(excess)))


class BusyCpu:
    """An engine that keeps one core busy without Python's lock, for `picture_s` per picture: it hashes bytes."""

    def __init__(self, picture_s: float) -> None:
        block = bytes(2**20)
        started = time.perf_counter()
        for _ in range(50):
            hashlib.sha256(block)
        per_block_s = (time.perf_counter() - started) / 50
        self._block = bytes(max(2**12, round(2**20 * picture_s / per_block_s)))

    def run(self, batch: Tensor) -> Tensor:
        """The batch itself, after as many hashes as pictures."""
        for _ in range(len(batch)):
            hashlib.sha256(self._block)
        return batch

    def limit(self, streams: int, seconds: float) -> float:
        """Pictures per second of `streams` threads that call the engine without a pause, one picture a call."""
        ends_at = time.monotonic() + seconds
        counts = [0] * streams

        def call(stream: int) -> None:
            while time.monotonic() < ends_at:
                self.run(PICTURE[None])
                counts[stream] += 1

        threads = [threading.Thread(target=call, args=(stream,)) for stream in range(streams)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - started)


@dataclass
class Outcomes:
    """What became of the pictures of one run. Latencies count from when a picture was due, in seconds."""

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    late: int = 0
    generator_late_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def missed(self) -> int:
        """Pictures that were not answered in time, refused at once or not."""
        return self.refused + self.late


async def submit_counted(batcher: AnyBatcher, due: float, deadline_s: float, lane: Lane, outcomes: Outcomes) -> None:
    """One picture that was due at a monotonic time; whatever becomes of it is counted."""
    outcomes.generator_late_s.append(time.monotonic() - due)
    try:
        await batcher.submit(PICTURE, expires_at=due + deadline_s, lane=lane)
    except Overloaded:
        outcomes.refused += 1
    except TimeoutError:
        outcomes.late += 1
    else:
        took_s = time.monotonic() - due
        if took_s > deadline_s:
            outcomes.late += 1
        else:
            outcomes.latencies_s.append(took_s)


async def open_loop(
    batcher: AnyBatcher, trace: Sequence[float], deadline_s: float, lane: Lane = Lane.INSPECTION
) -> Outcomes:
    """Submit at the times of the trace, whatever the batcher does, and wait for all answers."""
    loop, outcomes = asyncio.get_running_loop(), Outcomes()
    tasks: set[asyncio.Task[None]] = set()
    started = time.monotonic() + 0.05
    sent = asyncio.Event()

    def arrive(first: int, end: int) -> None:
        for at in range(first, end):
            tasks.add(loop.create_task(submit_counted(batcher, started + trace[at], deadline_s, lane, outcomes)))
        if end == len(trace):
            sent.set()

    def generate() -> None:
        precise_sleeps()
        first = 0
        while first < len(trace):
            time.sleep(max(0.0, started + trace[first] - time.monotonic()))
            end, now = first, time.monotonic() - started
            while end < len(trace) and trace[end] <= now:
                end += 1
            if end > first:
                loop.call_soon_threadsafe(arrive, first, end)
            first = end

    generator = threading.Thread(target=generate, name="generator", daemon=True)
    generator.start()
    await sent.wait()
    await asyncio.gather(*tasks)
    generator.join()
    outcomes.wall_s = time.monotonic() - started
    return outcomes


async def closed_loop(batcher: AnyBatcher, clients: int, seconds: float) -> Outcomes:
    """So many clients, each with one picture on its way, for a while."""
    outcomes, started = Outcomes(), time.monotonic()

    async def client() -> None:
        while time.monotonic() < started + seconds:
            await submit_counted(batcher, time.monotonic(), 60.0, Lane.INSPECTION, outcomes)

    await asyncio.gather(*(client() for _ in range(clients)))
    outcomes.wall_s = time.monotonic() - started
    return outcomes
