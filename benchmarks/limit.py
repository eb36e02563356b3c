"""The limit of the machine: the detector in process, without a server around it.

As many threads as keep the cores busy take a picture each through decoding, letterbox, engine and suppression. The
engine is ONNX Runtime with FP32, which is what a host runs that knows nothing better.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.answers import Boxes
from benchmarks.load import LoadResult
from data_contracts.detections import Detections
from serving.bundle import open_bundle
from serving.detector import Detector, open_detector
from serving.engines import EngineOptions
from serving.images import ImageLimits, decode_image
from serving.verdict import judge, score_floor

LIMITS = ImageLimits(max_bytes=2**25, max_pixels=2**26)


@dataclass(frozen=True)
class Layout:
    """How the cores are used: `threads` for one engine call, `streams` calls at once, `workers` pictures in work."""

    threads: int
    streams: int
    workers: int

    def __str__(self) -> str:
        return f"{self.threads} x {self.streams}, {self.workers} in work"


def layouts(cores: int) -> tuple[Layout, ...]:
    """What may be the limit on so many cores: one thread each, or all for one call; with and without a spare picture.

    >>> [str(one) for one in layouts(2)]
    ['1 x 2, 2 in work', '1 x 2, 3 in work', '2 x 1, 2 in work', '2 x 1, 3 in work']
    """
    found = [(1, cores, workers) for workers in (cores, cores + 1)] + [(cores, 1, workers) for workers in (2, 3)]
    return tuple(Layout(*one) for one in dict.fromkeys(found))


class InProcess:
    """The detector with one engine per layout, opened when first needed."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = open_bundle(bundle)
        self._detectors: dict[tuple[int, int], Detector] = {}

    def run(self, layout: Layout, pictures: Sequence[bytes], total: int) -> LoadResult:
        """Take `total` pictures through, in turn."""
        detector = self._detector(layout)
        places = threading.Semaphore(layout.streams)
        numbers, times, lock = count(), [], threading.Lock()
        started = perf_counter()

        def work() -> None:
            while (number := next(numbers)) < total:
                begun_s = perf_counter() - started
                self._inspect(detector, places, pictures[number % len(pictures)])
                with lock:
                    times.append((begun_s, perf_counter() - started))

        threads = [threading.Thread(target=work) for _ in range(layout.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        begun, ended = np.array(sorted(times, key=lambda pair: pair[1])).T
        return LoadResult(ended - begun, ended, {200: len(times)}, 0, float(begun.max()), layout.workers, 0.0)

    def expected(self, pictures: Sequence[bytes]) -> tuple[Boxes, ...]:
        """The boxes that belong to each picture."""
        detector = self._detector(Layout(1, 1, 1))
        return tuple(boxes(self._inspect(detector, threading.Semaphore(), picture)) for picture in pictures)

    def _inspect(self, detector: Detector, places: threading.Semaphore, picture: bytes) -> Detections:
        rule = self._bundle.manifest.verdict
        prepared = detector.prepare(decode_image(picture, LIMITS))
        with places:
            (output,) = detector.predict(prepared.tensor[None])
        return judge(detector.encode(output, prepared.letterbox, score_floor(rule)), rule)[1]

    def _detector(self, layout: Layout) -> Detector:
        key = (layout.threads, layout.streams)
        if key not in self._detectors:
            options = EngineOptions("cpu", allow_fallback=False, threads=layout.threads)
            detector = open_detector(self._bundle, options)
            width, height = detector.spec.input.wh
            for _ in range(3):
                detector.predict(np.zeros((1, 3, height, width), np.float32))
            self._detectors[key] = detector
        return self._detectors[key]


def boxes(found: Detections) -> Boxes:
    """Detections as the rows that answers are compared with."""
    return np.column_stack((found.boxes_xyxy_px, found.scores, found.class_ids)).astype(np.float32)


_here: InProcess | None = None


def _open(bundle: Path) -> None:
    global _here  # noqa: PLW0603  (the one object of a worker process)
    _here = InProcess(bundle)


def _run(layout: Layout, pictures: Sequence[bytes], total: int) -> LoadResult:
    assert _here is not None  # noqa: S101  (the pool's initialiser has run)
    return _here.run(layout, pictures, total)


def _expected(pictures: Sequence[bytes]) -> tuple[Boxes, ...]:
    assert _here is not None  # noqa: S101
    return _here.expected(pictures)


class Limit:
    """`InProcess` in a process of its own, which sleeps between runs."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, layout: Layout, pictures: Sequence[bytes], total: int) -> LoadResult:
        """`InProcess.run` there."""
        return self._pool.submit(_run, layout, pictures, total).result()

    def expected(self, pictures: Sequence[bytes]) -> tuple[Boxes, ...]:
        """`InProcess.expected` there."""
        return self._pool.submit(_expected, pictures).result()


@contextmanager
def limit_process(bundle: Path) -> Iterator[Limit]:
    """A limit of this bundle; its process ends with the block."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_open, initargs=(bundle,)) as pool:
        yield Limit(pool)
