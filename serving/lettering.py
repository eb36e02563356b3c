"""Text on pictures, with OpenCV's built-in Unicode font: Latin, Greek, Cyrillic, Chinese, Japanese, Korean and more.

Pillow's built-in font has ASCII only, and no font file is shipped. A character that the font lacks would come out as a
question mark; `can_draw` tells beforehand.
"""

from __future__ import annotations

import functools

import cv2
import numpy as np

from serving.images import Image

Colour = tuple[int, int, int]

FONT = "uni"
DESCENT = 0.3
"""Room below the base line, as a share of the font size."""


def can_draw(text: str) -> bool:
    """Whether the font has every character of `text`."""
    return all(char == " " or char == "?" or _has_glyph(char) for char in text)


def text_width(text: str, size_px: int) -> int:
    """Width of one line of text in pixels."""
    return int(cv2.getTextSize((0, 0), text, (0, 0), cv2.FontFace(FONT), size_px)[2]) if text else 0


def line_height(size_px: int) -> int:
    """Height of one line of text in pixels, from the top of the letters to below the base line."""
    return round(size_px * (1 + DESCENT))


def draw_text(canvas: Image, left_top: tuple[int, int], text: str, size_px: int, colour: Colour) -> None:
    """Draw one line of text into `canvas`. A font object per call: it is cheap, and sharing one is not thread-safe."""
    base_line = left_top[0], left_top[1] + size_px
    cv2.putText(canvas, text, base_line, colour, cv2.FontFace(FONT), size_px)


def fit_text(text: str, size_px: int, smallest_px: int, width_px: int) -> tuple[str, int]:
    """`text` and a font size with which it fits into `width_px`: smaller letters first, then fewer.

    The last word, a score, is kept; what stands before it is shortened.
    """
    while text_width(text, size_px) > width_px and size_px > smallest_px:
        size_px -= 1
    name, _, score = text.rpartition(" ")
    while name and text_width(text, size_px) > width_px:
        name = name[:-1]
        text = f"{name}… {score}" if name else score
    return text, size_px


@functools.lru_cache(maxsize=1024)
def _has_glyph(char: str) -> bool:
    return char.isprintable() and _rendered(char) != _rendered("?")


def _rendered(char: str) -> bytes:
    canvas = np.zeros((48, 64, 3), np.uint8)
    draw_text(canvas, (8, 4), char, 28, (255, 255, 255))
    return canvas.tobytes()
