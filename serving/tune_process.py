"""The trial process: lists engines, or measures or judges one, and ends. Started by `serving.trial`."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from time import perf_counter
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from data_contracts.errors import BundleError, PasslineError
from data_contracts.tuning import EngineChoice
from serving.bundle import open_bundle
from serving.detector import Detector, check_golden, open_detector
from serving.engines import EngineOptions, Provider, possible_engines
from serving.images import Image
from serving.probe import judge_answers, rule_for
from serving.probe_files import ProbeFolder, open_probe_set
from serving.trial import Listed, Measured, TrialReport, TrialRequest, first_problem

ENOUGH_CALLS = 100
"""Calls of one caller after which a layout is known well enough, however much time is left."""

Tensor = npt.NDArray[np.float32]


def main() -> None:
    """Read a request from the standard input, write the report to the standard output."""
    with _only_reports_on_stdout() as answer:
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        report = answer_to(TrialRequest.model_validate_json(sys.stdin.buffer.read()))
        answer.write(report.to_json().encode())


def answer_to(request: TrialRequest) -> TrialReport:
    """What came out; what Passline itself refused is told as the failure."""
    try:
        return ANSWERS[request.what](request)
    except PasslineError as error:
        return TrialReport(failure=first_problem(error))


def _list(request: TrialRequest) -> TrialReport:
    found = possible_engines(request.bundle, request.providers)
    return TrialReport(
        listed=tuple(Listed(provider=one.provider, precision=one.precision, reason=one.reason) for one in found)
    )


def options_for(engine: EngineChoice, request: TrialRequest) -> EngineOptions:
    """Exactly this engine: a trial of another one would tell nothing."""
    return EngineOptions(
        provider=cast("Provider", engine.provider),
        allow_fallback=False,
        threads=engine.threads,
        streams=engine.streams,
        precision=engine.precision,
        engine_cache=request.engine_cache,
        max_batch=request.max_batch,
        workspace_bytes=request.workspace_bytes,
    )


def _measure_all(request: TrialRequest) -> TrialReport:
    bundle = open_bundle(request.bundle)
    measured = []
    for engine in request.engines:
        detector = open_detector(bundle, options_for(engine, request))
        callers = engine.streams if request.policy == "throughput" else 1
        rate, call_s = measure(detector, callers, request.measure_s)
        measured.append(Measured(engine=engine, pictures_per_s=rate, call_ms=call_s * 1000))
    return TrialReport(measured=tuple(measured))


def measure(detector: Detector, callers: int, seconds: float) -> tuple[float, float]:
    """Pictures per second and the median call in seconds, with `callers` threads that each call one by one."""
    width, height = detector.spec.input.wh
    # Not zeros: some libraries are faster on them.
    batch = np.random.default_rng(0).random((1, 3, height, width), np.float32)
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(lambda _: detector.predict(batch), range(callers)))  # the first call of a stream prepares it
        started = perf_counter()
        calls = list(pool.map(lambda _: _call(detector, batch, started + seconds), range(callers)))
        took_s = perf_counter() - started
    return sum(map(len, calls)) / took_s, statistics.median(call for own in calls for call in own)


def _call(detector: Detector, batch: Tensor, until: float) -> list[float]:
    """Seconds of each call until the time is up: two at least."""
    calls: list[float] = []
    while len(calls) < 2 or (perf_counter() < until and len(calls) < ENOUGH_CALLS):
        before = perf_counter()
        detector.predict(batch)
        calls.append(perf_counter() - before)
    return calls


def _judge(request: TrialRequest) -> TrialReport:
    bundle, (engine, *_) = open_bundle(request.bundle), request.engines
    if request.probe_set is None:
        return TrialReport(passed=False, words="no probe set to judge it by")
    folder = open_probe_set(request.probe_set)
    rule = rule_for(bundle.manifest, engine.precision)
    detector = open_detector(bundle, options_for(engine, request))
    judgement = judge_answers(folder.probe, find_all(detector, folder, engine.streams), rule)
    try:
        check_golden(detector, bundle)
    except BundleError as error:
        return TrialReport(passed=False, words=f"{judgement.words}; golden pictures: {first_problem(error)}")
    return TrialReport(passed=judgement.passed, words=judgement.words)


def find_all(detector: Detector, folder: ProbeFolder, streams: int) -> list[Detections]:
    """The answers to all pictures of a probe set, in order; `streams` pictures are in memory at a time."""
    images, found = folder.images(), list[Detections]()
    with ThreadPoolExecutor(streams) as pool:
        while group := list(islice(images, streams)):
            found += pool.map(partial(_find, detector, folder.probe.score_floor), group)
    return found


def _find(detector: Detector, score_floor: float, image: Image) -> Detections:
    (found,) = detector.detect([image], score_floor)
    return found


ANSWERS = {"list": _list, "measure": _measure_all, "judge": _judge}


@contextmanager
def _only_reports_on_stdout() -> Iterator[BinaryIO]:
    """Libraries print where they like; the standard output must hold the report alone, so they get the error output."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        yield answer


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
