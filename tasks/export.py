"""Export trained weights to the portable model that serving runs, and prove that it says the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction
from data_contracts.bundle import MODEL_FILE, InputSpec, ModelSpec, NmsSettings, OutputSpec, RuntimeSpec
from data_contracts.errors import BundleError, Problem
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX
from serving.bundle import hash_file
from tasks import yolo
from tasks.pictures import cpu_options

OLDEST_RUNTIME = {15: (1, 10), 16: (1, 11), 17: (1, 12), 18: (1, 14), 19: (1, 15), 20: (1, 17), 21: (1, 18)}
"""First ONNX Runtime that reads an opset, by ONNX Runtime's table of compatibility."""
OLDEST_RUNTIME_FOR_IR = {8: (1, 10), 9: (1, 17), 10: (1, 18)}
CHECKED_BATCHES = (1, 3)
LISTED_BY_CHANCE = 0.001

Output = npt.NDArray[np.float32]


class ExportConfig(Contract):
    """How the portable model is made and what follows its output."""

    opset: int = Field(ge=15, le=21, description="ONNX operator set.")
    simplify: bool = Field(description="Fold constants and shapes with onnxslim.")
    layout: Literal["raw", "end_to_end"] = Field(description="Head: boxes before suppression, or final boxes.")
    nms_iou: Fraction = Field(description="A box that overlaps a better one of its class by more is dropped.")
    max_candidates: int = Field(ge=1, le=30_000, description="Best-scored boxes of a picture that enter suppression.")
    max_detections: int = Field(ge=1, le=1000, description="Boxes of a picture that leave it.")
    largest_difference: float = Field(
        gt=0, le=0.01, allow_inf_nan=False, description="To torch, relative to the largest output of its kind."
    )


@dataclass(frozen=True)
class ExportedModel:
    """An exported model that was compared with torch; `difference` is the largest relative one."""

    model: Path
    sha256: str
    spec: ModelSpec
    difference: float


def pin_shapes(model: Any, input_wh: tuple[int, int], output_shape: tuple[int, ...]) -> None:
    """Fix all axes of an ONNX model's input and output but the batch; `output_shape` is without the batch."""
    width, height = input_wh
    for tensor, sizes in ((model.graph.input[0], (3, height, width)), (model.graph.output[0], output_shape)):
        axes = tensor.type.tensor_type.shape.dim
        axes[0].dim_param = "batch"
        for axis, size in zip(axes[1:], sizes, strict=True):
            axis.dim_value = size


def oldest_runtime(opset: int, ir: int) -> str:
    """The first ONNX Runtime that reads both.

    >>> oldest_runtime(17, 8)
    '1.12'
    """
    return "{}.{}".format(*max(OLDEST_RUNTIME[opset], OLDEST_RUNTIME_FOR_IR.get(ir, OLDEST_RUNTIME_FOR_IR[8])))


def relative_difference(first: Output, second: Output, layout: str) -> float:
    """Largest difference of two outputs (n, ...): boxes by the largest coordinate, scores by one. Infinite where the
    shapes differ.
    """
    if first.shape != second.shape:
        return float("inf")
    if layout == "end_to_end":
        return max(_final_difference(one, other) for one, other in zip(first, second, strict=True))
    side = max(float(np.abs(first[:, :4]).max()), 1.0)
    return max(
        float(np.abs(first[:, :4] - second[:, :4]).max()) / side, float(np.abs(first[:, 4:] - second[:, 4:]).max())
    )


def _final_difference(first: Output, second: Output) -> float:
    """For final boxes (boxes, 6) of one picture: equal scores have no order, so each box looks for its nearest.

    Of boxes that score next to nothing only the scores are compared: which of them are listed is chance.
    """
    scores = float(np.abs(first[:, 4] - second[:, 4]).max())
    listed = first[first[:, 4] > LISTED_BY_CHANCE]
    if not len(listed):
        return scores
    side = max(float(np.abs(first[:, :4]).max()), 1.0)
    apart = np.abs(listed[:, None] - second[None]) / np.array([side, side, side, side, 1.0, 1.0], np.float32)
    return max(scores, float(apart.max(axis=2).min(axis=1).max()))


