"""Raw frames: the samples of a camera that does not compress, named by a line such as `shape=480,640,3; order=bgr`.

`shape` is height, width and channels, as numpy prints it: (480, 640, 3), or (480, 640) for grey. `order` says what the
channels are. It is never guessed: red and blue swapped look like a picture and give wrong answers. Samples are uint8,
row by row from the top left, channels of a pixel together, no padding between rows, already upright.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from data_contracts.errors import InvalidInput, Problem
from serving.images import Image, ImageLimits, check_size

Order = Literal["rgb", "bgr", "gray"]

FRAME_HEADER = "X-Passline-Frame"
FRAME_FORM = "shape=<height>,<width>,<channels>; order=rgb|bgr|gray"
CHANNELS: dict[Order, int] = {"rgb": 3, "bgr": 3, "gray": 1}
_SIDE = "([0-9]{1,9})"
_LINE = re.compile(rf"shape=\(?{_SIDE},{_SIDE}(?:,{_SIDE})?\)?;order=(rgb|bgr|gray)")


class BadFrame(InvalidInput):
    """A frame whose description is malformed, or does not fit its bytes."""


@dataclass(frozen=True)
class Frame:
    """What raw samples are: height, width, channels and their order."""

    shape_hwc: tuple[int, int, int]
    order: Order

    def __post_init__(self) -> None:
        if self.shape_hwc[2] != CHANNELS[self.order]:
            raise _bad(f"{self.shape_hwc[2]} channels in the order {self.order}")
        if min(self.shape_hwc) < 1:
            raise _bad(f"the shape {self.shape_hwc}")

    @classmethod
    def of(cls, shape: tuple[int, ...], order: Order) -> Frame:
        """A frame from numpy's shape; two axes are a grey frame. Raises BadFrame."""
        if len(shape) not in (2, 3):
            raise _bad(f"{len(shape)} axes")
        height, width, channels = (*shape, 1)[:3]
        return cls((height, width, channels), order)

    @property
    def size_bytes(self) -> int:
        """Bytes that the samples take."""
        height, width, channels = self.shape_hwc
        return height * width * channels


def parse_frame(line: str) -> Frame:
    """The frame that a line describes. Raises BadFrame.

    >>> parse_frame("shape=480,640,3; order=bgr").shape_hwc
    (480, 640, 3)
    """
    found = _LINE.fullmatch("".join(line.lower().split()))
    if not found:
        raise _bad(repr(line[:80]))
    order: Order = "rgb" if found[4] == "rgb" else "bgr" if found[4] == "bgr" else "gray"
    return Frame.of(tuple(int(side) for side in found.groups()[:3] if side), order)


def frame_image(data: bytes, frame: Frame, limits: ImageLimits) -> Image:
    """RGB pixels of raw samples; a view of `data` where they are RGB already.

    Raises BadFrame when the bytes do not fit the shape, ImageTooLarge or ImageTooSmall.
    """
    height, width, channels = frame.shape_hwc
    check_size((width, height), limits)
    if len(data) != frame.size_bytes:
        expected = f"{height} x {width} x {channels} = {frame.size_bytes} bytes"
        raise BadFrame(Problem("frame", expected, f"{len(data)} bytes", "Send uint8 samples without padding."))
    samples = np.frombuffer(data, np.uint8).reshape(height, width, channels)
    if frame.order == "rgb":
        return samples
    code = cv2.COLOR_BGR2RGB if frame.order == "bgr" else cv2.COLOR_GRAY2RGB
    return np.asarray(cv2.cvtColor(samples, code), dtype=np.uint8)


def _bad(got: str) -> BadFrame:
    return BadFrame(Problem(FRAME_HEADER, FRAME_FORM, got, "Three channels are rgb or bgr, one is gray."))
