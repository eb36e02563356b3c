"""What the training side reaches on a real set: plain `yolo train` against Passline, INT8, students and their teacher.

`--data DIR` (or PASSLINE_SHARED_DATA with a folder `neu-det-yolo`): a set in YOLO's layout. `--part NAME`, repeatable:
only these; each part's result is kept below `<PASSLINE_HOME or var>/bench/real-sets` and not measured again, so the
table grows call by call. `--epochs N`: shorter trainings, kept apart. `--again`: measure the named parts anew.

    plain     yolov8n by plain `yolo train`, 40 epochs
    passline  the same by the step of `retrain`
    int8      its quantised model
    student   pico by the step of `retrain`
    taught    the same with `passline` as its teacher
    same      three epochs both ways: the same weights, number for number
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.own_process import in_own_process
from benchmarks.real_findings import PARTS, conclude, markdown
from benchmarks.real_measures import export_weights, measure_fp32, measure_int8
from benchmarks.real_trainings import BUDGET, budget, same_weights, train_passline, train_plain
from benchmarks.report import Benchmark, Measured, run_benchmark
from data_contracts.errors import DatasetError, Problem
from deployments.environment import load_stack_settings

if TYPE_CHECKING:
    from tasks.export import ExportedModel
    from tasks.job import TrainingJob
    from tasks.train import TrainConfig
    from tasks.working_copy import WorkingCopy

SET = "neu-det-yolo"
SAME_EPOCHS = 3
QUICK_EPOCHS = 1
STUDENT = "pico.yaml"


@dataclass(frozen=True)
class Wish:
    """What is to be measured. `parts` are those asked for; `again`: also where there is a result."""

    data: Path | None
    epochs: int
    parts: tuple[str, ...]
    again: bool


class Bench:
    """One set with one length of training; every part may be called alone."""

    def __init__(self, wish: Wish) -> None:
        data = find_set(wish.data)
        home = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench" / "real-sets"
        self.folder = home / f"{data.name}-{wish.epochs}"
        self._settings, self._job = load_stack_settings(), _job()
        self._epochs, self._copy = wish.epochs, _working_copy(data, self._job, self.folder / "working")

    def part(self, name: str) -> dict[str, Any]:
        """Measure one part."""
        return {"same": self._same, "int8": self._int8}.get(name, partial(self._training, name))()

    def _config(self, **changes: Any) -> TrainConfig:
        return budget(self._job, **({"epochs": self._epochs} | changes))

    def _train(self, name: str, config: TrainConfig, *, plain: bool) -> tuple[Path, float]:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        if plain:
            trained = train_plain(config, self._copy, folder, self._settings.training_python)
        else:
            trained = train_passline(config, self._copy, folder, self._job, _say)
        return trained.weights, trained.seconds

    def _training(self, name: str) -> dict[str, Any]:
        changes: dict[str, Any] = {"model": STUDENT} if name in ("student", "taught") else {}
        if name == "taught":
            changes["teacher"] = str(self._weights("passline"))
        weights, seconds = self._train(name, self._config(**changes), plain=name == "plain")
        exported = self._exported(name, weights)
        return {"seconds": seconds, **asdict(measure_fp32(exported, self._copy, self._job))}

    def _int8(self) -> dict[str, Any]:
        exported = self._exported("int8", self._weights("passline"))
        started = time.monotonic()
        found = measure_int8(exported, self._copy, self._job, self.folder / "int8" / "quantised")
        return {"seconds": time.monotonic() - started, **asdict(found)}

    def _same(self) -> dict[str, Any]:
        config = self._config(epochs=SAME_EPOCHS)
        both = [self._train(f"same-{kind}", config, plain=kind == "plain")[0] for kind in ("plain", "passline")]
        return {"same": in_own_process(same_weights, *both)}

    def _exported(self, name: str, weights: Path) -> ExportedModel:
        target = self.folder / name / "export"
        shutil.rmtree(target, ignore_errors=True)
        return export_weights(weights, self._job, BUDGET["imgsz"], target)

    def _weights(self, name: str) -> Path:
        weights = self.folder / name / "train" / "weights" / "best.pt"
        if not weights.is_file():
            action = f"Run this with --part {name} first."
            raise DatasetError(Problem(f"weights of {name}", str(weights), "no such file", action))
        return weights


def find_set(given: Path | None) -> Path:
    """The set's folder. Raises DatasetError where it is missing."""
    shared = os.environ.get("PASSLINE_SHARED_DATA")
    folder = given or (Path(shared) / SET if shared else None)
    if folder is None or not (folder / "data.yaml").is_file():
        action = "Name it with --data, or its parent folder with PASSLINE_SHARED_DATA."
        raise DatasetError(Problem("real set", "a folder with data.yaml", str(folder), action))
    return folder.absolute()


def _job() -> TrainingJob:
    from deployments.params import load_params

    return load_params(load_stack_settings().project / "params.yaml").job


def _working_copy(data: Path, job: TrainingJob, target: Path) -> WorkingCopy:
    """The folder that `retrain` would train on: the set's own val part judges, a part of train chooses thresholds."""
    from tasks.working_copy import split_and_copy

    target.parent.mkdir(parents=True, exist_ok=True)
    return split_and_copy(data, job.splits, target)


def measure(quick: bool, wish: Wish) -> Measured:
    """The parts that are asked for and not yet measured, then the table of all that are."""
    if quick:
        wish = Wish(wish.data, QUICK_EPOCHS, wish.parts or ("student", "same"), wish.again)
    bench = Bench(wish)
    for name in wish.parts or PARTS:
        kept(bench.folder / f"{name}.json", partial(bench.part, name), again=wish.again)
    found = {name: json.loads(file.read_text("utf-8")) for name in PARTS if (file := _file(bench, name)).is_file()}
    measured = conclude(found, wish.epochs, decided=not quick and wish.epochs >= BUDGET["epochs"])
    (bench.folder / "table.md").write_text(markdown(measured.tables[0]), "utf-8")
    _say(f"written: {bench.folder / 'table.md'}")
    return measured


def _file(bench: Bench, name: str) -> Path:
    return bench.folder / f"{name}.json"


def kept(file: Path, call: Callable[[], dict[str, Any]], *, again: bool) -> None:
    """Call and keep the answer in `file`, unless it is there."""
    if file.is_file() and not again:
        _say(f"kept: {file}")
    else:
        _say(f"measuring: {file.stem}")
        file.write_text(json.dumps(call()), "utf-8")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", choices=PARTS, action="append", default=[])
    parser.add_argument("--epochs", type=int, default=BUDGET["epochs"])
    parser.add_argument("--again", action="store_true")
    own, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        print(__doc__)
    wish = Wish(own.data, own.epochs, tuple(own.part), own.again)
    packages = ("ultralytics", "torch", "onnxruntime", "onnxruntime-gpu", "faster-coco-eval", "mlflow")
    return run_benchmark(Benchmark("real_sets", partial(measure, wish=wish), packages), rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