def model_spec(model_file: Path, facts: yolo.OnnxFacts, image_size: int, config: ExportConfig) -> ModelSpec:
    """All that a detector needs, read from the file where the file knows it."""
    import onnx

    model = onnx.load(model_file, load_external_data=False)
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    return ModelSpec(
        class_names=facts.class_names,
        input=InputSpec(
            tensor=model.graph.input[0].name,
            wh=(image_size, image_size),
            colour_order="rgb",
            dtype="float32",
            divisor=255,
        ),
        letterbox=ULTRALYTICS_LETTERBOX,
        output=OutputSpec(tensor=model.graph.output[0].name, layout=facts.layout),
        nms=NmsSettings(iou=config.nms_iou, max_candidates=config.max_candidates, max_detections=config.max_detections),
        runtime=RuntimeSpec(
            onnx_opset=opset, onnx_ir=model.ir_version, onnxruntime_min=oldest_runtime(opset, model.ir_version)
        ),
    )


def finish_onnx(model_file: Path, image_size: int, *, simplify: bool) -> None:
    """Leave only the batch free, and simplify, in place. What the exporter wrote about the model stays in the file."""
    import onnx

    model = onnx.load(model_file)
    probe = np.zeros((1, 3, image_size, image_size), np.float32)
    pin_shapes(model, (image_size, image_size), _run_onnx(model_file, probe).shape[1:])
    onnx.save(model, model_file)
    if simplify:
        import onnxslim

        onnx.save(onnxslim.slim(str(model_file)), model_file)


def _run_onnx(model_file: Path, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    from serving.engines import session_options
    from serving.ort import onnxruntime as ort

    session = ort.InferenceSession(str(model_file), session_options(cpu_options().threads), ["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: batch})
    return np.asarray(output, np.float32)


def compare_with_torch(weights: Path, model_file: Path, image_size: int, config: ExportConfig) -> float:
    """Largest relative difference to torch's own answer, over batches of one and three random pictures."""
    noise = np.random.default_rng(0).random((max(CHECKED_BATCHES), 3, image_size, image_size), np.float32)
    return max(
        relative_difference(
            yolo.forward(weights, noise[:count], layout=config.layout, max_detections=config.max_detections),
            _run_onnx(model_file, noise[:count]),
            config.layout,
        )
        for count in CHECKED_BATCHES
    )


def export(weights: Path, image_size: int, target: Path, config: ExportConfig) -> ExportedModel:
    """Write model.onnx into the folder `target`.

    Raises JobError when the model has no such head, BundleError when the file answers otherwise than torch.
    """
    model_file = target / MODEL_FILE
    facts = yolo.export_onnx(
        weights,
        image_size=image_size,
        opset=config.opset,
        layout=config.layout,
        max_detections=config.max_detections,
        target=model_file,
    )
    finish_onnx(model_file, image_size, simplify=config.simplify)
    difference = compare_with_torch(weights, model_file, image_size, config)
    if math.isnan(difference):
        action = "Train again with a lower train.lr0, or from an earlier checkpoint."
        raise BundleError(Problem("trained weights", "numbers in the model's answer", "NaN", action))
    if not difference <= config.largest_difference:
        limit = f"at most {config.largest_difference:g} relative difference to torch"
        raise BundleError(
            Problem(MODEL_FILE, limit, f"{difference:g}", "Try another opset, or export.simplify: false.")
        )
    return ExportedModel(
        model_file, hash_file(model_file).sha256, model_spec(model_file, facts, image_size, config), difference
    )


@task
def export_model(weights: Path, image_size: int, target: Path, home: Path, config: ExportConfig) -> ExportedModel:
    """Export the best weights of a training."""
    yolo.configure_ultralytics(home)
    return export(weights, image_size, target, config)
