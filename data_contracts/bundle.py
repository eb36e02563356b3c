"""The release bundle: the only thing that crosses from training to inference.

    <digest>/
      bundle.json         manifest; its canonical JSON's SHA-256 is the bundle's digest
      model.onnx          portable model, FP32
      model.int8.onnx     the same model quantised; only where it passed its own gate
      golden/             pictures with the detections that the bundle must reproduce at every load
      attestations/       what was learned after sealing; each file is JSON and names the digest

Everything that serving needs is in the manifest; serving guesses nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from data_contracts.base import Contract, Fraction, Name, Sha256, WidthHeight, canonical_json, sha256_of
from data_contracts.detections import Detection, Verdict
from data_contracts.letterbox import LetterboxRule

MANIFEST_FILE = "bundle.json"
MODEL_FILE = "model.onnx"
INT8_MODEL_FILE = "model.int8.onnx"
GOLDEN_DIR = "golden"
GOLDEN_FILE = "golden/golden.json"
ATTESTATIONS_DIR = "attestations"

Precision = Literal["fp32", "fp16", "bf16", "int8"]


def _plain_relative_path(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path!r} is not a plain relative path with forward slashes")
    return path


BundlePath = Annotated[str, AfterValidator(_plain_relative_path)]


class FileEntry(Contract):
    """One file of the bundle, as it must be found."""

    sha256: Sha256
    size_bytes: int = Field(ge=0)


class InputSpec(Contract):
    """The tensor that the model takes: (batch, 3, height, width)."""

    tensor: str = Field(min_length=1)
    wh: WidthHeight
    colour_order: Literal["rgb"]
    dtype: Literal["float32"]
    divisor: float = Field(gt=0, allow_inf_nan=False, description="8-bit values are divided by this.")


class OutputSpec(Contract):
    """The tensor that the model gives.

    raw: (batch, 4 + classes, anchors): centre x, centre y, width, height in input pixels, then a score per class.
    end_to_end: (batch, boxes, 6): left, top, right, bottom in input pixels, score, class id; no NMS follows.
    """

    tensor: str = Field(min_length=1)
    layout: Literal["raw", "end_to_end"]


class NmsSettings(Contract):
    """Non-maximum suppression within each class."""

    iou: Fraction = Field(description="A box that overlaps a better one of its class by more than this is dropped.")
    max_candidates: int = Field(ge=1, description="Best-scored boxes of one picture that enter suppression.")
    max_detections: int = Field(ge=1, description="Boxes of one picture that leave it.")


class Tolerance(Contract):
    """How far an answer may lie from the recorded one."""

    box_px: float = Field(gt=0, allow_inf_nan=False, description="Largest distance of a corner coordinate.")
    score: float = Field(gt=0, le=1, allow_inf_nan=False)


class ProbeLimit(Contract):
    """How far an engine may differ from FP32 ONNX Runtime on the probe set and still serve."""

    max_flip_share: Fraction = Field(description="Largest share of pictures whose verdict may be another one.")
    min_box_share: Fraction = Field(description="Smallest share of boxes found again within the precision's tolerance.")


class VerdictRule(Contract):
    """NG when at least one box of a class reaches its threshold."""

    kind: Literal["any_box_over_threshold"]
    thresholds: tuple[Fraction, ...] = Field(description="One per class, in class order.")
    chosen_on: str = Field(min_length=1, description="The split and rule that gave the thresholds.")


class RuntimeSpec(Contract):
    """What a runtime must be able to read."""

    onnx_opset: int = Field(ge=1)
    onnx_ir: int = Field(ge=1)
    onnxruntime_min: str = Field(pattern=r"^\d+\.\d+(\.\d+)?$", description="Oldest ONNX Runtime that may load it.")


class ModelSpec(Contract):
    """All that a detector needs to run `model.onnx`: from a picture's pixels to boxes in that picture."""

    class_names: tuple[str, ...] = Field(min_length=1)
    input: InputSpec
    letterbox: LetterboxRule
    output: OutputSpec
    nms: NmsSettings
    runtime: RuntimeSpec

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        if len(set(self.class_names)) != len(self.class_names):
            raise ValueError("class_names: a name stands twice")
        return self


class Provenance(Contract):
    """Where the bundle comes from."""

    dataset_name: str
    dataset_revision: str = Field(description="Git commit of the dataset repository.")
    dataset_hash: str = Field(description="DVC hash of the dataset directory.")
    code_commit: str
    code_dirty: bool
    mlflow_run_id: str
    seed: int
    versions: dict[str, str] = Field(description="Library versions at training.")
    teacher_sha256: Sha256 | None = Field(
        default=None,
        exclude_if=lambda digest: digest is None,
        description="Of the weights that the model was distilled from; null: none.",
    )


