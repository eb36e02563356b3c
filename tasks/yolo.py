"""Ultralytics: the only module that knows it, and torch.

Everything that it would fetch, install or report over the network is switched off. What it does then is what
`yolo train` does with the same arguments.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from data_contracts.errors import JobError, OutsideSystemError, Problem
from tasks.model_files import find_model, missing_model

OnEpoch = Callable[[int, int, dict[str, float], float], None]
"""Called after each epoch with: epoch (from 1), epochs planned, metrics by name, seconds that the epoch took."""

Layout = Literal["raw", "end_to_end"]

SWITCHED_OFF = ("sync", "clearml", "comet", "dvc", "mlflow", "raytune", "tensorboard", "wandb", "vscode_msg")
FONTS = ("Arial.ttf", "Arial.Unicode.ttf")


class TrainingError(OutsideSystemError):
    """Ultralytics could not train with what it was given."""


@dataclass(frozen=True)
class OnnxFacts:
    """What an exported file says about itself."""

    class_names: tuple[str, ...]
    layout: Layout


def configure_ultralytics(home: Path) -> None:
    """Give Ultralytics a folder of its own below `home` and switch off what reaches for the network.

    The user's own settings file is neither read nor written. Must come before the first import of Ultralytics in this
    process; a second call is harmless.
    """
    loaded = sys.modules.get("ultralytics.utils")
    if loaded is None:
        folder = home.absolute() / "ultralytics"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.update(YOLO_CONFIG_DIR=str(folder), YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false")
        os.environ.setdefault("MPLCONFIGDIR", str(folder / "matplotlib"))
        logging.getLogger("ultralytics").setLevel(logging.WARNING)
    elif os.environ.get("YOLO_OFFLINE") != "true":
        raise RuntimeError("ultralytics was imported before configure_ultralytics(): its downloads are still on")
    from ultralytics import utils

    settings_home = utils.USER_CONFIG_DIR
    utils.LOGGER.setLevel(logging.WARNING)
    folders = {
        name: str(settings_home / name.removesuffix("_dir")) for name in ("datasets_dir", "weights_dir", "runs_dir")
    }
    wished = {**dict.fromkeys(SWITCHED_OFF, False), "openvino_msg": False, **folders}
    if any(utils.SETTINGS[name] != value for name, value in wished.items()):
        utils.SETTINGS.update(wished)
    _provide_fonts(settings_home)


def _provide_fonts(folder: Path) -> None:
    """Plots ask for two fonts by name and fetch them when missing: the font that matplotlib brings stands in."""
    missing = [name for name in FONTS if not (folder / name).exists()]
    if missing:
        import matplotlib as mpl

        for name in missing:
            shutil.copyfile(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", folder / name)


def resolve_model(model: str, weights_home: Path, *, allow_download: bool) -> Path:
    """The file to train from; its name carries the scale letter.

    Raises JobError when it is not here, or cannot be fetched although it may.
    """
    found = find_model(model, weights_home)
    if found is not None:
        return found.absolute()
    if allow_download and Path(model).suffix == ".pt":
        return _fetch_weights(Path(model).name, weights_home)
    raise JobError(missing_model(model, weights_home))


def _fetch_weights(name: str, weights_home: Path) -> Path:
    from ultralytics.utils.downloads import attempt_download_asset

    weights_home.mkdir(parents=True, exist_ok=True)
    target = weights_home / name
    try:
        attempt_download_asset(target)
        reason = "no such file among the published weights"
    except (OSError, RuntimeError) as error:  # ConnectionError and requests' errors are OSErrors
        reason = str(error)
    if not target.is_file():
        raise JobError(
            Problem(
                f"train.model {name!r}", "weights that can be fetched", reason, f"Put the file into {weights_home}."
            )
        )
    return target


def train_yolo(
    model: Path,
    data_yaml: Path,
    run_dir: Path,
    arguments: Mapping[str, object],
    threads: int,
    on_epoch: OnEpoch,
    *,
    trainer: Callable[..., Any] | None = None,
    callbacks: Mapping[str, Callable[[Any], None]] | None = None,
) -> Path:
    """Train and return the best weights; plots and tables are left in `run_dir`.

    `arguments` are those of `yolo train`; `threads` on a CPU, 0 leaves them to Ultralytics; `trainer` makes another
    trainer than Ultralytics' own, `callbacks` are called by event after ours. Raises TrainingError with Ultralytics'
    words.
    """
    from ultralytics import YOLO

    yolo = YOLO(str(model), task="detect")
    for event, callback in (*_epoch_callbacks(on_epoch).items(), *(callbacks or {}).items()):
        yolo.add_callback(event, callback)
    use_threads(yolo, threads)
    place = {"data": str(data_yaml), "project": str(run_dir.parent), "name": run_dir.name, "exist_ok": True}
    with _no_precision_check_download():
        try:
            yolo.train(trainer=trainer, **place, **dict(arguments))
        except (RuntimeError, ValueError, FileNotFoundError, SyntaxError) as error:
            raise TrainingError(
                Problem("training", "a finished training", f"{type(error).__name__}: {error}", "See the log above.")
            ) from error
    best = run_dir / "weights" / "best.pt"
    if not best.is_file():
        raise TrainingError(Problem("training", str(best), "no such file", "See the log above."))
    return best


def use_threads(model: Any, threads: int) -> None:
    """Have `model` train on this many CPU threads; 0 leaves Ultralytics' choice, all cores but one.

    Ultralytics sets its choice when a training selects its device, so ours must come after that.
    """
    import torch

    if threads:
        model.add_callback("on_train_start", lambda _: torch.set_num_threads(threads))


def _epoch_callbacks(on_epoch: OnEpoch) -> dict[str, Callable[[Any], None]]:
    """Callbacks that report each epoch once: the validation of the best weights at the end raises the event again."""
    started: dict[int, float] = {}

    def start(trainer: Any) -> None:
        started[trainer.epoch] = time.monotonic()

    def finish(trainer: Any) -> None:
        begun = started.pop(trainer.epoch, None)
        if begun is not None:
            on_epoch(trainer.epoch + 1, trainer.epochs, epoch_metrics(trainer), time.monotonic() - begun)

    return {"on_train_epoch_start": start, "on_fit_epoch_end": finish}


def epoch_metrics(trainer: Any) -> dict[str, float]:
    """Losses, validation and learning rates of the epoch that a trainer has just done, by Ultralytics' names."""
    values = {**trainer.label_loss_items(trainer.tloss, prefix="train"), **trainer.metrics, **trainer.lr}
    return {name: float(value) for name, value in values.items()}


