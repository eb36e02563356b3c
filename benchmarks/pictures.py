"""Pictures to measure with: one part after the other in front of the same camera, each with its own texture and spots.

Made from seeds; as heavy for a JPEG decoder as photographs of textured parts.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from serving.images import Image

SCENE = ((4, 45.0), (16, 30.0))
PART = ((64, 20.0), (320, 10.0))
"""Cells per side and amplitude of each layer of noise: shapes that all pictures share; texture and grain of each."""
SPOTS = 12
JPEG_QUALITY = 92


def make_picture(seed: int, side_px: int) -> Image:
    """One square RGB picture."""
    rng = np.random.default_rng(seed + 1)
    picture = 118 + _noise(np.random.default_rng(0), SCENE, side_px) + _noise(rng, PART, side_px)
    for _ in range(SPOTS):
        x, y, size = (int(value) for value in rng.integers(0, side_px, 3))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        cv2.circle(picture, (x, y), size // 20 + 2, colour, thickness=cv2.FILLED)
    clipped: Image = np.clip(picture, 0, 255).astype(np.uint8)
    return clipped


def _noise(rng: np.random.Generator, layers: tuple[tuple[int, float], ...], side_px: int) -> npt.NDArray[np.float32]:
    total = np.zeros((side_px, side_px, 3), np.float32)
    for cells, amplitude in layers:
        noise = rng.normal(0.0, amplitude, (cells, cells, 3)).astype(np.float32)
        total += cv2.resize(noise, (side_px, side_px), interpolation=cv2.INTER_CUBIC)
    return total


def make_jpegs(count: int, side_px: int, first_seed: int = 0) -> tuple[bytes, ...]:
    """`count` different pictures as JPEG files."""
    return tuple(_encode(make_picture(first_seed + index, side_px)) for index in range(count))


def _encode(image_rgb: Image) -> bytes:
    bgr: npt.NDArray[np.uint8] = image_rgb[:, :, ::-1]
    written, data = cv2.imencode(".jpg", np.ascontiguousarray(bgr), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not written:
        raise RuntimeError("OpenCV could not write a JPEG")
    return bytes(data.tobytes())
