"""Sample pictures of a training that runs: what its averaged weights find, beside what is labelled.

Called inside the training process. It changes nothing there: weights, train mode and the state of every random number
generator are afterwards what they were, so a watched training ends with the same weights as one that nobody watches.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import InputSpec, ModelSpec, NmsSettings, OutputSpec, Precision, RuntimeSpec
from data_contracts.labels import boxes_to_pixels
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX
from serving.annotate import encode_image
from serving.atomic import write_atomically
from serving.detector import Detector
from tasks.pictures import read_picture
from tasks.watching.sheet import Sample, draw_sheet

SHOWN_SCORE = 0.25
"""Boxes from this score on are drawn: Ultralytics' own choice for predictions."""
MAX_CANDIDATES = 3000
GOOD_SHARE = 1 / 3
"""Share of the pictures that are free of defects, where there are that many."""
NO_RUNTIME = RuntimeSpec(onnx_opset=17, onnx_ir=8, onnxruntime_min="1.12")
"""A detector's description names a runtime; torch needs none."""

logger = logging.getLogger(__name__)


def draw_samples(trainer: Any, folder: Path, count: int) -> Path | None:
    """Write what the model of `trainer`, Ultralytics' own, finds after this epoch; None where that fails.

    The pictures are `count` of the validation split, the same ones each time. Why it failed is in the log.
    """
    target = folder / f"epoch-{trainer.epoch + 1:04d}.jpg"
    try:
        with _undisturbed(trainer.ema.ema):
            sheet = _drawn(trainer, count)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(target, encode_image(sheet, "jpeg"), durable=False)
    except Exception as error:  # noqa: BLE001  Whatever a picture or a device does, the training goes on.
        logger.warning("no sample pictures after epoch %d: %s: %s", trainer.epoch + 1, type(error).__name__, error)
        return None
    return target


def choose(box_counts: Sequence[int], count: int) -> list[int]:
    """Positions of the pictures to show, by the number of boxes that each has: defects first, evenly spread.

    >>> choose([0, 2, 1, 0, 0, 3, 1], 3)
    [1, 5, 0]
    """
    defects = [at for at, boxes in enumerate(box_counts) if boxes]
    good = [at for at, boxes in enumerate(box_counts) if not boxes]
    shown_good = min(len(good), max(round(count * GOOD_SHARE), count - len(defects)))
    return _spread(defects, count - shown_good) + _spread(good, shown_good)


def _spread(positions: Sequence[int], count: int) -> list[int]:
    """`count` of the positions or all, with equal steps between them."""
    taken = min(count, len(positions))
    return [positions[number * len(positions) // taken] for number in range(taken)]


def _drawn(trainer: Any, count: int) -> npt.NDArray[np.uint8]:
    labels = trainer.test_loader.dataset.labels
    chosen = [labels[at] for at in choose([len(label["cls"]) for label in labels], count)]
    images = [read_picture(Path(label["im_file"])) for label in chosen]
    names = trainer.data["names"]
    class_names = tuple(str(names[number]) for number in sorted(names))
    detector = Detector(_spec(trainer, class_names), TorchEngine(trainer.ema.ema))
    found = detector.detect(images, SHOWN_SCORE, batch=1)
    samples = [
        Sample(Path(label["im_file"]).name, image, _true_boxes(label, image), _true_ids(label), boxes)
        for label, image, boxes in zip(chosen, images, found, strict=True)
    ]
    return draw_sheet(samples, class_names)


def _true_boxes(label: Mapping[str, Any], image: npt.NDArray[np.uint8]) -> Sequence[Sequence[float]]:
    fractions = np.asarray(label["bboxes"], np.float64).reshape(-1, 4)
    boxes: list[list[float]] = boxes_to_pixels(fractions, (image.shape[1], image.shape[0])).tolist()
    return boxes


def _true_ids(label: Mapping[str, Any]) -> list[int]:
    return [int(number) for number in np.asarray(label["cls"]).ravel()]


def _spec(trainer: Any, class_names: tuple[str, ...]) -> ModelSpec:
    """The model as serving would be told of it; suppression as the trainer's own validation has it."""
    side = int(trainer.args.imgsz)
    end_to_end = bool(getattr(trainer.ema.ema, "end2end", False))
    return ModelSpec(
        class_names=class_names,
        input=InputSpec(tensor="images", wh=(side, side), colour_order="rgb", dtype="float32", divisor=255),
        letterbox=ULTRALYTICS_LETTERBOX,
        output=OutputSpec(tensor="output0", layout="end_to_end" if end_to_end else "raw"),
        nms=NmsSettings(
            iou=trainer.args.iou, max_candidates=MAX_CANDIDATES, max_detections=min(trainer.args.max_det, 1000)
        ),
        runtime=NO_RUNTIME,
    )


class TorchEngine:
    """A model that is being trained, as an engine of `serving.detector`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.provider, self.degraded, self.threads, self.streams = "torch", "", 1, 1
        self.precision: Precision = "fp32"

    def run(self, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The model's first output."""
        import torch

        with torch.inference_mode():
            answer = self._model(torch.from_numpy(batch).to(next(self._model.parameters()).device))
        first = answer[0] if isinstance(answer, (list, tuple)) else answer
        output: npt.NDArray[np.float32] = first.float().cpu().numpy()
        return output


@contextmanager
def _undisturbed(model: Any) -> Iterator[None]:
    """Evaluation mode inside; afterwards the mode and all random states are as before."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    own, arrays, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cards = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        random.setstate(own)
        np.random.set_state(arrays)
        torch.set_rng_state(tensors)
        if cards:
            torch.cuda.set_rng_state_all(cards)
