"""The model that a GPU is measured with."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from benchmarks.pictures import make_picture
from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from serving.bundle import open_bundle
from serving.preprocess import to_tensor

INPUT_PX = 640
CALIBRATION_PICTURES = 8


def model_files(bundle: Path | None, bench_folder: Path, target: Path) -> tuple[Path, tuple[str, ...]]:
    """A bundle's folder, with a quantised file where one could be had; and what a reader must know.

    Without a bundle: YOLOv8n with made-up weights, which needs torch the first time.
    """
    if bundle is None:
        from benchmarks.sealed_model import sealed_model

        bundle = sealed_model(INPUT_PX, bench_folder).bundle
    if (bundle / INT8_MODEL_FILE).is_file():
        return bundle, ()
    if find_spec("onnx") is None:
        return bundle, (f"int8: no {INT8_MODEL_FILE} in the bundle, and no onnx package to make one",)
    return with_symmetric_int8(bundle, target), ("int8: the file was made here, from made-up pictures",)


def with_symmetric_int8(bundle: Path, folder: Path) -> Path:
    """A copy of the bundle's folder with a quantised model beside it, in the form that TensorRT takes."""
    from benchmarks.quantised import quantise

    spec = open_bundle(bundle).manifest.model
    shutil.copytree(bundle, folder)
    batches = [to_tensor(make_picture(seed, spec.input.wh[0]), spec)[0][None] for seed in range(CALIBRATION_PICTURES)]
    quantise(folder / MODEL_FILE, folder / INT8_MODEL_FILE, batches, spec.input.tensor, symmetric=True)
    return folder
