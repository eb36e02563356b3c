"""Where a picture lands in the square that the model sees, and how boxes come back.

The one letterbox of the project: training-side evaluation, calibration, parity and serving all use it. The rule's
numbers are those of Ultralytics' `LetterBox(auto=False)`; a bundle carries them, so nothing is guessed at serving time.

Worked example: a 640x200 picture in a 160x160 input has scale 0.25, becomes 160x50, and (160 - 50) / 2 = 55 rows of
padding go above and below. With 61 rows left over instead of 60 the half is 30.5: `round(30.5 - 0.1)` puts 30 above
and `round(30.5 + 0.1)` 31 below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from data_contracts.base import Contract, WidthHeight


class LetterboxRule(Contract):
    """How a picture is fitted into the input, in full."""

    pad_value: int = Field(ge=0, le=255, description="Grey level of the padding, 8-bit.")
    interpolation: Literal["bilinear"] = Field(description="Resampling of the picture; OpenCV's INTER_LINEAR.")
    scale_up: bool = Field(description="Whether a picture smaller than the input is enlarged.")
    placement: Literal["centre"] = Field(description="Where the picture sits in the input.")
    odd_padding_bias: float = Field(
        ge=0.0,
        lt=0.5,
        description="Subtracted from half the padding before rounding: an odd pixel goes below and right.",
    )


ULTRALYTICS_LETTERBOX = LetterboxRule(
    pad_value=114, interpolation="bilinear", scale_up=True, placement="centre", odd_padding_bias=0.1
)


@dataclass(frozen=True)
class Letterbox:
    """One picture's place in the input. `pad_xy_px` is (left, top)."""

    image_wh: tuple[int, int]
    input_wh: tuple[int, int]
    resized_wh: tuple[int, int]
    pad_xy_px: tuple[int, int]
    scale: float


def fit_letterbox(image_wh: WidthHeight, input_wh: WidthHeight, rule: LetterboxRule) -> Letterbox:
    """Place a picture of `image_wh` pixels in an input of `input_wh` pixels.

    >>> fit_letterbox((640, 200), (160, 160), ULTRALYTICS_LETTERBOX).pad_xy_px
    (0, 55)
    """
    scale = min(input_wh[0] / image_wh[0], input_wh[1] / image_wh[1])
    if not rule.scale_up:
        scale = min(scale, 1.0)
    resized_wh = (max(1, round(image_wh[0] * scale)), max(1, round(image_wh[1] * scale)))
    left, top = (
        max(0, round((outer - inner) / 2 - rule.odd_padding_bias))
        for outer, inner in zip(input_wh, resized_wh, strict=True)
    )
    return Letterbox(image_wh, input_wh, resized_wh, (left, top), scale)


def boxes_to_image(boxes_xyxy_px: npt.NDArray[np.float32], letterbox: Letterbox) -> npt.NDArray[np.float32]:
    """Boxes in input pixels, shape (n, 4), to pixels of the displayed picture, clipped to its edges.

    Each axis is divided by what really happened to it, resized over original, as in Ultralytics' `scale_boxes`. The
    wished `scale` ignores that the resized sides are whole pixels and would be off by up to 0.5 / scale pixels at the
    far edge: a 2448x100 picture becomes 160x7 in a 160x160 input, not 160x6.54, and its middle, input row 79.5, comes
    back as row 50 and not as 53.6.
    """
    pad = np.array([*letterbox.pad_xy_px, *letterbox.pad_xy_px], dtype=np.float32)
    limit = np.array([*letterbox.image_wh, *letterbox.image_wh], dtype=np.float32)
    gain_xy = [inner / outer for inner, outer in zip(letterbox.resized_wh, letterbox.image_wh, strict=True)]
    moved = (boxes_xyxy_px.astype(np.float32, copy=False) - pad) / np.array([*gain_xy, *gain_xy], dtype=np.float32)
    return np.clip(moved, np.float32(0.0), limit)
