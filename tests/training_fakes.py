"""Builders and fakes of the training side's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from builders import Colour, plate
from data_contracts.base import sha256_of
from data_contracts.dataset import DatasetPin, DatasetRef, Split
from data_contracts.detections import Detections
from data_contracts.errors import RegistryError
from tasks.evaluation.comparison import PairedComparison
from tasks.evaluation.evaluation_result import ClassResult, EvaluateConfig, EvaluationResult
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.speed_result import BatchCost, Cost, SpeedResult
from tasks.ground_truth import GroundTruth
from tasks.parity import ParityResult
from tasks.preflight import Ahead, PreflightConfig
from tasks.resources import ResourceConfig
from tasks.train import TrainConfig
from tasks.training.mlflow_run import RunOrigin

EVALUATE = EvaluateConfig(score_floor=0.001, max_detections=100, match_iou=0.5, rounds=200, confidence=0.95, seed=0)
PIN = DatasetPin(
    name="plates",
    ref=DatasetRef(repository="somewhere"),
    commit="a" * 40,
    dvc_hash="b" * 32 + ".dir",
    file_count=1,
    size_bytes=1,
)
ORIGIN = RunOrigin(experiment="plates", run_name="a run", dataset=PIN, flow_run_id="flow-1")
TRAIN: dict[str, Any] = {
    "model": "pico.yaml", "teacher": None, "allow_download": False, "imgsz": 64, "epochs": 1, "patience": 0,
    "batch": 4, "nbs": 4, "optimizer": "AdamW", "lr0": 0.004, "lrf": 0.05, "momentum": 0.9, "weight_decay": 0.0005,
    "warmup_epochs": 1.0, "mosaic": 0.0, "close_mosaic": 0, "fliplr": 0.5, "flipud": 0.5, "degrees": 0.0,
    "translate": 0.1, "scale": 0.2, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.2, "seed": 0, "device": "cpu",
    "workers": 0, "threads": 0, "amp": False, "cache": "none",
}  # fmt: skip
RESOURCES = ResourceConfig(cpus=1, memory_mib=100, devices=0, device_memory_mib=0)
PREFLIGHT = PreflightConfig(limit_s=30, min_free_mib=1, data_copies=0)
Row = tuple[float, float, float, float, float, int]
"""Left, top, right, bottom, score, class id."""


def boxes(*rows: Row) -> Detections:
    """Detections from rows."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4].astype(np.float32), table[:, 4].astype(np.float32), table[:, 5].astype(np.int64))


def truth(
    *rows: tuple[float, float, float, float, int], picture: Path | str = "p.png", wh: tuple[int, int] = (100, 100)
) -> GroundTruth:
    """The true boxes of one picture, from rows of left, top, right, bottom, class id."""
    table = np.array(rows, np.float64).reshape(-1, 5)
    return GroundTruth(Path(picture), wh, table[:, :4].astype(np.float32), table[:, 4].astype(np.int64))


def patch_picture(
    folder: Path, name: str, wh: tuple[int, int], *patches: tuple[tuple[int, int, int, int], Colour, int]
) -> GroundTruth:
    """A picture file with coloured patches, each a true box of its class."""
    image = plate(wh, *((box, colour) for box, colour, _ in patches))
    path = folder / name
    assert cv2.imwrite(str(path), image[:, :, ::-1])
    return truth(*((*box, class_id) for box, _, class_id in patches), picture=path, wh=wh)


def class_result(name: str, instances: int = 10, missed: int = 0, **changes: Any) -> ClassResult:
    """A class of a result; `changes` replace fields."""
    found = instances - missed
    fields: dict[str, Any] = {
        "name": name, "instances": instances, "ap50": 0.9, "ap50_95": 0.6, "threshold": 0.4, "found": found,
        "missed": missed, "escape_rate": missed / instances if instances else None, "false_alarms": 0,
        "precision": 1.0 if found else None,
    }  # fmt: skip
    return ClassResult(**(fields | changes))


def evaluation(*classes: ClassResult, **changes: Any) -> EvaluationResult:
    """A good result; `changes` replace fields."""
    fields: dict[str, Any] = {
        "digest": "c" * 64, "split": Split.TEST, "pictures": 20, "pictures_sha256": sha256_of(b"pictures"),
        "settings": EVALUATE, "engine": "cpu", "precision": "fp32", "map50": 0.9, "map50_95": 0.6,
        "classes": classes or (class_result("scratch"), class_result("pit")), "defect_pictures": 15,
        "escaped_pictures": 0, "good_pictures": 5, "overkill_pictures": 0, "overkill_rate": 0.0,
        "false_alarms_per_picture": 0.1,
    }  # fmt: skip
    return EvaluationResult(**(fields | changes))


