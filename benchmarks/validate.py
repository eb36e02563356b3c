"""What the check of a dataset costs: first scan, scan of an unchanged set, search for near duplicates, memory, growth.

`scan_per_s`: 640 x 640 JPEG, hashed, decoded, measured, with their labels. `rescan_per_s`: the same call again, nothing
changed. `near_s`: 100,000 pictures, half of what each shows being common to all. `peak_rss_mib`: scan and rules over
100,000 small pictures, in a process of its own. `linear_ratio`: the same for 20,000 pictures over 5,000.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.made_dataset import made_rows, write_dataset
from benchmarks.own_process import in_own_process
from benchmarks.pictures import make_jpegs
from benchmarks.report import Bar, Benchmark, Measured, Table, at_least, at_most, run_benchmark
from deployments.params import load_params
from serving.cpus import threads_from_quota
from serving.images import ImageLimits
from tasks.scan import scan_dataset
from tasks.scanning.near_duplicates import near_pairs
from tasks.validate import judge_scan

SCAN_PER_S, RESCAN_PER_S, NEAR_S, PEAK_RSS_MIB, LINEAR_RATIO = 300.0, 10_000.0, 60.0, 1024.0, 4.4
BAR_CORES = 2
SIDE_PX, SMALL_SIDE_PX = 640, 96
DIFFERENT = 48
SHARED_SHARE = 0.5
LIMITS = ImageLimits(max_bytes=2**25, max_pixels=2**26)
PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"


@dataclass(frozen=True)
class Size:
    """How much one run measures."""

    pictures: int
    rounds: int
    small: tuple[int, int]
    """Sizes of the two sets whose times are compared."""
    large: int
    near: int


FULL, QUICK = Size(1500, 3, (5_000, 20_000), 100_000, 100_000), Size(100, 1, (250, 1_000), 0, 5_000)


@dataclass(frozen=True)
class Cost:
    """One check of a dataset in a process of its own: seconds per part, and memory at its worst."""

    pictures: int
    scan_s: float
    rules_s: float
    rescan_s: float
    peak_rss_mib: float

    @property
    def check_s(self) -> float:
        """First scan and rules."""
        return self.scan_s + self.rules_s


@dataclass(frozen=True)
class Near:
    """One search for near duplicates."""

    rows: int
    seconds: float
    copies: int
    found: int
    peak_rss_mib: float


@dataclass(frozen=True)
class Findings:
    """Everything that was measured. `first_s`: seconds per first scan of the large pictures."""

    pictures: int
    first_s: tuple[float, ...]
    costs: tuple[Cost, ...]
    near: Near


def measure(quick: bool) -> Measured:
    """The whole benchmark."""
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="passline-validate-") as scratch:
        folder = Path(scratch)
        _say(f"first scan of {size.pictures} pictures of {SIDE_PX} x {SIDE_PX}")
        jpegs = make_jpegs(DIFFERENT, SIDE_PX)
        write_dataset(folder / "large", jpegs, size.pictures)
        first_s = tuple(in_own_process(first_scan, folder / "large", folder / f"scans{n}") for n in range(size.rounds))
        costs = tuple(_cost(folder, count) for count in (*size.small, size.large) if count)
    _say(f"near duplicates among {size.near} pictures")
    near = in_own_process(search, size.near)
    return conclude(Findings(size.pictures, first_s, costs, near), quick=quick)


def _cost(folder: Path, count: int) -> Cost:
    _say(f"check of {count} small pictures")
    data = write_dataset(folder / f"small-{count}", make_jpegs(DIFFERENT, SMALL_SIDE_PX), count)
    return in_own_process(check, data, folder / "scans")


def first_scan(folder: Path, cache: Path) -> float:
    """Seconds of a scan with an empty cache."""
    started = time.perf_counter()
    scan_dataset(folder, LIMITS, cache=cache)
    return time.perf_counter() - started


def check(folder: Path, cache: Path) -> Cost:
    """Scan, rules, scan again."""
    config = load_params(PARAMS).job.validation
    tiny = scan_dataset(write_dataset(folder.with_name(f"{folder.name}-tiny"), make_jpegs(1, SMALL_SIDE_PX), 1), LIMITS)
    judge_scan(tiny, config)  # Imports Great Expectations, which would make a small set look slow.
    times = [time.perf_counter()]
    scan = scan_dataset(folder, LIMITS, cache=cache)
    times.append(time.perf_counter())
    judge_scan(scan, config)
    times.append(time.perf_counter())
    pictures = len(scan.pictures)
    del scan
    scan_dataset(folder, LIMITS, cache=cache)
    times.append(time.perf_counter())
    scan_s, rules_s, rescan_s = (after - before for before, after in pairwise(times))
    return Cost(pictures, scan_s, rules_s, rescan_s, _peak_rss_mib())


def search(count: int) -> Near:
    """Search made-up rows."""
    rows, copies = made_rows(count, SHARED_SHARE)
    started = time.perf_counter()
    pairs = near_pairs(rows)
    seconds = time.perf_counter() - started
    found = int((pairs["second"] == pairs["first"] + count - copies).sum())
    return Near(count, seconds, copies, found, _peak_rss_mib())


def _peak_rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def conclude(found: Findings, *, quick: bool) -> Measured:
    """Tables, bars and notes from what was measured."""
    return Measured(
        settings={"side_px": SIDE_PX, "small_side_px": SMALL_SIDE_PX, "threads": threads_from_quota(1),
                  "shared_share": SHARED_SHARE},
        samples={"first_s": found.first_s, "costs": [asdict(cost) for cost in found.costs],
                 "near": asdict(found.near)},
        bars=bars(found, quick=quick),
        tables=_tables(found),
        notes=(f"{found.near.found} of {found.near.copies} copies among {found.near.rows} rows were found",),
    )  # fmt: skip


def bars(found: Findings, *, quick: bool) -> tuple[Bar, ...]:
    """The claims. Those about two cores are decided on two cores or fewer, those about sizes at these sizes."""
    per_s = found.pictures / statistics.median(found.first_s)
    small, large = sorted(found.costs, key=lambda cost: cost.pictures)[:2]
    most = max(found.costs, key=lambda cost: cost.pictures)
    full = not quick
    return (
        at_least("scan_per_s", per_s, SCAN_PER_S, decided=full and threads_from_quota(1) <= BAR_CORES),
        at_least("rescan_per_s", large.pictures / large.rescan_s, RESCAN_PER_S, decided=full),
        at_most("near_s", found.near.seconds, NEAR_S, decided=full),
        at_most("peak_rss_mib", max(most.peak_rss_mib, found.near.peak_rss_mib), PEAK_RSS_MIB, decided=full),
        at_most("linear_ratio", large.check_s / small.check_s, LINEAR_RATIO, decided=full),
    )


def _tables(found: Findings) -> tuple[Table, ...]:
    rows = tuple(
        (str(cost.pictures), f"{cost.scan_s:.2f}", f"{cost.rules_s:.2f}", f"{cost.rescan_s:.2f}",
         f"{cost.peak_rss_mib:.0f}")
        for cost in found.costs
    )  # fmt: skip
    return (Table(("small pictures", "first scan s", "rules s", "scan again s", "peak MiB"), rows),)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    packages = ("opencv-python-headless", "numpy", "pandas", "pyarrow", "scipy", "great_expectations")
    return run_benchmark(Benchmark("validate", measure, packages), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
