"""Trains candidates that are bad in a known way and one that is better, judges each as the flow does, prints JSON.

Run as a program of its own: with pytest loaded, Ultralytics switches parts of itself off. Argument: working folder.
Settings are those of params.yaml, so what is shown here holds for what ships.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import yaml

from coloured_squares import NAMES, with_labels_of_others, with_only_classes, without_class, write_coloured_squares
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.errors import BundleError
from serving.bundle import hash_file
from tasks import yolo
from tasks.evaluate import Measured, evaluate
from tasks.evaluation.comparison import compare
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.export import ExportConfig, ExportedModel, export
from tasks.gates import Evidence, GateReport, decide
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.speed import ask_process, measure_costs
from tasks.gating.speed_result import SpeedAnswer, SpeedRequest
from tasks.ground_truth import read_ground_truth
from tasks.model_files import find_model
from tasks.parity import ParityConfig, compare_with_weights
from tasks.quantise import quantise
from tasks.quantising.calibration import calibration_tensors
from tasks.quantising.quantise_config import QuantiseConfig
from tasks.seal import SealConfig, SealedBundle, provenance_of, seal
from tasks.splits import SplitConfig
from tasks.thresholds import ThresholdConfig, choose_thresholds
from tasks.train import TrainConfig, train_arguments
from tasks.working_copy import split_and_copy
from training_fakes import PIN, TRAIN

PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"
SIDE = 96
ONE_TRY = {"wished": True, "max_rounds": 1, "max_loss": 25.0, "max_mean_loss": 10.0}
"""Loose, for there are few pictures to judge INT8 by: what is calibrated wrongly fails it all the same."""
Change = Callable[[ExportedModel], ExportedModel]


class Bench:
    """One dataset, its champion, and the way from weights to a verdict."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, {}
        self.job: dict[str, Any] = yaml.safe_load(PARAMS.read_text("utf-8"))["job"]
        write_coloured_squares(folder / "dataset")
        self.copy = self._working_copy(folder / "dataset")
        self.champion: tuple[SealedBundle, Measured] | None = None

    def _working_copy(self, dataset: Path) -> Any:
        config = SplitConfig(**(self.job["splits"] | {"near_duplicates": False}))
        return split_and_copy(dataset, config, self.folder / f"{dataset.name}-copy")

    def changed_copy(self, name: str, change: Callable[[Path], None]) -> Any:
        """A working copy of the dataset after `change` was made to it."""
        shutil.copytree(self.folder / "dataset", self.folder / name)
        change(self.folder / name)
        return self._working_copy(self.folder / name)

    def train(self, name: str, data_yaml: Path, epochs: int, model: Path | None = None, lr0: float = 0.01) -> Path:
        """Plain `yolo train`; the weights."""
        from ultralytics import YOLO

        started = time.monotonic()
        config = TrainConfig(**(TRAIN | {"epochs": epochs, "imgsz": SIDE, "lr0": lr0, "batch": 4, "nbs": 4}))
        start = model or find_model(config.model, self.folder)
        arguments = train_arguments(config) | {"plots": False}
        YOLO(str(start), task="detect").train(
            data=str(data_yaml), project=str(self.folder / "runs"), name=name, **arguments
        )
        self.seconds[f"train {name}"] = round(time.monotonic() - started, 1)
        return self.folder / "runs" / name / "weights" / "best.pt"

    def exported(self, name: str, weights: Path) -> ExportedModel:
        """The model file of some weights."""
        return export(weights, SIDE, self.folder / name / "export", ExportConfig(**self.job["export"]))

    def rule(self, exported: ExportedModel, copy: Any) -> VerdictRule:
        """Thresholds, chosen as the flow does."""
        return choose_thresholds.fn(exported, copy.folder, ThresholdConfig(**self.job["thresholds"]))

    def bundle(self, name: str, weights: Path, copy: Any, change: Change = lambda exported: exported) -> SealedBundle:
        """Export, let `change` spoil it, choose thresholds and seal, as the flow does."""
        exported = change(self.exported(name, weights))
        val, provenance = read_ground_truth(copy.folder, Split.VAL), provenance_of(PIN, "no run", 0)
        config = SealConfig(**self.job["seal"])
        return seal(exported, self.rule(exported, copy), val, provenance, config, self.folder / name / "bundles")

    def int8(self, name: str, exported: ExportedModel) -> dict[str, Any]:
        """Quantise as the flow does: whether it would ship, and why not."""
        config = QuantiseConfig(**(self.job["quantise"] | ONE_TRY))
        evaluate_config, seal_config = EvaluateConfig(**self.job["evaluate"]), SealConfig(**self.job["seal"])
        rule, target = self.rule(exported, self.copy), self.folder / name
        quantised = quantise(exported, rule, self.copy.folder, config, evaluate_config, seal_config, target, print)
        assert quantised.made is not None
        return {"shipped": quantised.model is not None, "reason": quantised.made.reason}

    def _measured(self, bundle: SealedBundle) -> Measured:
        """On the test split of the unspoilt dataset."""
        test = read_ground_truth(self.copy.folder, Split.TEST)
        return evaluate(bundle.path, test, NAMES, Split.TEST, EvaluateConfig(**self.job["evaluate"]))

    def judge(self, weights: Path, bundle: SealedBundle, *, measure_speed: bool) -> tuple[GateReport, Measured]:
        """The decision of the gates, against the champion where there is one, and what was measured."""
        policy = GatePolicy(**self.job["gates"])
        files = [true.picture for true in read_ground_truth(self.copy.folder, Split.TEST)]
        parity = compare_with_weights(weights, bundle.path, files, ParityConfig(**self.job["parity"]))
        ours = self._measured(bundle)
        if self.champion is None:
            self.champion = (bundle, ours)
            return decide(Evidence(candidate=ours.result, parity=parity), policy), ours
        theirs = self.champion[1]
        ask = ask_process if measure_speed else equal_costs
        evidence = Evidence(
            candidate=ours.result,
            parity=parity,
            champion=theirs.result,
            comparison=compare((ours.result, ours.scores), (theirs.result, theirs.scores), policy),
            speed=measure_costs(bundle.path, self.champion[0].path, policy, ask),
        )
        return decide(evidence, policy), ours


