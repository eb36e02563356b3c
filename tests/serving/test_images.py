from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as PillowImage

import builders
from builders import BLUE, LIMITS, RED, encode, encode_16bit, encode_mode, noisy_plate, plate
from data_contracts.errors import EmptyImage, ImageError, ImageTooLarge, UndecodableImage, UnsupportedImage
from serving.image_headers import read_header
from serving.images import ImageLimits, decode_image, read_image

REFUSED_AS = {
    "bad_width.bmp": ImageTooLarge,
    "bomb_30000x30000_1bit.png": ImageTooLarge,
    "zero_bytes.jpg": EmptyImage,
    "truncated_progressive.jpg": UndecodableImage,
    "truncated.png": UndecodableImage,
    "broken_stream.png": UndecodableImage,
    "bad_crc.png": UndecodableImage,
    "tiny_1px.png": UndecodableImage,
}
"""Everything else that the manifest does not demand to be accepted is a kind that we do not read."""


def solid_png(width: int, height: int) -> bytes:
    """A valid PNG header of any size without its pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_every_nasty_file_is_accepted_or_refused_by_name():
    folder = builders.shared_data() / "nasty"
    entries = json.loads((folder / "manifest.json").read_text())["files"]
    assert len(entries) > 40
    for entry in entries:
        name = entry["file"]
        image, error = read_or_error(folder / name)
        if image is None:
            assert entry["expect"] != "accept", f"{name}: {error}"
            assert type(error) is REFUSED_AS.get(name, UnsupportedImage), name
            assert name in str(error)
        else:
            assert entry["expect"].startswith("accept"), name
            assert (image.dtype, image.ndim, image.shape[2]) == (np.uint8, 3, 3), name
            assert image.flags.c_contiguous, name
            assert image.max() > 100, f"{name} is dark"


def read_or_error(file: Path):
    try:
        return read_image(file, LIMITS), None
    except ImageError as error:
        return None, error


KINDS = {
    "png": encode(noisy_plate()),
    "bmp": encode(noisy_plate(), "bmp"),
    "webp": encode(noisy_plate(), "webp"),
    "tiff": encode(noisy_plate(), "tiff"),
    "tiff, compressed": encode(noisy_plate(), "tiff", compression="tiff_lzw"),
    "tiff, big-endian": encode_16bit(noisy_plate()[..., ::-1].astype(np.uint16) << 8, ".tiff"),
    "png, 16 bit": encode_16bit(noisy_plate()[..., ::-1].astype(np.uint16) << 8),
    "png, RGBA": encode_mode(noisy_plate(), "RGBA"),
    "tiff, RGBA": encode_mode(noisy_plate(), "RGBA", "tiff"),
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)
def test_lossless_kinds_give_the_very_pixels(data):
    np.testing.assert_array_equal(decode_image(data, LIMITS), noisy_plate())


RED_AND_BLUE = plate((64, 48), ((0, 0, 32, 48), RED), ((32, 0, 64, 48), BLUE))
COLOURED = {
    "jpeg": encode(RED_AND_BLUE, "jpeg"),
    "png": encode(RED_AND_BLUE),
    "webp": encode(RED_AND_BLUE, "webp"),
    "tiff": encode(RED_AND_BLUE, "tiff"),
    "rgba": encode_mode(RED_AND_BLUE, "RGBA"),
    "palette": encode_mode(RED_AND_BLUE, "P"),
    "palette tiff": encode_mode(RED_AND_BLUE, "P", "tiff"),
    "cmyk": encode_mode(RED_AND_BLUE, "CMYK", "jpeg"),
}


@pytest.mark.parametrize("data", COLOURED.values(), ids=COLOURED)
def test_red_is_red_in_every_kind(data):
    image = decode_image(data, LIMITS)
    assert image[24, 8].tolist() == pytest.approx(RED, abs=6)
    assert image[24, 56].tolist() == pytest.approx(BLUE, abs=6)


def test_grey_is_repeated_into_three_channels():
    image = decode_image(encode_mode(plate(background=(77, 77, 77)), "L"), LIMITS)
    assert (image == 77).all()


def test_one_bit_becomes_black_and_white():
    image = decode_image(encode_mode(plate(background=(255, 255, 255)), "1"), LIMITS)
    assert (image == 255).all()


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_keep_their_high_byte(suffix, channels):
    values = np.array([[0, 255, 256], [0x1234, 0x80FF, 0xFFFF]], np.uint16)
    picture = values if channels == 1 else np.repeat(values[..., None], 3, axis=2)
    image = decode_image(encode_16bit(picture, suffix), LIMITS)
    assert image[..., 0].tolist() == [[0, 0, 1], [0x12, 0x80, 0xFF]]


def test_hidden_pixels_show_the_colour_that_they_carry():
    """Dropped alpha, as in training: compositing would turn the patch black."""
    rgba = np.dstack([plate(background=RED), np.zeros((48, 64), np.uint8)])
    image = decode_image(encode(rgba), LIMITS)
    assert (image == RED).all()


# The stored picture is 80x40 with a red patch top left; where it is displayed is worked by hand.
DISPLAYED = {1: ((80, 40), "left top"), 3: ((80, 40), "right bottom"), 6: ((40, 80), "right top"),
             8: ((40, 80), "left bottom"), 2: ((80, 40), "right top"), 5: ((40, 80), "left top")}  # fmt: skip


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", DISPLAYED)
def test_the_displayed_orientation_is_used(kind, orientation):
    stored = plate((80, 40), ((0, 0, 20, 10), RED))
    image = decode_image(encode(stored, kind, orientation), LIMITS)
    wh, corner = DISPLAYED[orientation]
    assert (image.shape[1], image.shape[0]) == wh
    rows, columns = np.nonzero(image[..., 1] < 57)
    found = f"{'left' if columns.mean() < wh[0] / 2 else 'right'} {'top' if rows.mean() < wh[1] / 2 else 'bottom'}"
    assert found == corner


def test_the_name_does_not_matter(tmp_path):
    file = tmp_path / "really_png.jpg"
    file.write_bytes(encode(noisy_plate()))
    np.testing.assert_array_equal(read_image(file, LIMITS), noisy_plate())


@pytest.mark.parametrize("progressive", [0, 1], ids=["baseline", "progressive"])
@pytest.mark.parametrize("cut", [1, 2, 20, 500])
def test_a_cut_jpeg_is_refused_not_filled_with_grey(progressive, cut):
    written, data = cv2.imencode(".jpg", noisy_plate((200, 200)), [cv2.IMWRITE_JPEG_PROGRESSIVE, progressive])
    assert written
    with pytest.raises(UndecodableImage, match="cut off"):
        decode_image(data.tobytes()[:-cut], LIMITS)


def two_pages() -> bytes:
    return encode(noisy_plate(), "tiff", save_all=True, append_images=[PillowImage.fromarray(noisy_plate(seed=1))])


REFUSED = {
    "no bytes": (b"", EmptyImage, "no bytes"),
    "text": (b"<html>404</html>", UnsupportedImage, "text starting with '<html>404</html>'"),
    "gif": (encode(noisy_plate(), "gif"), UnsupportedImage, "GIF"),
    "zeros": (b"\0" * 100, UnsupportedImage, "bytes starting with 00 00"),
    "several pages": (two_pages(), UnsupportedImage, "several pages"),
    "floating point": (cv2.imencode(".tiff", np.ones((4, 4), np.float32))[1].tobytes(), UnsupportedImage, "floating"),
    "floating point colour": (
        cv2.imencode(".tiff", np.ones((4, 4, 3), np.float32))[1].tobytes(), UnsupportedImage, "floating"),
    "jpeg signature alone": (b"\xff\xd8\xff", UndecodableImage, "no valid width"),
    "png signature alone": (b"\x89PNG\r\n\x1a\n", UndecodableImage, "no valid width"),
    "tiff signature alone": (b"II*\x00", UndecodableImage, "no valid width"),
    "tiff directory far outside": (b"II*\x00\xff\xff\xff\xff", UndecodableImage, "no valid width"),
    "bmp signature alone": (b"BM", UndecodableImage, "no valid width"),
    "webp signature alone": (b"RIFF\x00\x00\x00\x00WEBPVP8X", UndecodableImage, "no valid width"),
    "png without pixels": (solid_png(10, 10), UndecodableImage, "data are broken"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_by_kind(data, error, words):
    with pytest.raises(ImageError, match=words) as caught:
        decode_image(data, LIMITS)
    assert type(caught.value) is error


def test_limits_are_inclusive():
    data = encode(noisy_plate((64, 48)))
    assert decode_image(data, ImageLimits(len(data), 64 * 48)).shape == (48, 64, 3)
    with pytest.raises(ImageTooLarge, match="at most 3071 pixels, got 64 x 48 = 3072"):
        decode_image(data, ImageLimits(len(data), 64 * 48 - 1))
    with pytest.raises(ImageTooLarge, match="bytes"):
        decode_image(data, ImageLimits(len(data) - 1, 64 * 48))


def jpeg_of_any_size(width: int, height: int) -> bytes:
    data = bytearray(encode(noisy_plate(), "jpeg"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def tiff_of_any_size(width: int, height: int) -> bytes:
    entries = struct.pack("<HHII", 256, 4, 1, width) + struct.pack("<HHII", 257, 4, 1, height)
    return b"II*\x00" + struct.pack("<IH", 8, 2) + entries + struct.pack("<I", 0)


BOMBS = {
    "png": solid_png(30_000, 30_000),
    "jpeg": jpeg_of_any_size(65_000, 65_000),
    "tiff": tiff_of_any_size(2**31, 2**31),
    "bigtiff": b"II+\x00\x08\x00\x00\x00" + struct.pack("<QQ", 16, 2)
    + struct.pack("<HHQQ", 256, 16, 1, 2**40) + struct.pack("<HHQQ", 257, 16, 1, 2**40) + struct.pack("<Q", 0),
    "webp": b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + b"\xff\xff\xff" * 2,
    "bmp": b"BM" + bytes(12) + struct.pack("<Iii", 40, 2**31 - 1, -(2**31)),
}  # fmt: skip


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_before_anything_is_allocated(data, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr(cv2, "imdecodemulti", lambda *_, **__: pytest.fail("decoded"))
    tracemalloc.start()
    with pytest.raises(ImageTooLarge, match="by its header"):
        decode_image(data, LIMITS)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_huge_file_is_not_read_whole(tmp_path):
    file = tmp_path / "huge.png"
    with file.open("wb") as out:
        out.truncate(2**33)
    with pytest.raises(ImageTooLarge, match=r"huge\.png"):
        read_image(file, ImageLimits(1000, 1000))


def test_a_header_that_lies_about_the_size_is_refused(monkeypatch):
    monkeypatch.setattr("serving.images.read_header", lambda _: read_header(encode(noisy_plate((10, 10)))))
    with pytest.raises(UndecodableImage, match=r"header says \(10, 10\)"):
        decode_image(encode(noisy_plate((20, 10))), LIMITS)


@pytest.mark.parametrize("seed", range(4))
def test_damage_never_raises_anything_but_an_image_error(seed):
    """Bytes flipped and files cut at random places, every kind that we read."""
    rng = np.random.default_rng(seed)
    for data in (*COLOURED.values(), *KINDS.values()):
        for _ in range(4):
            broken = bytearray(data[: int(rng.integers(1, len(data) + 1))])
            for at in rng.integers(0, len(broken), 3):
                broken[at] = int(rng.integers(0, 256))
            try:
                image = decode_image(bytes(broken), ImageLimits(2**20, 2**16))
            except ImageError:
                continue
            assert image.dtype == np.uint8
            assert image.shape[0] * image.shape[1] <= 2**16


def test_an_unreadable_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "none.png", LIMITS)
