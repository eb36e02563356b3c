"""The measuring process: calls bundles in turns, tells times and its own peak memory. See `tasks.gating.speed`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from serving.bundle import open_bundle
from serving.detector import Detector
from tasks.gating.speed_result import SpeedAnswer, SpeedRequest
from tasks.pictures import bundle_detector

PROCESS_FACTS = Path("/proc/self/status")
WARM_UP = 2


def main() -> None:
    """Read a request from the standard input, write the answer to the standard output."""
    request = SpeedRequest.model_validate_json(sys.stdin.buffer.read())
    detectors = [bundle_detector(open_bundle(path)) for path in request.bundles]
    seconds = time_in_turns(detectors, request.batch, request.rounds)
    facts = PROCESS_FACTS.read_text() if PROCESS_FACTS.is_file() else ""
    sys.stdout.write(SpeedAnswer(seconds=tuple(seconds), peak_mib=peak_mib(facts)).to_json())


def time_in_turns(detectors: Sequence[Detector], batch: int, rounds: int) -> list[float]:
    """Seconds of the shortest call, by detector. Each round calls all, from either end in turns.

    What else runs on the machine only adds to a call. On 2 cores with a load of 20 two equal models differed in 12
    measurements by factors of 0.92 to 5.65 in their medians, and of 0.82 to 1.04 in their shortest calls.
    """
    tensors = [_noise(detector, batch) for detector in detectors]
    taken: list[list[float]] = [[] for _ in detectors]
    order = list(range(len(detectors)))
    for number in range(WARM_UP + rounds):
        for index in order if number % 2 else reversed(order):
            started = perf_counter()
            detectors[index].predict(tensors[index])
            taken[index].append(perf_counter() - started)
    return [min(times[WARM_UP:]) for times in taken]


def _noise(detector: Detector, batch: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    width, height = detector.spec.input.wh
    return np.random.default_rng(0).random((batch, 3, height, width), dtype=np.float32)


def peak_mib(facts: str) -> float | None:
    """The peak of this process alone; getrusage would also tell that of the one that started it.

    >>> peak_mib("VmPeak: 9 kB\\nVmHWM:   2048 kB\\n")
    2.0
    """
    lines = [line.split() for line in facts.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) / 1024 if lines else None


if __name__ == "__main__":
    main()