def gate_policy(**changes: Any) -> GatePolicy:
    """A policy that `evaluation()` meets; `changes` replace fields."""
    fields: dict[str, Any] = {
        "min_map50": 0.8, "min_instances": 3, "max_escape_rate": 0.2, "max_overkill_rate": 0.2,
        "max_false_alarms_per_picture": 0.5, "compared": "map50", "margin": 0.02, "admission_level": 0.1,
        "promotion_level": 0.025, "promote_if": "better", "occasion": None, "classes": "same",
        "max_forgotten": 0.2, "min_slice": 3, "remembered_champions": 3, "max_int8_loss": 0.01, "speed_batches": (1,),
        "speed_rounds": 3,
        "max_slowdown": 1.2, "max_memory_growth": 1.2,
    }  # fmt: skip
    return GatePolicy(**(fields | changes))


def comparison(difference: float | None = 0.0, lower: float | None = 0.0, **changes: Any) -> PairedComparison:
    """`evaluation()` against `evaluation(digest="d" * 64)`; `changes` replace fields."""
    fields: dict[str, Any] = {
        "candidate": "c" * 64, "champion": "d" * 64, "pictures_sha256": sha256_of(b"pictures"), "pictures": 20,
        "compared": "map50", "rounds": 200, "difference": difference, "admission_level": 0.1,
        "admission_lower": lower, "promotion_level": 0.025, "promotion_lower": lower, "slices": (),
    }  # fmt: skip
    return PairedComparison(**(fields | changes))


def speed(seconds: float | None = 0.01, peak_mib: float | None = 100.0, candidate: str = "c" * 64) -> SpeedResult:
    """Equal at batch 1; at batch 8 the candidate's cost is as given, the champion's 0.01 s and 100 MiB."""
    ours, theirs = Cost(seconds=seconds, peak_mib=peak_mib), Cost(seconds=0.01, peak_mib=100.0)
    equal = BatchCost(batch=1, candidate=theirs, champion=theirs)
    batches = (equal, BatchCost(batch=8, candidate=ours, champion=theirs))
    return SpeedResult(candidate=candidate, champion="d" * 64, batches=batches)


def parity(*, holds: bool = True, failures: Sequence[str] = (), differing: int = 0) -> ParityResult:
    """A parity result."""
    return ParityResult(
        holds=holds, compared=30, pictures=10, worst_iou=0.999, worst_corner_px=0.1, worst_score=0.0001,
        failures=tuple(failures), differing=differing,
    )  # fmt: skip


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class FakeRegistry:
    """Remembers what was logged; `down` lists the calls that fail, by number from 0, of `_log_steps`."""

    def __init__(self, down: Sequence[int] = ()) -> None:
        self.url = "http://127.0.0.1:1"
        self.runs: dict[str, str] = {}
        self.tags: dict[str, Mapping[str, str]] = {}
        self.steps: list[tuple[int, Mapping[str, float]]] = []
        self.calls = 0
        self._down = set(down)

    def start_run(self, experiment: str, run_name: str, tags: Mapping[str, str]) -> str:
        run_id = f"run-{len(self.runs)}"
        self.runs[run_id], self.tags[run_id] = "RUNNING", tags
        return run_id

    def reopen_run(self, run_id: str) -> None:
        self.runs[run_id] = "RUNNING"

    def finish_run(self, run_id: str, status: str) -> None:
        self.runs[run_id] = status

    def set_run_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        self.tags[run_id] = {**self.tags[run_id], **tags}

    def run_status(self, run_id: str) -> str:
        return self.runs[run_id]

    def _log_steps(self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float], int]]) -> None:
        self.calls += 1
        if self.calls - 1 in self._down:
            raise RegistryError("the server is away")
        self.steps += [(step, metrics) for step, metrics, _ in steps]


def ahead(home: Path, **changes: Any) -> Ahead:
    """What a run is going to need: an architecture of ours, and data that are asked for when they are pinned."""
    fields: dict[str, Any] = {
        "experiment": "plates", "dataset": DatasetRef(repository="https://git.example/plates.git"),
        "dataset_name": "plates", "train": TrainConfig(**TRAIN), "resources": RESOURCES, "code_revision": None,
        "home": home, "pinned": home / "pinned",
    }  # fmt: skip
    return Ahead(**(fields | changes))
