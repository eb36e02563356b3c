"""The models that engines are measured with: YOLOv8n with made-up weights for speed, a trained one for accuracy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pictures import make_picture
from benchmarks.quantised import quantise
from benchmarks.sealed_model import local_provenance, sealed_model
from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError, Problem
from data_contracts.probe import PROBES_DIR
from serving.bundle import open_bundle
from serving.images import Image
from serving.preprocess import to_tensor

if TYPE_CHECKING:
    from tasks.job import TrainingJob

CALIBRATION_PICTURES = 64
PLATES_SEED = 7
PLATES = (168, 40, 200)
QUICK_PLATES = (16, 8, 16)
QUICK_EPOCHS = 1


@dataclass(frozen=True)
class Subject:
    """A sealed bundle, and a folder with its model file and a quantised copy. `probe` is its probe set, if there."""

    name: str
    bundle: Path
    files: Path
    probe: Path | None = None


@dataclass(frozen=True)
class Labelled:
    """A working copy of labelled pictures, of which the test split counts."""

    folder: Path
    class_names: tuple[str, ...]


def made_up(input_px: int, bench_folder: Path, folder: Path) -> Subject:
    """YOLOv8n at that input size. Its weights find nothing of use: only its speed says something."""
    sealed = sealed_model(input_px, bench_folder)
    pictures = [make_picture(seed, input_px) for seed in range(4)]
    files = with_int8(sealed.bundle, pictures, folder / "made-up")
    return Subject(f"yolov8n {input_px} px, made-up weights", sealed.bundle, files, sealed.probe)


def given(bundle: Path, data: Path, folder: Path) -> tuple[Subject, Labelled]:
    """The user's own bundle, and dataset in YOLO's layout; splits that it lacks are drawn as `retrain` would."""
    from tasks.working_copy import split_and_copy

    copy = split_and_copy(data.absolute(), job().splits, folder / "working")
    labelled = Labelled(copy.folder, copy.class_names)
    digest = open_bundle(bundle).manifest.probe_set
    probe = bundle.absolute().parent.parent / PROBES_DIR / digest if digest else None
    files = with_int8(bundle, _calibration(labelled), folder / "given")
    return Subject(f"{bundle.name[:12]}, trained", bundle, files, probe if probe and probe.is_dir() else None), labelled


def trained_plates(bench_folder: Path, folder: Path, quick: bool) -> tuple[Subject, Labelled]:
    """The sample data's detector, trained as `retrain` would with params.yaml; `quick`: too short to find anything."""
    from deployments.demo.plates import PlateCounts, write_plates
    from tasks.working_copy import split_and_copy

    train, val, test = QUICK_PLATES if quick else PLATES
    write_plates(folder / "plates", PLATES_SEED, PlateCounts(train=train, val=val, test=test, held_out=0))
    copy = split_and_copy(folder / "plates", job().splits, folder / "working")
    labelled = Labelled(copy.folder, copy.class_names)
    bundle, probe = _train_and_seal(copy.data_yaml, labelled, bench_folder, folder, QUICK_EPOCHS if quick else None)
    files = with_int8(bundle, _calibration(labelled), folder / "trained")
    name = f"plates {open_bundle(bundle).manifest.model.input.wh[0]} px, {'hardly ' if quick else ''}trained"
    return Subject(name, bundle, files, probe), labelled


def _train_and_seal(
    data_yaml: Path, labelled: Labelled, home: Path, folder: Path, epochs: int | None
) -> tuple[Path, Path]:
    """Bundle and probe set, by the steps of `retrain` without its tracking."""
    from tasks import yolo
    from tasks.export import export
    from tasks.ground_truth import read_ground_truth
    from tasks.pictures import detect_files, draft_detector
    from tasks.seal import seal
    from tasks.thresholds import collect_scores, verdict_rule
    from tasks.train import train_arguments

    settings = job()
    config = settings.train if epochs is None else settings.train.model_copy(update={"epochs": epochs})
    yolo.configure_ultralytics(home)
    model = yolo.resolve_model(config.model, home / "weights", allow_download=False)
    weights = yolo.train_yolo(
        model, data_yaml, folder / "run", train_arguments(config), config.threads, lambda *_: None
    )
    exported = export(weights, config.imgsz, folder / "exported", settings.export)
    truth = read_ground_truth(labelled.folder, Split.VAL)
    found = detect_files(
        draft_detector(exported.model, exported.spec), [one.picture for one in truth], settings.thresholds.lowest
    )
    scores = collect_scores(found, truth, len(labelled.class_names), settings.thresholds.iou)
    rule = verdict_rule(scores, exported.spec.class_names, settings.thresholds)
    sealed = seal(exported, rule, truth, local_provenance("plates", config.seed), settings.seal, folder / "bundles")
    return sealed.path, sealed.probe


def with_int8(bundle: Path, pictures: Sequence[Image], folder: Path) -> Path:
    """A folder with the bundle's model files; a quantised one is made from `pictures` where it has none."""
    spec = open_bundle(bundle).manifest.model
    folder.mkdir(parents=True)
    shutil.copyfile(bundle / MODEL_FILE, folder / MODEL_FILE)
    if (bundle / INT8_MODEL_FILE).is_file():
        shutil.copyfile(bundle / INT8_MODEL_FILE, folder / INT8_MODEL_FILE)
    else:
        batches = [to_tensor(picture, spec)[0][None] for picture in pictures]
        quantise(folder / MODEL_FILE, folder / INT8_MODEL_FILE, batches, spec.input.tensor, symmetric=False)
    return folder


def _calibration(labelled: Labelled) -> list[Image]:
    """Pictures of the training split, which no measurement looks at."""
    from tasks.ground_truth import read_ground_truth
    from tasks.pictures import read_picture

    truth = read_ground_truth(labelled.folder, Split.TRAIN)
    if not truth:
        raise DatasetError(Problem("training split", "pictures to quantise with", "none", "Add pictures to it."))
    step = max(1, len(truth) // CALIBRATION_PICTURES)
    return [read_picture(one.picture) for one in truth[::step][:CALIBRATION_PICTURES]]


def job() -> TrainingJob:
    """The tunable numbers of params.yaml."""
    from deployments.environment import load_stack_settings
    from deployments.params import load_params

    return load_params(load_stack_settings().project / "params.yaml").job