CalibrationMethod = Literal["minmax", "percentile"]
"""From what the range of a tensor is taken: its extremes over all pictures, or all but the outermost values."""


class CalibrationPicture(Contract):
    """One training picture that ranges were taken from."""

    picture: BundlePath = Field(description="Path in the working copy of the dataset.")
    sha256: Sha256


class Int8ClassResult(Contract):
    """One class on the validation split, FP32 first; null where the class has no true box there."""

    name: str
    instances: int = Field(ge=0, description="True boxes.")
    ap50: tuple[float | None, float | None]
    ap50_95: tuple[float | None, float | None]
    found: tuple[int, int] = Field(description="True boxes that are found at the operating point.")


class Quantisation(Contract):
    """How the quantised model was made and why it is in the bundle, or why it is not."""

    shipped: bool
    reason: str = Field(min_length=1)
    method: CalibrationMethod
    calibration: tuple[CalibrationPicture, ...]
    head_nodes: int = Field(ge=0, description="Operators of the head, which stay in float.")
    quantised_nodes: int = Field(ge=0, description="Operators that were quantised in the last try.")
    further_float_nodes: tuple[str, ...] = Field(description="Operators that the search left in float beside the head.")
    tries: int = Field(ge=0, description="Quantised models that were measured.")
    classes: tuple[Int8ClassResult, ...] = Field(description="Of the last try, on the validation split.")


class BuildWish(Contract):
    """An engine that a host is asked to build from the bundle; engines are never built where the model is trained."""

    provider: Literal["openvino", "tensorrt"]
    precision: Precision


class BundleManifest(Contract):
    """bundle.json."""

    schema_version: Literal[1]
    name: Name = Field(description="Registry name of the model.")
    version: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,62}$", description="Label for people; made at sealing.")
    created_at: datetime
    model: ModelSpec
    verdict: VerdictRule
    tolerances: dict[Precision, Tolerance] = Field(description="For golden and probe checks, per precision.")
    provenance: Provenance
    files: dict[BundlePath, FileEntry]
    # Left out of the JSON where they are not set: bundles sealed before these fields keep their digest.
    probe_set: Sha256 | None = Field(
        default=None,
        exclude_if=lambda digest: digest is None,
        description="Digest of the probe set that judges other engines than FP32 ONNX Runtime.",
    )
    probe_limits: dict[Precision, ProbeLimit] = Field(
        default_factory=dict,
        exclude_if=lambda limits: not limits,
        description="For probe checks, per precision; one without a limit is not served.",
    )
    quantisation: Quantisation | None = Field(
        default=None,
        exclude_if=lambda made: made is None,
        description="Of model.int8.onnx; null when none was wished for.",
    )
    build_wishes: tuple[BuildWish, ...] = Field(default=(), exclude_if=lambda wishes: not wishes)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        found = []
        classes, thresholds = len(self.model.class_names), len(self.verdict.thresholds)
        if thresholds != classes:
            found.append(f"verdict.thresholds: expected {classes}, one per class, got {thresholds}")
        found += [f"files: {name} is not listed" for name in (MODEL_FILE, GOLDEN_FILE) if name not in self.files]
        if "fp32" not in self.tolerances:
            found.append("tolerances: fp32 is missing")
        if self.quantisation is not None and self.quantisation.shipped != (INT8_MODEL_FILE in self.files):
            found.append(f"quantisation.shipped: {self.quantisation.shipped}, against files: {INT8_MODEL_FILE}")
        if found:
            raise ValueError("; ".join(found))
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of this manifest."""
        return sha256_of(canonical_json(self.model_dump(mode="json")))


class GoldenPicture(Contract):
    """One picture of `golden/` and what the bundle must find in it."""

    file: BundlePath
    verdict: Verdict
    detections: tuple[Detection, ...]


class GoldenSet(Contract):
    """golden/golden.json. The recorded boxes are those over `score_floor`."""

    score_floor: Fraction
    pictures: tuple[GoldenPicture, ...] = Field(min_length=1)


class Attestation(Contract):
    """A statement about a sealed bundle, kept in `attestations/<kind>.json`."""

    kind: Name
    digest: Sha256
    made_at: datetime
    statement: dict[str, object]
