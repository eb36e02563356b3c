"""The value that a picture file's header becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["jpeg", "png", "bmp", "webp", "tiff"]

SEVERAL = "several pages or frames"


@dataclass(frozen=True)
class ImageHeader:
    """`wh` is None where the header is damaged.

    `unreadable`: what the file is that the decoder would get wrong or not read, "" for a picture as we read it.
    `damaged`: what makes it no sane file, "" for none.
    """

    kind: Kind
    wh: tuple[int, int] | None
    unreadable: str = ""
    damaged: str = ""
