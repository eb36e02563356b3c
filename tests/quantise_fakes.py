"""A detector that can be quantised, and a working copy for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from builders import GREEN, IR, OPSET, RED, model_spec
from data_contracts.bundle import MODEL_FILE, ModelSpec
from data_contracts.dataset import Split
from serving.bundle import hash_file
from tasks.export import ExportedModel
from tasks.ground_truth import GroundTruth, PictureTruth, write_ground_truth
from tasks.quantising.quantise_config import QuantiseConfig
from training_fakes import patch_picture

GRID = 4


def config(**changes: Any) -> QuantiseConfig:
    """INT8 is wished for; `changes` replace fields."""
    fields: dict[str, Any] = {
        "wished": True, "pictures": 6, "method": "minmax", "max_loss": 2.0, "max_mean_loss": 0.5, "max_rounds": 3,
        "budget_s": 60.0, "build_wishes": (),
    }  # fmt: skip
    return QuantiseConfig(**(fields | changes))


def branched_colours(px: int = 64, names: Sequence[str] | None = None) -> bytes:
    """ONNX bytes of a detector of red (class 0) and green (class 1) cells of a 4x4 grid, with a trunk and two branches.

    The trunk (convolution, ReLU, pooling) feels how red and how green a cell is, one branch makes scores of that, the
    other, in vain, boxes; each cell's box is the cell. `names` are those of the operators in order.
    """
    from onnx import TensorProto, helper

    cell, node = px // GRID, helper.make_node
    centres = [((x + 0.5) * cell, (y + 0.5) * cell) for y in range(GRID) for x in range(GRID)]
    boxes = np.array([[*centre, cell, cell] for centre in centres], np.float32).T[None]
    felt = np.array([[1, -0.5, -0.5], [-0.5, 1, -0.5]], np.float32).reshape(2, 3, 1, 1)
    nodes = [
        node("Conv", ["images", "felt_w"], ["mixed"], kernel_shape=[1, 1]),
        node("Relu", ["mixed"], ["felt"]),
        node("AveragePool", ["felt"], ["pooled"], kernel_shape=[cell, cell], strides=[cell, cell]),
        node("Conv", ["pooled", "score_w"], ["score_map"], kernel_shape=[1, 1]),
        node("Clip", ["score_map", "zero", "one"], ["clipped"]),
        node("Reshape", ["clipped", "flat_scores"], ["scores"]),
        node("Conv", ["pooled", "box_w"], ["box_map"], kernel_shape=[1, 1]),
        node("Reshape", ["box_map", "flat_boxes"], ["shifts"]),
        node("Add", ["shifts", "boxes"], ["moved"]),
        node("Concat", ["moved", "scores"], ["output0"], axis=1),
    ]
    for one, name in zip(nodes, names or (), strict=False):
        one.name = name
    constants = {
        "felt_w": felt, "score_w": np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1),
        "box_w": np.zeros((4, 2, 1, 1), np.float32), "boxes": boxes, "zero": np.float32(0), "one": np.float32(1),
        "flat_scores": np.array([0, 2, GRID**2], np.int64), "flat_boxes": np.array([0, 4, GRID**2], np.int64),
    }  # fmt: skip
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "branched colours",
        [tensor("images", TensorProto.FLOAT, ["batch", 3, px, px])],
        [tensor("output0", TensorProto.FLOAT, ["batch", 6, GRID**2])],
        [helper.make_tensor(name, *_typed(value)) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    data: bytes = model.SerializeToString()
    return data


def _typed(value: Any) -> tuple[int, tuple[int, ...], Any]:
    from onnx import TensorProto

    array = np.asarray(value)
    return (TensorProto.INT64 if array.dtype == np.int64 else TensorProto.FLOAT), array.shape, array.ravel()


def exported(folder: Path, model: bytes | None = None, spec: ModelSpec | None = None) -> ExportedModel:
    """An exported model in `folder`: the branched colour detector, or `model`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / MODEL_FILE
    file.write_bytes(branched_colours() if model is None else model)
    return ExportedModel(file, hash_file(file).sha256, spec or model_spec(), 0.0)


def working_copy(folder: Path, px: int = 64, colours: Sequence[Any] = (RED, GREEN)) -> Path:
    """Eight training, eight validation and two test pictures: a cell in each of the colours, in turn, or none."""
    splits = {}
    for split, count in ((Split.TRAIN, 8), (Split.VAL, 8), (Split.TEST, 2)):
        place = folder / "images" / split
        place.mkdir(parents=True)
        splits[split] = [_stored(_part(place, split, number, px, colours), folder) for number in range(count)]
    write_ground_truth(folder, splits)
    return folder


def _part(place: Path, split: Split, number: int, px: int, colours: Sequence[Any]) -> GroundTruth:
    """Every third picture is good. The background differs, so that no two pictures are the same."""
    cell, kind = px // GRID, number % (len(colours) + 1)
    name, corner = f"{split}{number}.png", (number % GRID) * cell
    patches = [((corner, cell, corner + cell, 2 * cell), colours[kind], kind)] if kind < len(colours) else []
    mark = ((0, px - 1, number + 1, px), (90, 90, 90 + 10 * list(Split).index(split)), -1)
    true = patch_picture(place, name, (px, px), *patches, mark)
    known = true.class_ids >= 0
    return GroundTruth(true.picture, true.image_wh, true.boxes_xyxy_px[known], true.class_ids[known])


def _stored(true: GroundTruth, folder: Path) -> PictureTruth:
    return PictureTruth(
        picture=str(PurePosixPath(true.picture.relative_to(folder))),
        image_wh=true.image_wh,
        boxes_xyxy_px=tuple(tuple(float(side) for side in box) for box in true.boxes_xyxy_px),
        class_ids=tuple(int(one) for one in true.class_ids),
    )
