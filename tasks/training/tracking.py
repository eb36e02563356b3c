"""One training in MLflow: its epochs, its files, and the patience that hours of work deserve."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from data_contracts.base import Contract
from data_contracts.errors import RegistryError
from tasks.registry import MetricLog, Registry
from tasks.training.events import EpochDone
from tasks.training.mlflow_run import resume_tags
from tasks.training.recovery import STATE_FILE, read_state
from tasks.training.reporter import EFFECTIVE_FILE

PICTURES = ("*.png", "*.jpg")
UPLOAD_WAITS_S = (5.0, 15.0, 30.0)
EPOCH_SECONDS = "seconds/epoch"
JOB_FILE = "job.yaml"
TABLES = ("results.csv", "args.yaml", EFFECTIVE_FILE, STATE_FILE, JOB_FILE)


def epoch_line(epoch: int, epochs: int, metrics: Mapping[str, float], seconds: float) -> str:
    """One line of progress with the time that is left.

    >>> epoch_line(3, 10, {"metrics/mAP50(B)": 0.5, "train/box_loss": 1.25}, 2.0)
    'epoch 3/10: mAP50 0.500, box loss 1.250, 2.0 s, about 14 s left'
    """
    values = (("mAP50", "metrics/mAP50(B)"), ("box loss", "train/box_loss"))
    known = [f"{word} {metrics[name]:.3f}" for word, name in values if name in metrics]
    return ", ".join(
        [
            f"epoch {epoch}/{epochs}: " + ", ".join(known),
            f"{seconds:.1f} s",
            f"about {(epochs - epoch) * seconds:.0f} s left",
        ]
    )


class EpochReporter:
    """Writes each epoch to the log and to the run."""

    def __init__(self, log: MetricLog, say: Callable[[str], None]) -> None:
        self._log, self._say = log, say

    def __call__(self, done: EpochDone) -> None:
        """Report one epoch; metrics that are no numbers are left out of the run, and named in the log."""
        self._say(epoch_line(done.epoch, done.epochs, done.metrics, done.seconds))
        finite = {name: value for name, value in done.metrics.items() if math.isfinite(value)}
        if len(finite) < len(done.metrics):
            self._say(f"epoch {done.epoch}: no number for {', '.join(sorted(done.metrics.keys() - finite.keys()))}")
        waiting = self._log.add(done.epoch, {**finite, EPOCH_SECONDS: done.seconds})
        if waiting is not None:
            self._say(f"epoch {done.epoch}: metrics wait for the next epoch: {waiting}")


def upload_run(registry: Registry, run_id: str, run_dir: Path, weights: Path) -> None:
    """Curves, confusion matrix, sample predictions, tables and the best weights, in one go."""
    with tempfile.TemporaryDirectory(prefix="passline-upload-") as staging:
        for folder, files in _run_files(run_dir, weights).items():
            (Path(staging) / folder).mkdir()
            for file in files:
                shutil.copyfile(file, Path(staging) / folder / file.name)
        registry.log_folder(run_id, Path(staging))


def _run_files(run_dir: Path, weights: Path) -> dict[str, list[Path]]:
    """What is kept of a training, by the artifact folder that it goes to."""
    tables = [run_dir / name for name in TABLES]
    return {
        "plots": sorted(path for pattern in PICTURES for path in run_dir.glob(pattern)),
        "training": [path for path in tables if path.is_file()],
        "weights": [weights],
    }


def leave_facts(run_dir: Path, job: Contract | None) -> None:
    """The whole job beside the tables of the training, as the file that a job is submitted with."""
    if job is not None:
        text = yaml.safe_dump(job.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        (run_dir / JOB_FILE).write_text(text, "utf-8")


def end_tags(run_dir: Path) -> dict[str, str]:
    """How often a training was resumed, and what its last process really ran with, as tags."""
    state, file = read_state(run_dir), run_dir / EFFECTIVE_FILE
    facts = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    effective = {f"passline.effective.{name}": str(value) for name, value in facts.items()}
    return effective | (resume_tags(state) if state else {})


def hand_over(
    log: MetricLog, registry: Registry, run_id: str, run_dir: Path, weights: Path, tags: Mapping[str, str]
) -> None:
    """Send the epochs that wait, then tags and files."""
    log.close()
    registry.set_run_tags(run_id, tags)
    upload_run(registry, run_id, run_dir, weights)


def patiently(call: Callable[[], None], say: Callable[[str], None], waits_s: Sequence[float] = UPLOAD_WAITS_S) -> None:
    """Try again after each wait: hours of training must not be lost to a server that is restarting."""
    for wait_s in waits_s:
        try:
            return call()
        except RegistryError as error:
            say(f"trying again in {wait_s:g} s: {error}")
            time.sleep(wait_s)
    return call()
