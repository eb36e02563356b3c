"""From pixels to the tensor that the model takes. The geometry is `data_contracts.letterbox`'s."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from data_contracts.bundle import ModelSpec
from data_contracts.letterbox import Letterbox, LetterboxRule, fit_letterbox
from serving.images import Image


def letterbox_image(image_rgb: Image, letterbox: Letterbox, rule: LetterboxRule) -> Image:
    """The picture in its place in the input, padding around it: uint8 (input height, input width, 3)."""
    width, height = letterbox.resized_wh
    if (image_rgb.shape[1], image_rgb.shape[0]) != letterbox.resized_wh:
        image_rgb = cv2.resize(image_rgb, letterbox.resized_wh, interpolation=cv2.INTER_LINEAR).astype(
            np.uint8, copy=False
        )
    if letterbox.resized_wh == letterbox.input_wh:
        return image_rgb
    left, top = letterbox.pad_xy_px
    canvas = np.full((letterbox.input_wh[1], letterbox.input_wh[0], 3), rule.pad_value, np.uint8)
    canvas[top : top + height, left : left + width] = image_rgb
    return canvas


def to_tensor(image_rgb: Image, spec: ModelSpec) -> tuple[npt.NDArray[np.float32], Letterbox]:
    """float32 (3, input height, input width), contiguous, and where the picture lies in it.

    Divided, not multiplied by a reciprocal: the trainer divides, and the two differ in the last bit.
    """
    height, width = image_rgb.shape[:2]
    letterbox = fit_letterbox((width, height), spec.input.wh, spec.letterbox)
    fitted = letterbox_image(image_rgb, letterbox, spec.letterbox)
    tensor = np.ascontiguousarray(fitted.transpose(2, 0, 1), dtype=np.float32)
    tensor /= np.float32(spec.input.divisor)
    return tensor, letterbox
