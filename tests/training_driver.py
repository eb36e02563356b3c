"""Trains, exports, seals, evaluates and compares, as the flow does, and prints what happened as JSON.

Run as a program of its own: with pytest loaded, Ultralytics switches parts of itself off.
Arguments: working folder, MLflow URL. Every attempt to reach another machine or to install something is recorded, those
of the training processes too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from network_guard import ATTEMPTS, GUARDED, guard, guard_children, lines_of

SECONDS: dict[str, float] = {}


def timed(name: str, call: Any) -> Any:
    """Call, and remember how long it took."""
    started = time.monotonic()
    try:
        return call()
    finally:
        SECONDS[name] = round(time.monotonic() - started, 2)


def main(folder: Path, url: str) -> dict[str, Any]:
    """The whole way, once; then a short training twice, with and without Passline around it, and one that fails."""
    from data_contracts.bundle import ProbeLimit, Tolerance
    from data_contracts.dataset import Split
    from tasks import yolo
    from tasks.evaluate import evaluate
    from tasks.evaluation.evaluation_result import EvaluateConfig
    from tasks.export import ExportConfig, export
    from tasks.ground_truth import read_ground_truth
    from tasks.parity import ParityConfig, compare_with_weights
    from tasks.pictures import detect_files, draft_detector
    from tasks.registry import Registry
    from tasks.seal import SealConfig, provenance_of, seal
    from tasks.splits import SplitConfig
    from tasks.thresholds import ThresholdConfig, collect_scores, verdict_rule
    from tasks.train import Surroundings, TrainConfig, train, train_arguments
    from tasks.training.recovery import RecoveryConfig
    from tasks.working_copy import split_and_copy
    from training_fakes import EVALUATE, ORIGIN, PIN, TRAIN

    home, said = folder / "var", []
    split_config = SplitConfig(
        seed=0, val_share=0.2, test_share=0.2, group_pattern=None, picture_column="picture", group_column="group",
        near_duplicates=False,
    )  # fmt: skip
    copy = split_and_copy(folder / "dataset", split_config, folder / "working")
    registry = Registry(url)
    config = TrainConfig(**(TRAIN | {"epochs": 17, "imgsz": 96, "lr0": 0.01}))
    around = Surroundings(
        RecoveryConfig(max_resumes=0, nan_lr_factor=0.5, start_s=300, stuck_s=300), sample_epochs=8, sample_pictures=4,
        job=config,
    )  # fmt: skip

    def trained_in(config: TrainConfig, data_yaml: Path, name: str) -> Any:
        return train(config, data_yaml, folder / name, registry, ORIGIN, home, said.append, around)

    timed("import", lambda: yolo.configure_ultralytics(home))
    trained = timed("train", lambda: trained_in(config, copy.data_yaml, "run"))
    export_config = ExportConfig(
        opset=17, simplify=True, layout="raw", nms_iou=0.7, max_candidates=3000, max_detections=300,
        largest_difference=0.001,
    )  # fmt: skip
    exported = timed("export", lambda: export(trained.weights, config.imgsz, folder / "export", export_config))
    val, test = (read_ground_truth(copy.folder, split) for split in (Split.VAL, Split.TEST))
    threshold_config = ThresholdConfig(iou=0.5, lowest=0.05, highest=0.9, max_escape_rate=1.0, fallback=0.5)
    found = detect_files(draft_detector(exported.model, exported.spec), [true.picture for true in val], 0.05)
    rule = verdict_rule(collect_scores(found, val, 2, 0.5), copy.class_names, threshold_config)
    tolerances = {"fp32": Tolerance(box_px=0.5, score=0.01)}
    seal_config = SealConfig(
        name="plates", golden_pictures=4, golden_score_floor=0.05, tolerances=tolerances, probe_pictures=20,
        probe_limits={"fp32": ProbeLimit(max_flip_share=0.0, min_box_share=1.0)},
    )  # fmt: skip
    provenance = provenance_of(PIN, trained.mlflow_run_id, config.seed)
    sealed = timed("seal", lambda: seal(exported, rule, val, provenance, seal_config, folder / "bundles"))
    measured = timed("evaluate", lambda: evaluate(sealed.path, test, copy.class_names, Split.TEST, EVALUATE))
    result = measured.result
    parity_config = ParityConfig(
        pictures=8, made_up_sizes=((640, 200), (200, 640), (333, 517), (97, 61)), score_floor=0.1, score_margin=0.01,
        iou=0.99, corner_px=0.5, score=0.002, minimum_compared=10,
    )  # fmt: skip
    files = [true.picture for true in test]
    parity = timed("parity", lambda: compare_with_weights(trained.weights, sealed.path, files, parity_config))
    padded = compare_with_weights(trained.weights, sealed.path, files, parity_config, rectangular=True)

    short = TrainConfig(**(TRAIN | {"epochs": 2}))
    again = timed("short", lambda: trained_in(short, copy.data_yaml, "again"))
    timed("bare", lambda: bare_training(short, copy.data_yaml, folder / "bare", train_arguments(short)))
    try:
        trained_in(short, folder / "no-such.yaml", "failing")
        failure = ""
    except yolo.TrainingError as error:
        failure = str(error)
    return {
        "attempts": lines_of(ATTEMPTS),
        "guarded": len(lines_of(GUARDED)),
        "seconds": SECONDS,
        "said": said,
        "runs": [trained.mlflow_run_id, again.mlflow_run_id],
        "epochs": trained.epochs,
        "pictures_train": len(list((copy.folder / "images" / "train").iterdir())),
        "class_names": trained.class_names,
        "difference": exported.difference,
        "result": result.model_dump(mode="json"),
        "settings": EvaluateConfig.model_dump(EVALUATE),
        "parity": parity.model_dump(mode="json"),
        "padded": padded.model_dump(mode="json"),
        "bundle": str(sealed.path),
        "digest": sealed.digest,
        "layout": exported.spec.output.layout,
        "end_to_end": end_to_end(yolo, export_config, folder, home),
        "same_weights": same_weights(again.weights, folder / "bare" / "weights" / "best.pt"),
        "failure": failure,
    }


def bare_training(config: Any, data_yaml: Path, run_dir: Path, arguments: dict[str, Any]) -> None:
    """What a user of Ultralytics would write."""
    from ultralytics import YOLO

    from tasks.model_files import find_model

    model = find_model(config.model, run_dir)
    YOLO(str(model), task="detect").train(
        data=str(data_yaml), project=str(run_dir.parent), name=run_dir.name, **arguments
    )


def same_weights(one: Path, other: Path) -> bool:
    """Whether two trainings ended with exactly the same numbers."""
    import torch

    first, second = (torch.load(path, weights_only=False)["model"].state_dict() for path in (one, other))
    return list(first) == list(second) and all(torch.equal(first[name], second[name]) for name in first)


def end_to_end(yolo: Any, config: Any, folder: Path, home: Path) -> dict[str, Any]:
    """Export an untrained model of a family with two heads, both ways; the layout comes from the file."""
    from ultralytics import YOLO

    from tasks.export import export

    weights = folder / "two-heads.pt"
    YOLO(str(yolo.resolve_model("yolo26n.yaml", home, allow_download=False)), task="detect").save(str(weights))
    found = {}
    for layout in ("raw", "end_to_end"):
        asked = config.model_copy(update={"layout": layout, "max_detections": 50})
        exported = export(weights, 64, folder / layout, asked)
        found[layout] = [exported.spec.output.layout, exported.difference]
    return found


if __name__ == "__main__":
    guards = Path(sys.argv[1], "guards")
    guards.mkdir()
    guard_children(guards)
    guard()
    report = main(Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[1], "report.json").write_text(json.dumps(report))
