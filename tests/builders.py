"""Builders that every test may use: pictures, a mini dataset, tiny ONNX models, sealed bundles.

Everything is made from its arguments alone: the same call gives the same bytes, so also the same digest.
"""

from __future__ import annotations

import functools
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import yaml
from PIL import Image as PillowImage

from data_contracts.bundle import (
    GOLDEN_DIR,
    GOLDEN_FILE,
    MODEL_FILE,
    BundleManifest,
    FileEntry,
    GoldenPicture,
    GoldenSet,
    InputSpec,
    ModelSpec,
    NmsSettings,
    OutputSpec,
    ProbeLimit,
    Provenance,
    RuntimeSpec,
    Tolerance,
    VerdictRule,
)
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX
from data_contracts.probe import PROBE_FILE, PROBE_PICTURES_DIR, ProbePicture, ProbeSet
from serving.bundle import hash_file, write_manifest
from serving.detector import Detector
from serving.engines import EngineOptions, open_engine
from serving.images import ImageLimits
from serving.verdict import judge

Image = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Box = tuple[int, int, int, int]

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (114, 114, 114)
COLOUR_NAMES = ("red", "green")
LIMITS = ImageLimits(max_bytes=32 * 2**20, max_pixels=64_000_000)
CPU = EngineOptions(provider="cpu", allow_fallback=False, threads=1)
OPSET, IR = 17, 8


