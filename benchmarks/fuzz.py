"""Whether broken requests ever break the service: five minutes of damaged pictures and bodies over HTTP.

Every answer must be an inspection, a list or a problem with a status of the client's; good pictures in between must
get the answer that they always get; the service must neither die nor grow.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import httpx
from pydantic import ValidationError

from benchmarks.mutations import Case, cases
from benchmarks.report import Benchmark, Measured, Table, at_most, run_benchmark
from benchmarks.sealed_model import SealedModel
from benchmarks.servers import Server, passline
from benchmarks.tiny_bundle import INPUT_PX, make_tiny_bundle, red_corner
from data_contracts.errors import OutsideSystemError, Problem
from data_contracts.inspection import Inspection, InspectionList, PictureProblem, ProblemDetails

FULL_S, QUICK_S = 300.0, 25.0
CLIENTS = 4
GOOD_EVERY = 10
SAMPLE_S = 1.0
SEED = 20_240_501
ALLOWED = frozenset({200, 400, 408, 413, 415, 422, 429, 503, 504})
MEMORY_GROWTH_LIMIT_MB = 16.0
KEPT_EXAMPLES = 5


@dataclass
class Tally:
    """What came back. Several clients write to it."""

    statuses: Counter[int] = field(default_factory=Counter)
    items: Counter[int] = field(default_factory=Counter)
    server_errors: int = 0
    malformed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    good: int = 0
    wrong: int = 0
    memory_mb: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def check(status: int, content_type: str, content: bytes) -> list[int]:
    """Statuses of the single pictures of a list, empty for another answer. Raises ValueError for a malformed answer."""
    if status not in (*ALLOWED, 500):
        raise ValueError(f"status {status}")
    if status != httpx.codes.OK:
        problem = ProblemDetails.model_validate_json(content)
        if (problem.status, content_type) != (status, "application/problem+json") or not problem.detail:
            raise ValueError(f"status {status} with {content[:120]!r}")
        return []
    if content_type.startswith("image/"):
        return []
    if not content.startswith(b'{"inspections"'):
        Inspection.model_validate_json(content)
        return []
    listed = InspectionList.model_validate_json(content).inspections
    return [item.status if isinstance(item, PictureProblem) else 200 for item in listed]


class Client:
    """Sends cases until the time is up."""

    def __init__(self, url: str, seed: int, until: float, tally: Tally) -> None:
        self._url, self._until, self._tally = url, until, tally
        self._cases = cases(seed)
        self._good = cv2.imencode(".png", red_corner()[..., ::-1])[1].tobytes()
        self._expected: object = None

    def run(self) -> None:
        """One case after the other, and a good picture every so often."""
        with httpx.Client(base_url=self._url, timeout=60, trust_env=False) as http:
            self._ask_good(http)
            for number, case in enumerate(self._cases):
                if time.monotonic() > self._until:
                    return
                self._send(http, case)
                if number % GOOD_EVERY == 0:
                    self._ask_good(http)

    def _send(self, http: httpx.Client, case: Case) -> None:
        try:
            answer = http.post(case.path, content=case.body, headers=case.headers)
        except httpx.HTTPError as error:
            with self._tally.lock:
                self._tally.lost.append(f"{error!r} for {case.body[:60]!r}")
            return
        with self._tally.lock:
            self._count(answer, case)

    def _count(self, answer: httpx.Response, case: Case) -> None:
        self._tally.statuses[answer.status_code] += 1
        self._tally.server_errors += answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR
        try:
            items = check(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        except (ValueError, ValidationError) as error:
            self._tally.malformed.append(f"{error} for {case.body[:60]!r}")
            return
        self._tally.items.update(items)
        self._tally.server_errors += items.count(500)

    def _ask_good(self, http: httpx.Client) -> None:
        """Overload is no wrong answer, and a lost one is counted as such."""
        try:
            answer = http.post("/v1/inspect", content=self._good)
        except httpx.HTTPError as error:
            with self._tally.lock:
                self._tally.lost.append(f"{error!r} for the good picture")
            return
        if answer.status_code in (429, 503):
            return
        found = answer.json().get("detections") if answer.status_code == httpx.codes.OK else answer.status_code
        self._expected = self._expected or found
        with self._tally.lock:
            self._tally.good += 1
            self._tally.wrong += not (found and found == self._expected and isinstance(found, list))


def measure(quick: bool) -> Measured:
    """Fuzz a service of its own."""
    seconds = QUICK_S if quick else FULL_S
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="passline-fuzz-") as name, _service(Path(name)) as (url, server):
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            running = [pool.submit(Client(url, SEED + number, until, tally).run) for number in range(CLIENTS)]
            running.append(pool.submit(_watch_memory, server, until, tally))
            for one in running:
                one.result()
    return _measured(tally, seconds, quick=quick)


@contextmanager
def _service(folder: Path) -> Iterator[tuple[str, Server]]:
    bundle = make_tiny_bundle(folder / "bundles")
    model = SealedModel(bundle, probe=folder, weights=folder, input_px=INPUT_PX)  # a bundle alone is activated
    with passline("passline", model, folder / "host", provider="cpu", tune=False) as (host, server):
        yield host.url, server


def _watch_memory(server: Server, until: float, tally: Tally) -> None:
    while time.monotonic() < until:
        tally.memory_mb.append(server.pss_mb())
        time.sleep(SAMPLE_S)


def memory_growth_mb(samples_mb: list[float]) -> float | None:
    """Growth over the second half of the run: the median of its last fifth over that of its first fifth.

    >>> memory_growth_mb([90, 300] + [100] * 5 + [104] * 3)
    4.0
    """
    half = samples_mb[len(samples_mb) // 2 :]
    fifth = len(half) // 5
    return statistics.median(half[-fifth:]) - statistics.median(half[:fifth]) if fifth else None


def _measured(tally: Tally, seconds: float, *, quick: bool) -> Measured:
    sent = sum(tally.statuses.values())
    if not tally.good or not sent:
        raise OutsideSystemError(Problem("fuzz run", "answers", "none", "See whether the service starts at all."))
    # A short run can show that a bar does not hold, never that it does.
    counts = {
        "status_500": tally.server_errors,
        "wrong_answers": tally.wrong,
        "malformed_answers": len(tally.malformed),
        "lost_answers": len(tally.lost),
    }
    bars = tuple(at_most(name, count, 0, decided=not quick or count > 0) for name, count in counts.items())
    growth = at_most("memory_growth_mb", memory_growth_mb(tally.memory_mb), MEMORY_GROWTH_LIMIT_MB, decided=not quick)
    rows = tuple(
        (str(status), str(count), str(tally.items[status])) for status, count in sorted(tally.statuses.items())
    )
    return Measured(
        settings={"seconds": seconds, "clients": CLIENTS, "seed": SEED, "good_every": GOOD_EVERY},
        samples={
            "requests": sent,
            "good_pictures": tally.good,
            "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
            "statuses_in_lists": {str(status): count for status, count in sorted(tally.items.items())},
            "memory_mb": [round(value, 1) for value in tally.memory_mb],
            "malformed": tally.malformed[:KEPT_EXAMPLES],
            "lost": tally.lost[:KEPT_EXAMPLES],
        },
        bars=(*bars, growth),
        tables=(Table(("status", "answers", "pictures in lists"), rows),),
        notes=(f"{sent} damaged requests and {tally.good} good pictures in {seconds:g} s",),
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(Benchmark("fuzz", measure, ("bentoml", "opencv-python-headless", "onnxruntime"))))
