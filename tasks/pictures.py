"""Run a sealed bundle, or its model before sealing, over picture files: as serving does, in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from data_contracts.bundle import ModelSpec
from data_contracts.detections import Detections
from serving.bundle import Bundle
from serving.detector import Detector, open_detector
from serving.engines import EngineOptions, open_engine, threads_from_quota
from serving.images import Image, ImageLimits, read_image

DATASET_LIMITS = ImageLimits(max_bytes=2**30, max_pixels=2**28)
"""Pictures of a pinned dataset were checked before: only absurd sizes are refused."""
BATCH = 8


def cpu_options() -> EngineOptions:
    """The engine that thresholds, evaluation and parity use: FP32 on the CPU, all cores that this process may have."""
    return EngineOptions(provider="cpu", allow_fallback=False, threads=threads_from_quota(1))


def draft_detector(model_file: Path, spec: ModelSpec) -> Detector:
    """A detector for an exported model that is not sealed yet."""
    return Detector(spec, open_engine(model_file, spec, cpu_options()))


def bundle_detector(bundle: Bundle) -> Detector:
    """A detector for a sealed bundle."""
    return open_detector(bundle, cpu_options())


def read_picture(path: Path) -> Image:
    """RGB pixels as the service sees them, uint8 (height, width, 3)."""
    return read_image(path, DATASET_LIMITS)


def detect_files(detector: Detector, files: Sequence[Path], score_floor: float) -> list[Detections]:
    """What the detector finds in each file, in order; no more than a batch of pictures is in memory."""
    return [found for batch in _batches(files) for found in detector.detect(batch, score_floor, BATCH)]


def _batches(files: Sequence[Path]) -> Iterator[list[Image]]:
    for start in range(0, len(files), BATCH):
        yield [read_picture(file) for file in files[start : start + BATCH]]
