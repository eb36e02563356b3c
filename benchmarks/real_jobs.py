"""Jobs on real sets, from the dataset to the decision of the gates: whatever they decide, they reach it.

`--data DIR` (or PASSLINE_SHARED_DATA): the folder that holds the sets, each in YOLO's layout; one that is missing is
named and left out. Each runs as `retrain` through its deployment on one local stack of its own, with short trainings.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Benchmark, Measured, Table, at_least, run_benchmark
from data_contracts.errors import DatasetError, Problem
from deployments.environment import StackSettings
from deployments.own_stack import own_settings, own_stack

if TYPE_CHECKING:
    from deployments.follow import RunEnd
    from deployments.params import Params
    from tasks.job import TrainingJob

SETS = {"neu-det-yolo": 192, "deeppcb-yolo": 320, "magnetic-tile-yolo": 224}
"""Set to side of the square input, pixels."""
DECISIONS = frozenset({"Rejected", "Registered", "Promoted"})
EPOCHS, QUICK_EPOCHS = 10, 1
TRAINING_SIDE = frozenset({"prefect-server", "mlflow-server", "training-worker"})


@dataclass(frozen=True)
class Ended:
    """How the job on one set ended."""

    end: str
    words: str
    seconds: float
    stages: Mapping[str, float]

    @property
    def decided(self) -> bool:
        """Whether the gates came to a decision."""
        return self.end in DECISIONS


def measure(quick: bool, data: Path | None, epochs: int) -> Measured:
    """One job after the other; a quick run is one set with one epoch."""
    folder = find_sets(data)
    names = [name for name in SETS if (folder / name / "data.yaml").is_file()]
    wanted = names[:1] if quick else names
    with own_settings() as settings, own_stack(settings, TRAINING_SIDE, _say):
        found = dict(_ends(settings, folder, wanted, QUICK_EPOCHS if quick else epochs))
    missing = [f"{name} is not in {folder}" for name in SETS if name not in names]
    return conclude(found, missing, decided=not quick)


def find_sets(given: Path | None) -> Path:
    """The folder with the sets. Raises DatasetError where none of them is."""
    shared = os.environ.get("PASSLINE_SHARED_DATA")
    folder = given or (Path(shared) if shared else None)
    if folder is None or not any((folder / name / "data.yaml").is_file() for name in SETS):
        action = "Name their folder with --data or PASSLINE_SHARED_DATA."
        raise DatasetError(Problem("real sets", f"a folder with {', '.join(SETS)}", str(folder), action))
    return folder.absolute()


def _ends(settings: StackSettings, folder: Path, names: Sequence[str], epochs: int) -> list[tuple[str, Ended]]:
    from deployments.deploy import deploy
    from deployments.params import load_params
    from tasks.dataset_repo import add_dataset

    params = load_params(settings.project / "params.yaml")
    deploy(settings.project)
    datasets = settings.home / "datasets"
    datasets.mkdir(exist_ok=True)
    ends = []
    for name in names:
        add_dataset(folder / name, datasets, name, "for a measurement")
        ends.append((name, _run(params, name, epochs)))
    return ends


def _run(params: Params, name: str, epochs: int) -> Ended:
    from deployments.follow import follow_run, start_retrain

    _say(f"job on {name}")
    started = time.monotonic()
    end: RunEnd = follow_run(start_retrain(job_for(params, name, epochs), params.promote), _say)
    return Ended(end.name, end.message, time.monotonic() - started, end.stages)


def job_for(params: Params, name: str, epochs: int) -> TrainingJob:
    """The job of params.yaml on another set, with a model name of its own."""
    from deployments.params import merge, validated
    from tasks.job import TrainingJob

    changes: dict[str, Any] = {
        "dataset": {"name": name, "ref": {"repository": name}},
        "train": {"imgsz": SETS[name], "epochs": epochs},
        "seal": {"name": name},
        "promote": False,
    }
    return validated(TrainingJob, merge(params.job.model_dump(mode="json"), changes), f"job on {name}")


def conclude(found: Mapping[str, Ended], missing: Sequence[str], *, decided: bool) -> Measured:
    """All that ran came to a decision of the gates."""
    reached = sum(one.decided for one in found.values())
    return Measured(
        settings={"sets": list(found)},
        samples={name: asdict(one) for name, one in found.items()},
        bars=(at_least("jobs_decided", float(reached), float(len(SETS)), decided=decided),),
        tables=(
            Table(
                ("set", "end", "seconds", "first words"),
                tuple((name, one.end, f"{one.seconds:.0f}", one.words[:120]) for name, one in found.items()),
            ),
        ),
        notes=tuple(missing),
    )


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    own, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        print(__doc__)
    packages = ("prefect", "mlflow", "ultralytics", "torch")
    return run_benchmark(Benchmark("real_jobs", partial(measure, data=own.data, epochs=own.epochs), packages), rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