def equal_costs(request: SpeedRequest) -> SpeedAnswer:
    """All models here have one architecture; their times are measured once, for the better one."""
    return SpeedAnswer(seconds=(0.01,) * len(request.bundles), peak_mib=100.0)


def with_swapped_colours(exported: ExportedModel) -> ExportedModel:
    """The same model as exported for blue-green-red pictures: what its first layer reads is turned round."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(exported.model)
    (first,) = (node for node in model.graph.node if model.graph.input[0].name in node.input)
    (weights,) = (one for one in model.graph.initializer if one.name == first.input[1])
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights)[:, ::-1].copy(), weights.name))
    onnx.save(model, exported.model)
    return replace(exported, sha256=hash_file(exported.model).sha256)


def stretched(image_rgb: Any, letterbox: Any, rule: Any) -> Any:
    """What stands in for `letterbox_image` where the letterbox was removed."""
    return cv2.resize(image_rgb, letterbox.input_wh, interpolation=cv2.INTER_LINEAR)


def tensors_to_255(*arguments: Any) -> Iterator[Any]:
    """What stands in for `calibration_tensors` where the division by 255 was forgotten."""
    return (tensor * 255 for tensor in calibration_tensors(*arguments))


def with_nan(weights: Path, target: Path) -> Path:
    """The same weights with one number lost."""
    import torch

    checkpoint = torch.load(weights, weights_only=False)
    next(checkpoint["model"].parameters()).data.view(-1)[0] = float("nan")
    torch.save(checkpoint, target)
    return target


def facts(report: GateReport, measured: Measured) -> dict[str, Any]:
    """What the test looks at."""
    return {
        "map50": measured.result.map50,
        "accepted": report.accepted,
        "promotable": report.promotable,
        "refusals": {check.name: check.words for check in report.refusals},
        "promotion": report.promotion.words,
        "checks": [check.name for check in report.checks],
    }


def said(call: Callable[[], object]) -> str:
    """The words of the error that `call` raises; empty when it raises none."""
    try:
        call()
    except BundleError as error:
        return str(error)
    return ""


def main(folder: Path) -> dict[str, Any]:
    """Champion first, then each candidate."""
    yolo.configure_ultralytics(folder / "var")
    bench = Bench(folder)
    found: dict[str, Any] = {}

    def judged(name: str, weights: Path, copy: Any = bench.copy, change: Change = lambda exported: exported) -> None:
        started = time.monotonic()
        bundle = bench.bundle(name, weights, copy, change)
        found[name] = facts(*bench.judge(weights, bundle, measure_speed=name == "better"))
        bench.seconds[f"judge {name}"] = round(time.monotonic() - started, 1)

    champion = bench.train("champion", bench.copy.data_yaml, 30)
    judged("champion", champion)
    judged("better", bench.train("better", bench.copy.data_yaml, 8, champion, 0.004))
    judged("colours swapped", champion, change=with_swapped_colours)
    with mock.patch("serving.preprocess.letterbox_image", stretched):
        judged("letterbox removed", champion)
    nan = with_nan(champion, folder / "nan.pt")
    found["nan weights"] = said(lambda: bench.exported("nan", nan))
    started = time.monotonic()
    exported = bench.exported("int8", champion)
    found["calibrated well"] = bench.int8("int8/well", exported)
    with mock.patch("tasks.quantise.calibration_tensors", tensors_to_255):
        found["calibrated on 0-255"] = bench.int8("int8/255", exported)
    bench.seconds["int8"] = round(time.monotonic() - started, 1)
    shuffled = bench.changed_copy("shuffled", with_labels_of_others)
    judged("labels shuffled", bench.train("shuffled", shuffled.data_yaml, 6, champion, 0.004), shuffled)
    removed = bench.changed_copy("removed", without_class)
    judged("class removed", bench.train("removed", removed.data_yaml, 6, champion, 0.004), removed)
    halved = bench.changed_copy("halved", with_only_classes)
    judged("half the classes", bench.train("halved", halved.data_yaml, 6, champion, 0.004), halved)
    return {"found": found, "seconds": bench.seconds}


if __name__ == "__main__":
    result = main(Path(sys.argv[1]))
    Path(sys.argv[1], "report.json").write_text(json.dumps(result))
