"""A sealed bundle of a model of two kilobytes: it reports how red and how green each cell of a 4x4 grid is.

Its engine call costs next to nothing, so what a measurement loads is the way to it: body, decoder, letterbox, answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data_contracts.bundle import (
    GOLDEN_DIR,
    GOLDEN_FILE,
    MODEL_FILE,
    BundleManifest,
    GoldenPicture,
    GoldenSet,
    InputSpec,
    ModelSpec,
    NmsSettings,
    OutputSpec,
    Provenance,
    RuntimeSpec,
    Tolerance,
    VerdictRule,
)
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX
from serving.bundle import hash_file, write_manifest
from serving.detector import Detector
from serving.engines import EngineOptions, open_engine
from serving.images import Image
from serving.verdict import judge

INPUT_PX, GRID = 64, 4
CLASS_NAMES = ("red", "green")
THRESHOLD, GOLDEN_FLOOR = 0.25, 0.05
OPSET, IR = 17, 8


def make_tiny_bundle(folder: Path) -> Path:
    """The bundle in `folder`/<digest>; that path."""
    draft = folder / "draft"
    (draft / GOLDEN_DIR).mkdir(parents=True)
    (draft / MODEL_FILE).write_bytes(_model())
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(THRESHOLD,) * 2, chosen_on="nothing: made up")
    spec = _spec()
    _write_golden(draft, spec, rule)
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    manifest = BundleManifest(
        schema_version=1,
        name="tiny",
        version="1",
        created_at=datetime(2024, 5, 1, 12, 0, tzinfo=UTC),
        model=spec,
        verdict=rule,
        tolerances={"fp32": Tolerance(box_px=0.5, score=0.01)},
        provenance=_provenance(),
        files={path.relative_to(draft).as_posix(): hash_file(path) for path in files},
    )
    return draft.rename(folder / write_manifest(draft, manifest))


def red_corner(wh: tuple[int, int] = (96, 64)) -> Image:
    """A grey RGB picture whose top left quarter is red."""
    image = np.full((wh[1], wh[0], 3), 114, np.uint8)
    image[: wh[1] // 2, : wh[0] // 2] = (255, 0, 0)
    return image


def _spec() -> ModelSpec:
    return ModelSpec(
        class_names=CLASS_NAMES,
        input=InputSpec(tensor="images", wh=(INPUT_PX, INPUT_PX), colour_order="rgb", dtype="float32", divisor=255.0),
        letterbox=ULTRALYTICS_LETTERBOX,
        output=OutputSpec(tensor="output0", layout="raw"),
        nms=NmsSettings(iou=0.7, max_candidates=1000, max_detections=300),
        runtime=RuntimeSpec(onnx_opset=OPSET, onnx_ir=IR, onnxruntime_min="1.17.0"),
    )


def _provenance() -> Provenance:
    return Provenance(
        dataset_name="none", dataset_revision="0" * 40, dataset_hash="0" * 32 + ".dir", code_commit="0" * 40,
        code_dirty=False, mlflow_run_id="none", seed=0, versions={"numpy": np.__version__},
    )  # fmt: skip


def _write_golden(draft: Path, spec: ModelSpec, rule: VerdictRule) -> None:
    options = EngineOptions(provider="cpu", allow_fallback=False, threads=1)
    detector = Detector(spec, open_engine(draft / MODEL_FILE, spec, options))
    images = [red_corner(), np.full((64, 96, 3), 114, np.uint8), red_corner((48, 90))]
    pictures = []
    for number, (image, found) in enumerate(zip(images, detector.detect(images, GOLDEN_FLOOR), strict=True)):
        file = f"{GOLDEN_DIR}/{number}.png"
        (draft / file).write_bytes(cv2.imencode(".png", image[..., ::-1])[1].tobytes())
        records = found.records(spec.class_names)
        pictures.append(GoldenPicture(file=file, verdict=judge(found, rule)[0], detections=records))
    golden = GoldenSet(score_floor=GOLDEN_FLOOR, pictures=tuple(pictures))
    (draft / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")


def _model() -> bytes:
    """Mean colour of each cell; a class scores its own colour minus half of the two others."""
    from onnx import TensorProto, helper, numpy_helper

    cell = INPUT_PX // GRID
    weights = np.full((2, 3, 1, 1), -0.5, np.float32)
    weights[(0, 1), (0, 1)] = 1
    centres = [((x + 0.5) * cell, (y + 0.5) * cell) for y in range(GRID) for x in range(GRID)]
    boxes = np.array([[*centre, cell, cell] for centre in centres], np.float32).T[None]
    node = helper.make_node
    nodes: list[Any] = [
        node("AveragePool", ["images"], ["pooled"], kernel_shape=[cell, cell], strides=[cell, cell]),
        node("Conv", ["pooled", "weights"], ["mixed"], kernel_shape=[1, 1]),
        node("Clip", ["mixed", "zero", "one"], ["clipped"]),
        node("Reshape", ["clipped", "flat"], ["scores"]),
        node("ReduceMax", ["scores"], ["highest"], axes=[1, 2], keepdims=1),
        node("Mul", ["highest", "zero"], ["nothing"]),
        node("Add", ["boxes", "nothing"], ["batch_boxes"]),
        node("Concat", ["batch_boxes", "scores"], ["output0"], axis=1),
    ]
    constants = {
        "weights": weights, "zero": np.float32(0), "one": np.float32(1), "boxes": boxes,
        "flat": np.array([0, 2, GRID * GRID], np.int64),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, INPUT_PX, INPUT_PX])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 6, GRID * GRID])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    helper.set_model_props(
        model, {"names": "{0: 'red', 1: 'green'}", "stride": "8", "imgsz": f"[{INPUT_PX}, {INPUT_PX}]"}
    )
    return bytes(model.SerializeToString())
