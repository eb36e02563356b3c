"""Trains, exports, seals, evaluates and compares, as the flow does, and prints what happened as JSON.

Run as a program of its own: with pytest loaded, Ultralytics switches parts of itself off.
Arguments: working folder, MLflow URL. Every attempt to reach another machine or to install something is recorded.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ATTEMPTS: list[str] = []
SECONDS: dict[str, float] = {}


def guard() -> None:
    """Refuse and record connections and look-ups that leave this machine, and installers."""
    connect, look_up, popen = socket.socket.connect, socket.getaddrinfo, subprocess.Popen.__init__

    def refuse(what: str) -> None:
        ATTEMPTS.append(what)
        raise OSError(f"blocked by the test: {what}")

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            refuse(f"connect {address}")
        connect(self, address)

    def guarded_look_up(host: Any, *rest: Any, **named: Any) -> Any:
        if host not in (None, "127.0.0.1", "::1", "localhost", socket.gethostname()):
            refuse(f"look up {host}")
        return look_up(host, *rest, **named)

    def guarded_popen(self: Any, command: Any, *rest: Any, **named: Any) -> None:
        words = command if isinstance(command, str) else " ".join(map(str, command))
        if any(tool in words for tool in ("pip ", "pip3", "uv ", "apt", "conda")):
            refuse(f"run {words}")
        popen(self, command, *rest, **named)

    socket.socket.connect = guarded_connect  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = guarded_look_up
    subprocess.Popen.__init__ = guarded_popen  # type: ignore[method-assign]


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
    from tasks.train import TrainConfig, train, train_arguments
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
    timed("import", lambda: yolo.configure_ultralytics(home))
    trained = timed("train", lambda: train(config, copy.data_yaml, folder / "run", registry, ORIGIN, home, said.append))
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
    again = timed("short", lambda: train(short, copy.data_yaml, folder / "again", registry, ORIGIN, home, said.append))
    timed("bare", lambda: bare_training(short, copy.data_yaml, folder / "bare", train_arguments(short)))
    try:
        train(short, folder / "no-such.yaml", folder / "failing", registry, ORIGIN, home, said.append)
        failure = ""
    except yolo.TrainingError as error:
        failure = str(error)
    return {
        "attempts": ATTEMPTS,
        "seconds": SECONDS,
        "said": said,
        "runs": [trained.mlflow_run_id, again.mlflow_run_id],
        "epochs": trained.epochs,
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
    guard()
    report = main(Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[1], "report.json").write_text(json.dumps(report))
