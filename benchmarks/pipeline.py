"""What the pipeline costs: time of `retrain` over bare Ultralytics training with the same settings, in one run.

`overhead_ratio`: wall time up to registration over bare training, with the settings of params.yaml on the sample data;
bare, then `retrain` through its deployment on a local stack of its own, then bare again, so that a machine that slows
down meanwhile is seen. What is divided is counted from the same point on both sides: the process runs, Ultralytics is
not loaded yet. `orchestration_share`: of a job whose bare training takes five minutes, the time outside the named
stages, from the creation of the run to its end, over that bare training. The table shows the share of every task.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarks.bare_training import BareTraining
from benchmarks.pipeline_findings import Findings, conclude, epochs_for
from benchmarks.report import Benchmark, Measured, run_benchmark
from benchmarks.retrain_times import RetrainTimes, read_times
from data_contracts.errors import OutsideSystemError, Problem
from deployments.environment import StackSettings
from deployments.own_stack import own_settings, own_stack

if TYPE_CHECKING:
    from tasks.job import TrainingJob
    from tasks.working_copy import WorkingCopy

LONG_TRAINING_S = 300.0
QUICK_DEADLINE_S = 42.0
QUICK_PLATES = (16, 8, 8)
FULL_PLATES = (168, 40, 60)
TRAINING_SIDE = frozenset({"prefect-server", "mlflow-server", "training-worker"})
QUICK_JOB = {
    "train": {"epochs": 2},
    "gates": {
        "min_map50": 0.0,
        "min_instances": 1,
        "max_escape_rate": 1.0,
        "max_overkill_rate": 1.0,
        "max_false_alarms_per_picture": 1000.0,
    },
    "parity": {"pictures": 2, "minimum_compared": 1, "score_floor": 0.001, "score_margin": 0.0},
}
"""Two epochs teach nothing, and nobody relies on that candidate."""


class OutOfTime(BaseException):
    """The seconds of a quick run are over. No Exception, so that nothing on the way handles it as an error."""


def measure(quick: bool) -> Measured:
    """The whole benchmark."""
    if quick:
        with own_settings() as settings:
            usual, notes = _quick(settings)
        return conclude(usual, None, notes)
    with own_settings() as settings:
        usual = _usual(settings)
    with own_settings() as settings:
        return conclude(usual, _long(settings, epochs_for(usual, LONG_TRAINING_S)), [])


def _usual(settings: StackSettings) -> Findings:
    job = _prepare(settings, FULL_PLATES, {})
    _warm_up(settings)
    with _bare(settings, job, "bare-before") as training:
        before = training.times()
    with own_stack(settings, None, _say):
        times, end = _retrain(settings, job)
    with _bare(settings, job, "bare-after") as training:
        after = training.times()
    return Findings([before, after], times, end, job.train.epochs)


def _long(settings: StackSettings, epochs: int) -> Findings:
    job = _prepare(settings, FULL_PLATES, {"train": {"epochs": epochs}})
    with _bare(settings, job, "bare") as training:
        bare = training.times()
    with own_stack(settings, None, _say):
        times, end = _retrain(settings, job)
    return Findings([bare], times, end, epochs)


def _quick(settings: StackSettings) -> tuple[Findings, list[str]]:
    """Few epochs on few pictures; data and bare training beside the start of a stack without service and agent."""
    notes = ["quick: 2 epochs on 16 pictures, bare training beside the start of the stack; fixed costs prevail"]
    findings = Findings(epochs=2)
    try:
        with deadline(QUICK_DEADLINE_S), _bare_meanwhile(settings) as begun, own_stack(settings, TRAINING_SIDE, _say):
            job, training = begun.result()
            findings.bare.append(training.times())
            times, end = _retrain(settings, job)
            findings = replace(findings, times=times, end=end)
    except OutOfTime:
        notes.append(f"the time of a quick run was over after {QUICK_DEADLINE_S:g} s: the rest was not measured")
    return findings, notes


@contextmanager
def _bare_meanwhile(settings: StackSettings) -> Iterator[Future[tuple[TrainingJob, BareTraining]]]:
    """Make the data and start the bare training in a thread; stop it at the end."""
    importlib.import_module("deployments.stack")  # not at the same time as the thread imports its parts

    def begin() -> tuple[TrainingJob, BareTraining]:
        job = _prepare(settings, QUICK_PLATES, QUICK_JOB)
        return job, _bare(settings, job, "bare")

    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(begin)
        try:
            yield begun
        finally:
            begun.result()[1].stop()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread when the block takes longer."""

    def ring(*_: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def _prepare(settings: StackSettings, plates: tuple[int, int, int], changes: dict[str, Any]) -> TrainingJob:
    """The sample data as a dataset of the own stack, and the job that trains on it."""
    from deployments.demo.plates import PlateCounts, write_plates
    from deployments.params import load_params, merge, validated
    from tasks.dataset_repo import add_dataset
    from tasks.job import TrainingJob

    train, val, test = plates
    write_plates(settings.home / "plates", 7, PlateCounts(train=train, val=val, test=test, held_out=0))
    params = load_params(settings.project / "params.yaml")
    job = merge(merge(params.job.model_dump(mode="json"), changes), {"promote": False})
    datasets = settings.home / "datasets"
    datasets.mkdir()
    add_dataset(settings.home / "plates", datasets, params.job.dataset.name, "for a measurement")
    return validated(TrainingJob, job, "benchmark job")


def _warm_up(settings: StackSettings) -> None:
    """Have the disk read what both sides load, or the first to come pays for the other."""
    import subprocess

    command = [str(settings.training_python), "-c", "import mlflow, onnx, onnxruntime, prefect, ultralytics"]
    subprocess.run(command, check=True, capture_output=True)


def _bare(settings: StackSettings, job: TrainingJob, name: str) -> BareTraining:
    """Start a bare training on a copy of its own: Ultralytics leaves label caches in the folder."""
    from tasks.yolo import resolve_model

    copy = _working_copy(settings, job, settings.home / name / "dataset")
    model = resolve_model(job.train.model, settings.home / "weights", allow_download=job.train.allow_download)
    _say(f"bare training: {job.train.epochs} epochs")
    return BareTraining(settings.home / name / "run", copy.data_yaml, model, job.train, settings.training_python)


def _working_copy(settings: StackSettings, job: TrainingJob, target: Path) -> WorkingCopy:
    """The folder that `retrain` trains on, made in the same way."""
    from tasks.dataset_repo import fetch, resolve
    from tasks.settings import load_site_settings
    from tasks.working_copy import split_and_copy

    pin = resolve(load_site_settings().locate(job.dataset.ref), job.dataset.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    return split_and_copy(fetch(pin, settings.home / "pinned-for-bare"), job.splits, target)


def _retrain(settings: StackSettings, job: TrainingJob) -> tuple[RetrainTimes, str]:
    """Run `retrain` through its deployment. Raises OutsideSystemError when it fails."""
    from deployments.deploy import deploy
    from deployments.follow import follow_run, start_retrain
    from deployments.params import load_params

    deploy(settings.project)
    _say("deployments applied")
    run_id = start_retrain(job, load_params(settings.project / "params.yaml").promote)
    end = follow_run(run_id, _say)
    if not end.completed:
        raise OutsideSystemError(
            Problem(f"retrain run {run_id}", "Registered", f"{end.name}: {end.message}", "Mend it.")
        )
    return read_times(run_id), f"{end.name}: {end.message}"


if __name__ == "__main__":
    PACKAGES = ("prefect", "ultralytics", "torch", "mlflow", "dvc", "great-expectations", "onnxruntime-gpu")
    sys.exit(run_benchmark(Benchmark("pipeline", measure, PACKAGES)))
