"""A sheet of pictures: what is labelled in thin white frames, what is found in the colours of its classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from data_contracts.detections import Detections, Verdict
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX, fit_letterbox
from serving.annotate import draw_detections
from serving.images import Image
from serving.lettering import can_draw, draw_text, fit_text, line_height
from serving.preprocess import letterbox_image

TILE_PX, GAP_PX, FONT_PX, MIN_FONT_PX = 320, 8, 15, 11
"""A tile has the smallest side at which letters are drawn in full size; two fit into the width of Prefect's page."""
COLUMNS = 2
WHITE, BLACK, INK = (255, 255, 255), (0, 0, 0), (31, 41, 51)


@dataclass(frozen=True, eq=False)
class Sample:
    """One picture. `true_xyxy_px` (n, 4) are the labelled boxes, in its pixels as those of `found` are.

    `true_ids` are their class ids.
    """

    name: str
    image_rgb: Image
    true_xyxy_px: Sequence[Sequence[float]]
    true_ids: Sequence[int]
    found: Detections


def draw_sheet(samples: Sequence[Sample], class_names: tuple[str, ...]) -> Image:
    """All samples, two a row, each under its name."""
    tiles = [_tile(sample, class_names) for sample in samples]
    height = max(len(tile) for tile in tiles) + GAP_PX
    width = TILE_PX + GAP_PX
    rows = -(-len(tiles) // COLUMNS)
    sheet = np.full((rows * height - GAP_PX, min(COLUMNS, len(tiles)) * width - GAP_PX, 3), 255, np.uint8)
    for number, tile in enumerate(tiles):
        top, left = number // COLUMNS * height, number % COLUMNS * width
        sheet[top : top + len(tile), left : left + TILE_PX] = tile
    return sheet


def caption(sample: Sample, class_names: tuple[str, ...]) -> str:
    """The name of the picture and how often each class is labelled; what the font lacks is left out."""
    name = sample.name if can_draw(sample.name) else "a picture"
    counts = Counter(
        class_names[number] if can_draw(class_names[number]) else f"class {number}" for number in sample.true_ids
    )
    labels = ", ".join(f"{count} {label}" for label, count in sorted(counts.items()))
    return f"{name}: {labels or 'no label'}"


def _tile(sample: Sample, class_names: tuple[str, ...]) -> Image:
    wh = sample.image_rgb.shape[1], sample.image_rgb.shape[0]
    place = fit_letterbox(wh, (TILE_PX, TILE_PX), ULTRALYTICS_LETTERBOX)
    canvas = letterbox_image(sample.image_rgb, place, ULTRALYTICS_LETTERBOX).copy()
    shift = np.array([*place.pad_xy_px, *place.pad_xy_px], np.float32)
    for box in np.asarray(sample.true_xyxy_px, np.float32).reshape(-1, 4) * np.float32(place.scale) + shift:
        left, top, right, bottom = (round(float(side)) for side in box)
        cv2.rectangle(canvas, (left - 1, top - 1), (right + 1, bottom + 1), BLACK, 1)
        cv2.rectangle(canvas, (left, top), (right, bottom), WHITE, 1)
    corners = np.clip(sample.found.boxes_xyxy_px * np.float32(place.scale) + shift, 0, TILE_PX)
    found = Detections(corners, sample.found.scores, sample.found.class_ids)
    verdict = Verdict.NG if len(found) else Verdict.OK
    return np.vstack(
        [_strip(caption(sample, class_names)), draw_detections(canvas, found.records(class_names), verdict)]
    )


def _strip(text: str) -> Image:
    strip = np.full((line_height(FONT_PX) + GAP_PX, TILE_PX, 3), 255, np.uint8)
    fitted, size_px = fit_text(text, FONT_PX, MIN_FONT_PX, TILE_PX - GAP_PX)
    draw_text(strip, (GAP_PX // 2, GAP_PX // 2), fitted, size_px, INK)
    return strip