@contextmanager
def _no_precision_check_download() -> Iterator[None]:
    """On a GPU Ultralytics fetches a model of its own to try mixed precision out: take it as working instead."""
    from ultralytics.engine import trainer

    check = trainer.check_amp
    trainer.check_amp = lambda model: next(model.parameters()).device.type not in ("cpu", "mps")
    try:
        yield
    finally:
        trainer.check_amp = check


def export_onnx(
    weights: Path, *, image_size: int, opset: int, layout: Layout, max_detections: int, target: Path
) -> OnnxFacts:
    """Write `weights` as ONNX to `target`: float32; batch, height and width are left free.

    Raises JobError when the model has no head of that layout.
    """
    from ultralytics import YOLO

    written = YOLO(str(weights), task="detect").export(
        format="onnx",
        imgsz=image_size,
        opset=opset,
        dynamic=True,
        simplify=False,
        nms=_nms_argument(layout),
        max_det=max_detections,
        device="cpu",
        verbose=False,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(written, target)
    facts = onnx_facts(target)
    if facts.layout != layout:
        raise JobError(
            Problem("export.layout", f"a model with a head for {layout}", facts.layout, f"Set it to {facts.layout}.")
        )
    return facts


def _nms_argument(layout: Layout) -> bool | None:
    """Ultralytics' `nms`: False asks for the head that needs no suppression, None for the plain one."""
    return False if layout == "end_to_end" else None


def onnx_facts(model_file: Path) -> OnnxFacts:
    """Read class names and output layout from the metadata that the exporter wrote, never from the model's family."""
    import ast

    import onnx

    metadata = {item.key: item.value for item in onnx.load(model_file, load_external_data=False).metadata_props}
    names = ast.literal_eval(metadata["names"])
    layout: Layout = "end_to_end" if ast.literal_eval(metadata["end2end"]) else "raw"
    return OnnxFacts(tuple(names[index] for index in sorted(names)), layout)


def forward(
    weights: Path, batch: npt.NDArray[np.float32], *, layout: Layout, max_detections: int
) -> npt.NDArray[np.float32]:
    """Torch's answer of the trained model to a tensor (n, 3, height, width), on the CPU, in float32.

    Final boxes come best score first; no more than `max_detections` of them are given, as in an exported model.
    """
    import torch
    from ultralytics.nn.autobackend import AutoBackend

    backend = AutoBackend(str(weights), device=torch.device("cpu"), fuse=True, end2end=layout == "end_to_end")
    backend.eval()
    with torch.inference_mode():
        answer = backend(torch.from_numpy(batch))
    first = answer[0] if isinstance(answer, (list, tuple)) else answer
    result: npt.NDArray[np.float32] = first.numpy()
    return result[:, :max_detections] if layout == "end_to_end" else result


def reference_detections(
    weights: Path,
    images_rgb: Sequence[npt.NDArray[np.uint8]],
    *,
    image_size: int,
    score_floor: float,
    iou: float,
    max_detections: int,
    layout: Layout,
    rectangular: bool = False,
) -> list[Detections]:
    """What Ultralytics' own `predict` finds; `rectangular` pads to a rectangle, which the exported model never sees."""
    from ultralytics import YOLO

    yolo = YOLO(str(weights), task="detect")
    found = []
    for image in images_rgb:
        bgr = np.ascontiguousarray(image[:, :, ::-1])
        (result,) = yolo.predict(
            bgr,
            imgsz=image_size,
            conf=score_floor,
            iou=iou,
            max_det=max_detections,
            rect=rectangular,
            nms=_nms_argument(layout),
            device="cpu",
            verbose=False,
        )
        boxes = result.boxes
        found.append(
            Detections(
                boxes.xyxy.numpy().astype(np.float32),
                boxes.conf.numpy().astype(np.float32),
                boxes.cls.numpy().astype(np.int64),
            )
        )
    return found


def weights_class_names(weights: Path) -> tuple[str, ...]:
    """Class names of trained weights, in id order."""
    from ultralytics import YOLO

    names = YOLO(str(weights), task="detect").names
    return tuple(names[index] for index in sorted(names))