def shared_data_or_none() -> Path | None:
    """Folder of the shared sample data, None where it is missing."""
    named = os.environ.get("PASSLINE_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


def shared_data() -> Path:
    """Folder of the shared sample data; skips the test where it is missing."""
    folder = shared_data_or_none()
    if folder is None:
        pytest.skip("no shared data beside the repository: set PASSLINE_SHARED_DATA to the folder that holds it")
    return folder


# --- pictures -----------------------------------------------------------------------------------------------------


def plate(wh: tuple[int, int] = (64, 48), *patches: tuple[Box, Colour], background: Colour = GREY) -> Image:
    """A plain RGB picture of `wh` pixels with filled boxes (left, top, right, bottom) on it."""
    image = np.full((wh[1], wh[0], 3), background, np.uint8)
    for (left, top, right, bottom), colour in patches:
        image[top:bottom, left:right] = colour
    return image


def noisy_plate(wh: tuple[int, int] = (64, 48), seed: int = 0) -> Image:
    """An RGB picture in which every pixel differs: mix-ups of any kind show."""
    return np.random.default_rng(seed).integers(0, 256, (wh[1], wh[0], 3), dtype=np.uint8)


def encode(image_rgb: Image, kind: str = "png", orientation: int | None = None, **options: Any) -> bytes:
    """Bytes of a picture file: jpeg, png, bmp, webp, tiff or gif by Pillow, with an EXIF orientation tag if given."""
    buffer = io.BytesIO()
    if kind == "jpeg":
        options = {"quality": 95, "subsampling": 0} | options
    if kind == "webp":
        options = {"lossless": True} | options
    if orientation is not None and kind == "tiff":
        options["tiffinfo"] = {0x112: orientation}
    elif orientation is not None:
        exif = PillowImage.Exif()
        exif[0x112] = orientation
        options["exif"] = exif.tobytes()
    PillowImage.fromarray(image_rgb).save(buffer, kind, **options)
    return buffer.getvalue()


def encode_mode(image_rgb: Image, mode: str, kind: str = "png") -> bytes:
    """The same picture in another Pillow mode: L, P, RGBA, 1, CMYK ..."""
    buffer = io.BytesIO()
    PillowImage.fromarray(image_rgb).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def encode_16bit(image: npt.NDArray[np.uint16], suffix: str = ".png") -> bytes:
    """A 16-bit grey (height, width) or BGR (height, width, 3) file."""
    written, data = cv2.imencode(suffix, image)
    assert written
    return data.tobytes()


# --- dataset ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MiniDataset:
    """Where the mini dataset lies, and its pictures per split as stems."""

    folder: Path
    class_names: tuple[str, ...]
    stems: dict[str, tuple[str, ...]]


def write_mini_dataset(
    folder: Path,
    *,
    counts: dict[str, int] | None = None,
    class_names: Sequence[str] = ("square", "line"),
    wh: tuple[int, int] = (96, 64),
    suffix: Literal[".jpg", ".png"] = ".png",
    orientation: int | None = None,
    jpeg_tail: Literal["whole", "truncated", "padded"] = "whole",
    label_dialect: Literal["plain", "bom", "crlf"] = "plain",
    images_symlink: bool = False,
    parts_per_group: int = 0,
    seed: int = 0,
) -> MiniDataset:
    """A YOLO dataset of grey plates, each with one defect per class in turn; every fifth plate has none.

    `counts` is pictures per split (train 8, val 4). `jpeg_tail`: cut or with bytes behind its end. `images_symlink`:
    images/ is a link to a folder beside the dataset. `parts_per_group`: stems become `part<group>_<view>`.
    """
    counts = {"train": 8, "val": 4} if counts is None else counts
    folder.mkdir(parents=True)
    images = folder / "images"
    if images_symlink:
        elsewhere = folder.parent / f"{folder.name}-pictures"
        elsewhere.mkdir()
        images.symlink_to(elsewhere, target_is_directory=True)
    rng = np.random.default_rng(seed)
    stems: dict[str, tuple[str, ...]] = {}
    number = 0
    for split, count in counts.items():
        (images / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        names = []
        for _ in range(count):
            group = f"part{number // parts_per_group}_{number % parts_per_group}" if parts_per_group else f"p{number}"
            picture, rows = _mini_part(rng, number, wh, len(class_names))
            data = encode(picture, "jpeg" if suffix == ".jpg" else "png", orientation)
            (images / split / f"{group}{suffix}").write_bytes(_with_tail(data, jpeg_tail))
            _write_labels(folder / "labels" / split / f"{group}.txt", rows, label_dialect)
            names.append(group)
            number += 1
        stems[split] = tuple(names)
    data_yaml = {"path": "."} | {split: f"images/{split}" for split in counts} | {"names": dict(enumerate(class_names))}
    (folder / "data.yaml").write_text(yaml.safe_dump(data_yaml, sort_keys=False), encoding="utf-8")
    return MiniDataset(folder, tuple(class_names), stems)


def _mini_part(rng: np.random.Generator, number: int, wh: tuple[int, int], classes: int) -> tuple[Image, list[str]]:
    """A noisy grey plate; class 0 is a red square, class 1 a green line, then blue squares."""
    image = rng.normal(128, 6, (wh[1], wh[0], 3)).clip(0, 255).astype(np.uint8)
    if number % 5 == 4:
        return image, []
    class_id = number % classes
    size = (4, wh[1] // 2) if class_id == 1 else (wh[1] // 4, wh[1] // 4)
    left, top = (int(rng.integers(1, outer - inner - 1)) for outer, inner in zip(wh, size, strict=True))
    image[top : top + size[1], left : left + size[0]] = (RED, GREEN, BLUE)[min(class_id, 2)]
    centre_x, centre_y = (left + size[0] / 2) / wh[0], (top + size[1] / 2) / wh[1]
    return image, [f"{class_id} {centre_x:.6f} {centre_y:.6f} {size[0] / wh[0]:.6f} {size[1] / wh[1]:.6f}"]


def _with_tail(data: bytes, tail: str) -> bytes:
    return {"whole": data, "truncated": data[: len(data) * 2 // 3], "padded": data + b"\x00" * 64}[tail]


def _write_labels(file: Path, rows: list[str], dialect: str) -> None:
    end = "\r\n" if dialect == "crlf" else "\n"
    start = "\ufeff" if dialect == "bom" else ""
    file.write_bytes((start + "".join(row + end for row in rows)).encode("utf-8"))


# --- models -------------------------------------------------------------------------------------------------------


@functools.cache
def colour_stub(
    classes: int = 2, wh: tuple[int, int] = (64, 64), gain: float = 1.0, layout: str = "raw", first_colour: int = 0
) -> bytes:
    """ONNX bytes of a model that reports how red, green or blue each cell of a 4x4 grid is.

    Class k scores the mean of its colour minus half of the others, times `gain`: pure red is 1 for class 0, grey is 0
    for all. Class k looks at colour (k + first_colour) mod 3. Each cell's box is the cell. So the answer shows channel
    order, orientation and whose picture it was.
    """
    from onnx import TensorProto, helper

    grid, (width, height) = 4, wh
    weights = np.full((classes, 3, 1, 1), -0.5, np.float32)
    weights[np.arange(classes), (np.arange(classes) + first_colour) % 3] = 1
    cell_w, cell_h = width / grid, height / grid
    centres = [((x + 0.5) * cell_w, (y + 0.5) * cell_h) for y in range(grid) for x in range(grid)]
    cell_hw = [height // grid, width // grid]
    boxes = np.array([[*centre, cell_w, cell_h] for centre in centres], np.float32).T[None]
    node = helper.make_node
    nodes = [
        node("AveragePool", ["images"], ["pooled"], kernel_shape=cell_hw, strides=cell_hw),
        node("Conv", ["pooled", "weights"], ["mixed"], kernel_shape=[1, 1]),
        node("Mul", ["mixed", "gain"], ["scaled"]),
        node("Clip", ["scaled", "zero", "one"], ["clipped"]),
        node("Reshape", ["clipped", "flat"], ["scores"]),
        node("ReduceMax", ["scores"], ["one_score"], axes=[1, 2], keepdims=1),
        node("Mul", ["one_score", "zero"], ["nothing"]),
        node("Add", ["boxes", "nothing"], ["batch_boxes"]),
    ]  # fmt: skip
    constants = {
        "weights": weights, "gain": np.float32(gain), "zero": np.float32(0), "one": np.float32(1),
        "flat": np.array([0, classes, grid * grid], np.int64), "boxes": boxes,
    }  # fmt: skip
    nodes += _raw_end() if layout == "raw" else _end_to_end_nodes()
    if layout != "raw":
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
        constants["boxes"] = corners.astype(np.float32)
    output_dims = ["batch", 4 + classes, grid * grid] if layout == "raw" else ["batch", grid * grid, 6]
    return _onnx(nodes, constants, wh, output_dims, TensorProto, helper)


def _raw_end() -> list[Any]:
    from onnx import helper

    return [helper.make_node("Concat", ["batch_boxes", "scores"], ["output0"], axis=1)]


def _end_to_end_nodes() -> list[Any]:
    from onnx import TensorProto, helper

    return [
        helper.make_node("ReduceMax", ["scores"], ["best"], axes=[1], keepdims=1),
        helper.make_node("ArgMax", ["scores"], ["class_int"], axis=1, keepdims=1),
        helper.make_node("Cast", ["class_int"], ["class_id"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["batch_boxes", "best", "class_id"], ["columns"], axis=1),
        helper.make_node("Transpose", ["columns"], ["output0"], perm=[0, 2, 1]),
    ]


@functools.cache
def tiny_onnx(classes: int = 2, wh: tuple[int, int] = (64, 64), seed: int = 0) -> bytes:
    """ONNX bytes of a small detector: 3 -> 8 convolution and ReLU, a box branch (sigmoid x 640) and a score branch.

    Raw layout, one anchor per 8x8 cell, random weights. The two branches have the value ranges of a real head, which is
    what breaks careless quantisation.
    """
    from onnx import TensorProto, helper

    rng = np.random.default_rng(seed)
    anchors = (wh[0] // 8) * (wh[1] // 8)
    node = helper.make_node
    nodes = [
        node("Conv", ["images", "trunk_w"], ["trunk"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Relu", ["trunk"], ["features"]),
        node("Conv", ["features", "box_w"], ["box_logits"], kernel_shape=[1, 1]),
        node("Sigmoid", ["box_logits"], ["box_fractions"]),
        node("Mul", ["box_fractions", "box_scale"], ["box_map"]),
        node("Conv", ["features", "score_w", "score_b"], ["score_logits"], kernel_shape=[1, 1]),
        node("Sigmoid", ["score_logits"], ["score_map"]),
        node("Concat", ["box_map", "score_map"], ["maps"], axis=1),
        node("Reshape", ["maps", "flat"], ["output0"]),
    ]
    constants = {
        "trunk_w": rng.normal(0, 0.2, (8, 3, 8, 8)).astype(np.float32),
        "box_w": rng.normal(0, 0.3, (4, 8, 1, 1)).astype(np.float32),
        "box_scale": np.float32(640),
        "score_w": rng.normal(0, 0.5, (classes, 8, 1, 1)).astype(np.float32),
        "score_b": np.full(classes, -1, np.float32),
        "flat": np.array([0, 4 + classes, anchors], np.int64),
    }
    return _onnx(nodes, constants, wh, ["batch", 4 + classes, anchors], TensorProto, helper)


def _onnx(
    nodes: list[Any], constants: dict[str, Any], wh: tuple[int, int], output_dims: list[Any], types: Any, helper: Any
) -> bytes:
    from onnx import numpy_helper

    graph = helper.make_graph(
        nodes,
        "stub",
        [helper.make_tensor_value_info("images", types.FLOAT, ["batch", 3, wh[1], wh[0]])],
        [helper.make_tensor_value_info("output0", types.FLOAT, output_dims)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    helper.set_model_props(model, {"names": "{0: 'a'}", "stride": "8", "imgsz": str([wh[1], wh[0]])})
    data: bytes = model.SerializeToString()
    return data


# --- bundles ------------------------------------------------------------------------------------------------------


def model_spec(
    class_names: Sequence[str] = COLOUR_NAMES, wh: tuple[int, int] = (64, 64), layout: Any = "raw", **changes: Any
) -> ModelSpec:
    """A spec that fits the stub models; `changes` replace whole fields."""
    fields: dict[str, Any] = {
        "class_names": tuple(class_names),
        "input": InputSpec(tensor="images", wh=wh, colour_order="rgb", dtype="float32", divisor=255.0),
        "letterbox": ULTRALYTICS_LETTERBOX,
        "output": OutputSpec(tensor="output0", layout=layout),
        "nms": NmsSettings(iou=0.7, max_candidates=1000, max_detections=300),
        "runtime": RuntimeSpec(onnx_opset=OPSET, onnx_ir=IR, onnxruntime_min="1.17.0"),
    }
    return ModelSpec(**(fields | changes))


def golden_images(wh: tuple[int, int] = (64, 48)) -> list[Image]:
    """Red top left, green bottom right on a wide picture, and nothing at all."""
    width, height = wh
    return [
        plate(wh, ((0, 0, width // 2, height // 2), RED)),
        plate((width * 2, height), ((width, height // 2, width * 2, height), GREEN)),
        plate((height, width)),
    ]


def make_bundle(
    folder: Path,
    *,
    class_names: Sequence[str] = COLOUR_NAMES,
    wh: tuple[int, int] = (64, 64),
    model: bytes | None = None,
    gain: float = 1.0,
    first_colour: int = 0,
    layout: Literal["raw", "end_to_end"] = "raw",
    name: str = "plates",
    version: str = "1",
    threshold: float = 0.25,
    images: Sequence[Image] | None = None,
    golden_floor: float = 0.05,
    tolerance: Tolerance | None = None,
    **manifest_fields: Any,
) -> Path:
    """A sealed, valid bundle of a colour stub (or of `model`), in `folder`/<digest>; that path.

    Its golden detections are recorded by `serving.detector` itself. `manifest_fields` replace what the manifest says.
    """
    draft = folder / f"draft-{name}-{version}"
    (draft / GOLDEN_DIR).mkdir(parents=True)
    default = colour_stub(len(class_names), wh, gain, layout, first_colour)
    (draft / MODEL_FILE).write_bytes(default if model is None else model)
    spec = model_spec(class_names, wh, layout)
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(threshold,) * len(class_names), chosen_on="a test")
    _write_golden(draft, spec, rule, golden_images() if images is None else images, golden_floor)
    fields: dict[str, Any] = {
        "schema_version": 1,
        "name": name,
        "version": version,
        "created_at": datetime(2024, 5, 1, 12, 0, tzinfo=UTC),
        "model": spec,
        "verdict": rule,
        "tolerances": {"fp32": tolerance or Tolerance(box_px=0.5, score=0.01)},
        "provenance": provenance(),
        "files": list_files(draft),
    }
    manifest = BundleManifest(**(fields | manifest_fields))
    sealed = folder / write_manifest(draft, manifest)
    if sealed.exists():
        shutil.rmtree(draft)
        return sealed
    return draft.rename(sealed)


def make_probe_set(folder: Path, images: Sequence[Image] | None = None, *, model: bytes | None = None) -> Path:
    """A probe set in `folder`/<digest> with the answers of the default colour stub (or of `model`); that path."""
    draft = folder / "draft-probe"
    (draft / PROBE_PICTURES_DIR).mkdir(parents=True)
    model_file = folder / "probe-model.onnx"
    model_file.write_bytes(colour_stub() if model is None else model)
    spec, floor = model_spec(), 0.25
    detector = Detector(spec, open_engine(model_file, spec, CPU))
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(floor, floor), chosen_on="a test")
    pictures = []
    for number, image in enumerate(golden_images() if images is None else images):
        file = f"{PROBE_PICTURES_DIR}/{number:03d}.png"
        (draft / file).write_bytes(encode(image))
        (found,) = detector.detect([image], floor)
        records = found.records(spec.class_names)
        entry = hash_file(draft / file)
        pictures.append(ProbePicture(file=file, verdict=judge(found, rule)[0], detections=records, entry=entry))
    model_sha256 = hash_file(model_file).sha256
    probe = ProbeSet(schema_version=1, model=model_sha256, score_floor=floor, pictures=tuple(pictures))
    (draft / PROBE_FILE).write_text(probe.to_json(), encoding="utf-8")
    model_file.unlink()
    return draft.rename(folder / probe.digest)


def probed_bundle(folder: Path, **manifest_fields: Any) -> tuple[Path, Path]:
    """A bundle that other precisions than FP32 may serve, and its probe set."""
    probe = make_probe_set(folder / "probes")
    limit, near, far = ProbeLimit(max_flip_share=0.0, min_box_share=1.0), Tolerance(box_px=0.5, score=0.01), 0.1
    fields: dict[str, Any] = {
        "tolerances": {"fp32": near, "bf16": Tolerance(box_px=4.0, score=far)},
        "probe_limits": {"fp32": limit, "bf16": limit},
        "probe_set": probe.name,
    }
    return make_bundle(folder / "bundles", **(fields | manifest_fields)), probe


def first_bundle(folder: Path) -> Path:
    """Version 1: class 0 is red, scores up to 1."""
    return make_bundle(folder, version="1")


def second_bundle(folder: Path) -> Path:
    """Version 2: other class names, and half the score for the same picture."""
    return make_bundle(folder, version="2", class_names=("crimson", "lime"), gain=0.5)


def list_files(folder: Path) -> dict[str, FileEntry]:
    """The files of a draft as the manifest lists them."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in found}


def provenance() -> Provenance:
    """Provenance of something that was never trained."""
    return Provenance(
        dataset_name="mini", dataset_revision="0" * 40, dataset_hash="0" * 32 + ".dir", code_commit="0" * 40,
        code_dirty=False, mlflow_run_id="none", seed=0, versions={"numpy": np.__version__},
    )  # fmt: skip


def _write_golden(draft: Path, spec: ModelSpec, rule: VerdictRule, images: Sequence[Image], floor: float) -> None:
    detector = Detector(spec, open_engine(draft / MODEL_FILE, spec, CPU))
    pictures = []
    for number, (image, found) in enumerate(zip(images, detector.detect(images, floor), strict=True)):
        file = f"{GOLDEN_DIR}/{number}.png"
        (draft / file).write_bytes(encode(image))
        verdict, _ = judge(found, rule)
        pictures.append(GoldenPicture(file=file, verdict=verdict, detections=found.records(spec.class_names)))
    golden = GoldenSet(score_floor=floor, pictures=tuple(pictures))
    (draft / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")
