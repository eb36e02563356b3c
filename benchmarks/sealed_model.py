"""A sealed YOLOv8n bundle with made-up weights, for measurements of speed.

Weights from the architecture file alone find nothing, and suppression would cost nothing. So the normalisation layers
learn their statistics from the sample pictures, which keeps the activations of all layers alive; then the classifier's
last layers are stretched and shifted until a picture in the middle has `CANDIDATES` anchors over the threshold, nearly
all of a few classes, so that suppression joins many of them, as it does around real defects.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pictures import make_picture
from data_contracts.bundle import Provenance, VerdictRule
from data_contracts.probe import PROBES_DIR

if TYPE_CHECKING:
    from tasks.export import ExportedModel
    from tasks.seal import SealConfig

ARCHITECTURE = "yolov8n.yaml"
CLASSES = 80
SEED = 7
CANDIDATES = 60
LIKELY_CLASSES = 3
UNLIKELY = -4.0
"""Shift of the other classes' scores, before the sigmoid."""
THRESHOLD = 0.25
SPREAD = 1.0
"""Standard deviation of the best class score before the sigmoid, over the anchors of the sample pictures."""
SAMPLES = 8
SAMPLE_SEED = 1000
WEIGHTS_FILE = "weights.pt"
BUNDLES = "bundles"


@dataclass(frozen=True)
class SealedModel:
    """A bundle and its probe set in their folders, and the same weights as Ultralytics takes them."""

    bundle: Path
    probe: Path
    weights: Path
    input_px: int

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return self.bundle.name


def sealed_model(input_px: int, bench_folder: Path) -> SealedModel:
    """The bundle for square inputs of `input_px`, made on the first call and kept below `bench_folder`."""
    folder = bench_folder / "models" / f"{input_px}-{_recipe()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
        try:
            _make(input_px, draft, bench_folder)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    (bundle,), (probe,) = (folder / BUNDLES).iterdir(), (folder / PROBES_DIR).iterdir()
    return SealedModel(bundle, probe, folder / WEIGHTS_FILE, input_px)


def _recipe() -> str:
    """What the model depends on: this file, the pictures, the steps that export and seal, and the libraries."""
    import benchmarks.pictures
    import data_contracts.bundle
    import tasks.export
    import tasks.seal

    modules = (benchmarks.pictures, data_contracts.bundle, tasks.export, tasks.seal)
    sources = [Path(__file__), *(Path(str(module.__file__)) for module in modules)]
    versions = [importlib.metadata.version(name) for name in ("torch", "ultralytics", "onnx")]
    return hashlib.sha256("\n".join([*(path.read_text() for path in sources), *versions]).encode()).hexdigest()


def _make(input_px: int, folder: Path, home: Path) -> None:
    """Weights and bundle of one input size, in an empty folder."""
    from deployments.environment import load_stack_settings
    from deployments.params import load_params
    from tasks import export, yolo

    yolo.configure_ultralytics(home)
    job = load_params(load_stack_settings().project / "params.yaml").job
    _make_weights(folder / WEIGHTS_FILE, input_px)
    exported = export.export(folder / WEIGHTS_FILE, input_px, folder / "exported", job.export)
    _seal(exported, job.seal.model_copy(update={"name": f"yolov8n-{input_px}"}), folder)
    shutil.rmtree(folder / "exported")


def _make_weights(target: Path, input_px: int) -> None:
    import torch
    from ultralytics import YOLO

    torch.manual_seed(SEED)
    model = YOLO(ARCHITECTURE, task="detect")
    network: Any = model.model
    side_px = 640
    pictures = [make_picture(SAMPLE_SEED + index, side_px) for index in range(SAMPLES)]
    batch = torch.from_numpy(np.stack([_fit(one, input_px) for one in pictures]))
    with torch.no_grad():
        _learn_statistics(network, batch)
        _stretch_scores(network, batch)
    model.save(str(target))


def _fit(picture: Any, input_px: int) -> Any:
    import cv2

    resized = cv2.resize(picture, (input_px, input_px), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(resized.transpose(2, 0, 1), np.float32) / np.float32(255)


def _learn_statistics(network: Any, batch: Any) -> None:
    import torch

    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    network.train()
    network(batch)
    network.eval()


def _stretch_scores(network: Any, batch: Any) -> None:
    """Make the last layers of the classifier spread by SPREAD and let CANDIDATES anchors of a picture pass."""
    lasts = [branch[-1] for branch in network.model[-1].cv3]
    for last in lasts:
        last.bias.zero_()
    factor = SPREAD / float(_best_logits(network, batch).std())
    for last in lasts:
        last.weight *= factor
        last.bias[LIKELY_CLASSES:] += UNLIKELY
    ranked = _best_logits(network, batch).sort(dim=1, descending=True).values
    passing = float(ranked[:, CANDIDATES - 1].median())
    for last in lasts:
        last.bias += float(np.log(THRESHOLD / (1 - THRESHOLD))) - passing


def _best_logits(network: Any, batch: Any) -> Any:
    """Best class score of each anchor, before the sigmoid: (pictures, anchors)."""
    import torch

    scores = network(batch)[0][:, 4:].double()
    return torch.logit(scores, eps=1e-12).amax(dim=1)


def local_provenance(dataset_name: str, seed: int) -> Provenance:
    """Where a bundle comes from that was made here and tracked nowhere."""
    from tasks.provenance import code_revision, library_versions

    code = code_revision()
    return Provenance(
        dataset_name=dataset_name,
        dataset_revision="0" * 40,
        dataset_hash="0" * 32 + ".dir",
        code_commit=code.commit,
        code_dirty=code.dirty,
        mlflow_run_id="none",
        seed=seed,
        versions=library_versions(),
    )


def _seal(exported: ExportedModel, config: SealConfig, folder: Path) -> None:
    import cv2

    from tasks.ground_truth import GroundTruth
    from tasks.seal import seal

    truth = []
    (folder / "exported" / "golden").mkdir()
    for index in range(4):
        file = folder / "exported" / "golden" / f"{index}.png"
        cv2.imwrite(str(file), np.ascontiguousarray(make_picture(SAMPLE_SEED + index, 640)[:, :, ::-1]))
        truth.append(GroundTruth(file, (640, 640), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)))
    rule = VerdictRule(
        kind="any_box_over_threshold", thresholds=(THRESHOLD,) * CLASSES, chosen_on="nothing: made-up weights"
    )
    seal(exported, rule, truth, local_provenance("none", SEED), config, folder / BUNDLES)
