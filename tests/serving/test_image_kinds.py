"""Every kind of picture file that we could think of: its very pixels, or refused by name. Never something else."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from builders import LIMITS
from data_contracts.errors import ImageError, ImageTooLarge, UndecodableImage, UnsupportedImage
from picture_files import READ, REFUSED, Image, jpeg_of_many_scans
from serving.image_headers import is_picture, read_header
from serving.images import decode_image

ERRORS = {"unsupported": UnsupportedImage, "damaged": UndecodableImage, "large": ImageTooLarge}


@pytest.mark.parametrize(("data", "pixels", "tolerance"), READ.values(), ids=READ)
def test_it_gives_its_pixels(data: bytes, pixels: Image, tolerance: int) -> None:
    image = decode_image(data, LIMITS)
    assert image.shape == (*pixels.shape[:2], 3)
    assert np.abs(image.astype(int) - pixels).max() <= tolerance
    assert is_picture(data)


@pytest.mark.parametrize(("data", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_by_name(data: bytes, error: str, words: str) -> None:
    with pytest.raises(ImageError, match=words) as caught:
        decode_image(data, LIMITS)
    assert type(caught.value) is ERRORS[error]


MEMORY_BOMBS = ["png: a chunk of 4 GB", "tiff: huge tiles", "jpeg: strip of 65535 x 65535", "jpeg: 201 scans"]


@pytest.mark.parametrize("name", MEMORY_BOMBS)
def test_what_would_take_memory_or_minutes_never_reaches_the_decoder(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr(cv2, "imdecodemulti", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(ImageError):
        decode_image(REFUSED[name][0], LIMITS)


def test_150_scans_are_read() -> None:
    assert decode_image(jpeg_of_many_scans(150), LIMITS).shape == (48, 64, 3)


def test_scans_are_not_counted_where_there_can_be_one_only() -> None:
    """Bytes that look like scans, behind the end of a baseline file, harm nobody."""
    data, _, _ = READ["jpeg"]
    header = read_header(data + b"\xff\xda" * 1000)
    assert header is not None
    assert header.damaged == ""
