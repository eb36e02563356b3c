"""What serving costs: Passline against the limit of the machine and against other servers, on the same cores.

`--only PART,...` runs parts of it: share_640, share_160, extra, takt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.limit import Layout
from benchmarks.load import Loader, Target, loader, poisson_schedule, takt_schedule
from benchmarks.report import Benchmark, Measured, run_benchmark
from benchmarks.rounds import Rounds, Subject, run_rounds
from benchmarks.sealed_model import SealedModel, sealed_model
from benchmarks.servers import Host
from benchmarks.serving_bench import AS_INSTALLED, OPTIONAL_PEERS, Bench, Size, open_bench, say
from benchmarks.serving_report import Findings, Open, conclude

PARTS = ("share_640", "share_160", "extra", "takt")
CLIENTS = 16
LINES = 4
CLOSE = ("passline", AS_INSTALLED, "fastapi-ort")
"""Subjects of which a ratio near 1 is claimed."""
TAKT_LOAD = 0.6


FULL = (Size(640, 7, 300, 64, 11, 25, 120.0), Size(160, 7, 400, 100, 11, 100, 0.0))
QUICK = (Size(160, 2, 100, 48, 3, 25, 5.0),)


def measure(quick: bool, parts: Sequence[str] = PARTS) -> Measured:
    """The whole benchmark, or parts of it."""
    folder = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench"
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="passline-serving-") as place, loader() as load:
        for size in QUICK if quick else FULL:
            if {f"share_{size.input_px}", "extra"} & set(parts) or (size.takt_s and "takt" in parts):
                say(f"model for {size.input_px} px")
                model = sealed_model(size.input_px, folder)
                _measure_model(found, size, model, Path(place) / str(size.input_px), load, parts)
    return conclude(found, quick=quick)


def _measure_model(
    found: Findings, size: Size, model: SealedModel, place: Path, load: Loader, parts: Sequence[str]
) -> None:
    share = f"share_{size.input_px}" in parts
    with open_bench(size, model, place, load, with_peers=share) as bench:
        found.layouts[size.input_px] = bench.layout
        found.left_out += bench.left_out
        found.picture_bytes = len(bench.pictures.bodies[0])
        found.releases |= {f"{name}, {size.input_px} px": _release(host) for name, host in bench.hosts.items()}
        limit_per_s = bench.in_process(bench.layout, size.slow_requests).throughput_per_s
        if share:
            rounds = found.shares[size.input_px] = run_rounds(_subjects(bench), size.rounds, say)
            limit_per_s = rounds.throughput_per_s("limit")
        if "extra" in parts:
            say("lone client")
            found.lone[size.input_px] = _lone(bench)
        if "takt" in parts and size.takt_s:
            say(f"takt: {TAKT_LOAD:.0%} of {limit_per_s:.1f} pictures/s")
            found.open[size.input_px] = _takt(bench, limit_per_s)


def _subjects(bench: Bench) -> list[Subject]:
    size = bench.size
    subjects = [Subject("limit", size.requests, partial(bench.in_process, bench.layout))]
    for name, server in bench.servers.items():
        requests = size.requests if name in CLOSE else size.slow_requests
        subjects.append(Subject(name, requests, partial(bench.closed, name, CLIENTS), server.cpu_s))
    return subjects


def _lone(bench: Bench) -> Rounds:
    """One client, against the same use of the cores for one call in process."""
    layout = Layout(_threads(bench.hosts["passline"]), 1, 1)
    size = bench.size
    subjects = [
        Subject("limit", size.lone_requests, partial(bench.in_process, layout)),
        Subject("passline", size.lone_requests, partial(bench.closed, "passline", 1), bench.servers["passline"].cpu_s),
    ]
    return run_rounds(subjects, size.lone_rounds, lambda _: None)


def _takt(bench: Bench, limit_per_s: float) -> Open:
    """Lines with a fixed takt; and, for information, arrivals that are independent of each other."""
    rate, seconds = TAKT_LOAD * limit_per_s, bench.size.takt_s
    target = Target(bench.servers["passline"].port)
    takt = bench.load.open(target, bench.pictures, takt_schedule(LINES, LINES / rate, seconds))
    time.sleep(1.0)
    poisson = bench.load.open(target, bench.pictures, poisson_schedule(rate, seconds / 2, seed=1))
    return Open(rate, takt, poisson)


def _threads(host: Host) -> int:
    status = host.status()
    return status.threads if status else 1


def _release(host: Host) -> Mapping[str, object]:
    """What the service says about its engine."""
    status = host.status()
    return status.model_dump(mode="json") if status else {}


def _take_parts(arguments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The parts that are asked for, and the other arguments.

    >>> _take_parts(["--quick", "--only", "takt,extra"])
    (('takt', 'extra'), ['--quick'])
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--only", default=",".join(PARTS))
    given, rest = parser.parse_known_args(arguments)
    parts = tuple(given.only.split(","))
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--only: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return parts, rest


def main(arguments: Sequence[str]) -> int:
    """Run it. What is only a part goes to a file of its own."""
    parts, rest = _take_parts(list(arguments))
    name = "serving" if set(parts) == set(PARTS) else "serving-part"
    packages = ("onnxruntime-gpu", "bentoml", "uvicorn", "uvloop", "httptools", "fastapi")
    benchmark = Benchmark(name, partial(measure, parts=parts), packages, ("ultralytics", *OPTIONAL_PEERS))
    return run_benchmark(benchmark, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
