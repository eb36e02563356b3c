"""The detector: pictures in, boxes out. The one code path of evaluation, parity, golden checks and serving.

Four verbs: open (set up), prepare (per picture, before the batch), predict (arrays only), encode (per picture, after
the batch). It knows neither BentoML nor HTTP, and it never reads a picture file of a request: see `serving.images`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import ModelSpec
from data_contracts.detections import Detections
from data_contracts.errors import BundleError, EngineError, ImageError, Problem, raise_if_any
from data_contracts.letterbox import Letterbox
from serving.bundle import Bundle
from serving.engines import Engine, EngineOptions, open_engine
from serving.golden import compare, compare_decisions
from serving.images import Image, ImageLimits, read_image
from serving.postprocess import boxes_of
from serving.preprocess import to_tensor

GOLDEN_LIMITS = ImageLimits(max_bytes=2**28, max_pixels=2**28)
"""Golden pictures are verified files of our own, so only absurd sizes are refused."""

Tensor = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prepared:
    """One picture, ready for a batch: float32 (3, input height, input width), and the way back to its pixels."""

    tensor: Tensor
    letterbox: Letterbox


class Detector:
    """A model with all that surrounds it. Safe to use from several threads when its engine is."""

    def __init__(self, spec: ModelSpec, engine: Engine) -> None:
        self.spec = spec
        self.engine = engine

    def prepare(self, image_rgb: Image) -> Prepared:
        """Letterbox one picture, uint8 RGB (height, width, 3)."""
        return Prepared(*to_tensor(image_rgb, self.spec))

    def predict(self, batch: Tensor) -> Tensor:
        """float32 (n, 3, input height, input width) to the model's outputs, (n, ...), one per picture, in order.

        Raises EngineError when the engine answers for another number of pictures: cut to length, a missing answer
        would read as "no defect".
        """
        outputs = self.engine.run(batch)
        if len(outputs) != len(batch):
            raise EngineError(
                Problem("engine", f"{len(batch)} outputs", str(len(outputs)), "Do not serve this engine.")
            )
        return outputs

    def encode(self, output: Tensor, letterbox: Letterbox, score_floor: float) -> Detections:
        """Boxes of one picture in its own pixels, from its part of the outputs."""
        return boxes_of(output, self.spec, letterbox, score_floor)

    def detect(self, images: Sequence[Image], score_floor: float, batch: int = 8) -> list[Detections]:
        """Boxes of each picture, scores of `score_floor` and over, in batches of at most `batch`."""
        found: list[Detections] = []
        for start in range(0, len(images), batch):
            prepared = [self.prepare(image) for image in images[start : start + batch]]
            outputs = self.predict(np.stack([one.tensor for one in prepared]))
            pairs = zip(outputs, prepared, strict=True)
            found += [self.encode(output, one.letterbox, score_floor) for output, one in pairs]
        return found


def open_detector(bundle: Bundle, options: EngineOptions) -> Detector:
    """Load the bundle's model of the wished precision. Raises BundleError or EngineError."""
    spec = bundle.manifest.model
    return Detector(spec, open_engine(bundle.path, spec, options))


def check_golden(detector: Detector, bundle: Bundle) -> None:
    """The detector must find in the golden pictures what was recorded at sealing, one by one and all in one batch.

    In FP32 it must find every box within the tolerance; in other precisions, which have to pass the probe set as well,
    it must decide the same. Raises BundleError with every difference.
    """
    images = _golden_images(bundle)
    problems: list[Problem] = []
    for batch in sorted({1, len(images)}):
        problems += _golden_problems(detector, bundle, images, batch)
    raise_if_any(BundleError, dict.fromkeys(problems))


def _golden_problems(detector: Detector, bundle: Bundle, images: list[Image], batch: int) -> list[Problem]:
    manifest, golden = bundle.manifest, bundle.golden
    tolerance = manifest.tolerances.get(detector.engine.precision)
    if tolerance is None:
        have = ", ".join(manifest.tolerances)
        action = "Use another precision or seal again."
        raise BundleError(Problem("tolerances", f"one for {detector.engine.precision}", have, action))
    found = detector.detect(images, golden.score_floor, batch)
    pairs = list(zip(golden.pictures, found, strict=True))
    if detector.engine.precision == "fp32":
        each = [compare(one, answer, manifest.verdict, tolerance, golden.score_floor) for one, answer in pairs]
    else:
        iou = manifest.model.nms.iou
        each = [compare_decisions(one, answer, manifest.verdict, tolerance, iou) for one, answer in pairs]
    return [problem for problems in each for problem in problems]


def _golden_images(bundle: Bundle) -> list[Image]:
    try:
        return [read_image(bundle.path / picture.file, GOLDEN_LIMITS) for picture in bundle.golden.pictures]
    except ImageError as error:
        raise BundleError(*error.problems) from error
