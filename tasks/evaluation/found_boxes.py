"""The boxes that a measurement found, kept beside its result: what pictures for people are drawn from later."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from data_contracts.detections import Detections
from data_contracts.errors import DatasetError, Problem

BOXES_FILE = "evaluation-boxes.npz"


def save_boxes(found: Sequence[Detections], path: Path) -> None:
    """Write the boxes of all pictures, in their order: `counts` (pictures,), and the fields of all boxes in a row."""
    nothing = Detections.empty()
    draft = path.with_name(f"draft-{path.name}")
    np.savez_compressed(
        draft,
        counts=np.array([len(boxes) for boxes in found], np.int64),
        boxes_xyxy_px=np.concatenate([nothing.boxes_xyxy_px, *(boxes.boxes_xyxy_px for boxes in found)]),
        scores=np.concatenate([nothing.scores, *(boxes.scores for boxes in found)]),
        class_ids=np.concatenate([nothing.class_ids, *(boxes.class_ids for boxes in found)]),
    )
    draft.replace(path)


def load_boxes(path: Path) -> tuple[Detections, ...]:
    """Raises DatasetError for a file that is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            ends = np.cumsum(stored["counts"])[:-1]
            columns = [np.split(stored[name], ends) for name in ("boxes_xyxy_px", "scores", "class_ids")]
            return tuple(Detections(*parts) for parts in zip(*columns, strict=True)) if len(stored["counts"]) else ()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        got = f"{type(error).__name__}: {error}"
        raise DatasetError(Problem(str(path), "the boxes found", got, "Evaluate the bundle again.")) from error
