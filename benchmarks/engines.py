"""What other engines and precisions gain over FP32 ONNX Runtime on this host's CPU, and what they cost in accuracy.

`--bundle DIR --data DIR`: accuracy of that sealed bundle on that dataset (YOLO's layout), instead of the sample data's
detector, which is trained first (about three minutes).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.engine_accuracy import measure_accuracy
from benchmarks.engine_models import Labelled, Subject, given, made_up, trained_plates
from benchmarks.engine_report import ALLOWED, Findings, Size, conclude
from benchmarks.engine_speed import Speed, Way, measure_speeds, open_ways, ways
from benchmarks.own_process import in_own_process
from benchmarks.report import Benchmark, Measured, run_benchmark
from data_contracts.tuning import Tuning
from serving.bundle import open_bundle
from serving.cpus import threads_from_quota
from serving.engines import possible_engines
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.tuning import Tuner

FAST_FLAGS = ("avx512_bf16", "amx_bf16", "avx512_vnni", "avx_vnni", "bf16", "i8mm")
"""Any of these in /proc/cpuinfo makes BF16 or INT8 fast; the last two are those of arm64."""


FULL, QUICK = Size(640, 7, 2.5, tunes_all=True), Size(160, 2, 0.2, tunes_all=False)


def measure(quick: bool, bundle: Path | None, data: Path | None) -> Measured:
    """The whole benchmark."""
    size = QUICK if quick else FULL
    home = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench"
    with tempfile.TemporaryDirectory(prefix="passline-engines-") as scratch:
        folder = Path(scratch)
        _say("models: made-up weights for speed, a trained one for accuracy")
        speed_subject = in_own_process(made_up, size.input_px, home, folder)
        trained, labelled = _trained(bundle, data, home, folder, quick=quick)
        subjects = (speed_subject, trained)
        return conclude(_find(subjects, labelled, size, folder), subjects, size, quick=quick)


def _trained(
    bundle: Path | None, data: Path | None, home: Path, folder: Path, *, quick: bool
) -> tuple[Subject, Labelled]:
    if bundle is not None and data is not None:
        return in_own_process(given, bundle, data, folder)
    return in_own_process(trained_plates, home, folder, quick)


def _find(subjects: Sequence[Subject], labelled: Labelled, size: Size, folder: Path) -> Findings:
    speeds, tuned, impossible = dict[str, dict[Way, Speed]](), dict[str, Tuning](), dict[str, str]()
    for subject in subjects:
        _say(f"speed of {subject.name}")
        measured, missing = _speeds(subject, size)
        speeds[subject.name] = measured
        impossible |= missing
        if size.tunes_all or subject is subjects[-1]:
            _say(f"the tuner on {subject.name}")
            choice = tune(subject, folder / f"store-{len(tuned)}")
            tuned |= {subject.name: choice} if choice else {}
    trained = subjects[-1]
    _say(f"accuracy of {trained.name}")
    kinds = list(dict.fromkeys(way.kind for way in speeds[trained.name]))
    accuracy = measure_accuracy(kinds, trained.bundle, trained.files, labelled.folder, labelled.class_names)
    return Findings(speeds, tuned, accuracy, impossible, cpu_flags(Path("/proc/cpuinfo")))


def _speeds(subject: Subject, size: Size) -> tuple[dict[Way, Speed], dict[str, str]]:
    spec = open_bundle(subject.bundle).manifest.model
    possible = possible_engines(subject.files, ALLOWED)
    engines, failed = open_ways(ways(possible, threads_from_quota(1)), subject.files, spec)
    width, height = spec.input.wh
    batch = np.random.default_rng(0).random((1, 3, height, width), np.float32)
    missing = {f"{one.provider} {one.precision}": one.reason for one in possible if one.reason}
    return (
        measure_speeds(engines, batch, size.rounds, size.seconds),
        missing | {str(way): reason for way, reason in failed.items()},
    )


def tune(subject: Subject, store_folder: Path) -> Tuning | None:
    """What the service's own tuner takes for this bundle here; None where the bundle has no probe set to judge by."""
    if subject.probe is None:
        return None
    store = ReleaseStore(store_folder)
    store.prepare()
    bundle = store.add_bundle(subject.bundle, open_bundle(subject.bundle).digest)
    store.add_probe_set(subject.probe, subject.probe.name)
    return Tuner(store, HostSettings(store=store_folder), threads_from_quota(1)).choose(bundle)


def cpu_flags(cpuinfo: Path) -> tuple[str, ...]:
    """Instructions of this CPU that make BF16 or INT8 fast."""
    words = set(cpuinfo.read_text(encoding="utf-8", errors="replace").split()) if cpuinfo.is_file() else set()
    return tuple(flag for flag in FAST_FLAGS if flag in words)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(add_help=False, description=__doc__)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--data", type=Path)
    own, rest = parser.parse_known_args(arguments)
    if (own.bundle is None) != (own.data is None):
        parser.error("--bundle and --data go together")
    if {"-h", "--help"} & set(rest):
        print(__doc__)
    packages = ("onnxruntime-gpu", "onnxruntime", "openvino", "ultralytics", "torch", "faster-coco-eval")
    return run_benchmark(Benchmark("engines", partial(measure, bundle=own.bundle, data=own.data), packages), rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
