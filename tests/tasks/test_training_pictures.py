"""Every kind of picture file, as training data: read with its displayed size, or named and refused."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from builders import LIMITS, encode, encode_16bit, encode_mode, noisy_plate, plate, write_mini_dataset
from picture_files import READ, REFUSED, png_that_claims
from tasks.scan import scan_dataset

WH = (64, 48)
SEEN: dict[str, tuple[str, bytes, tuple[int, int]]] = {
    "turned upside down": ("a.jpg", encode(noisy_plate(WH), "jpeg", orientation=3), WH),
    "turned by a quarter": ("a.jpg", encode(noisy_plate(WH), "jpeg", orientation=6), WH[::-1]),
    "TIFF turned by a quarter": ("a.tif", encode(noisy_plate(WH), "tiff", orientation=6), WH[::-1]),
    "one bit": ("a.png", encode_mode(noisy_plate(WH), "1"), WH),
    "grey": ("a.png", encode_mode(noisy_plate(WH), "L"), WH),
    "palette": ("a.png", encode_mode(noisy_plate(WH), "P"), WH),
    "transparent": ("a.png", encode_mode(noisy_plate(WH), "RGBA"), WH),
    "printer's colours": ("a.jpg", encode_mode(noisy_plate(WH), "CMYK", "jpeg"), WH),
    "16 bits of grey": ("a.png", encode_16bit(noisy_plate(WH)[..., 0].astype("uint16") * 257), WH),
    "16 bits of colour": ("a.tiff", encode_16bit(noisy_plate(WH).astype("uint16") * 257, ".tiff"), WH),
    "progressive": ("a.jpg", encode(noisy_plate(WH), "jpeg", progressive=True), WH),
    "bytes behind the end": ("a.jpg", encode(noisy_plate(WH), "jpeg") + b"\0" * 99, WH),
    "a PNG that is named .jpg": ("a.jpg", encode(noisy_plate(WH)), WH),
    "ending in capitals": ("A.JPG", encode(noisy_plate(WH), "jpeg"), WH),
    "BMP": ("a.bmp", encode(noisy_plate(WH), "bmp"), WH),
    "WebP": ("a.webp", encode(noisy_plate(WH), "webp"), WH),
    "name in Cyrillic": ("\u0448\u0430\u0439\u0431\u0430 \u21161.jpg", encode(noisy_plate(WH), "jpeg"), WH),
    "name in Chinese": ("\u8868\u9762\u7f3a\u9677.jpg", encode(noisy_plate(WH), "jpeg"), WH),
    "accent as a mark of its own": ("pie\u0300ce.jpg", encode(noisy_plate(WH), "jpeg"), WH),
    "quotes and signs": ("it's 100% #1 & co.jpg", encode(noisy_plate(WH), "jpeg"), WH),
    "points in the name": ("a.b.v1.2.jpg", encode(noisy_plate(WH), "jpeg"), WH),
}
"""Name of the file, its bytes, and the size that people see."""
UNREAD = {
    "no bytes": (b"", "picture_unsupported", "no bytes"),
    "page of a failed download": (b"<html>404</html>", "picture_unsupported", "text starting with"),
    "cut JPEG": (encode(noisy_plate(WH), "jpeg")[:-400], "picture_undecodable", "cut off"),
    "cut PNG": (encode(noisy_plate(WH))[:-400], "picture_undecodable", "cut off"),
    "damaged PNG": (encode(noisy_plate(WH))[:200] + b"\xff" + encode(noisy_plate(WH))[201:], "picture_undecodable", ""),
    "several pages": (encode(plate(), "gif"), "picture_unsupported", ""),
    "more pixels than the limit": (png_that_claims((9000, 8000)), "picture_too_large", "72000000 pixels"),
    "phone photo": (b"\0\0\0\x18ftypheic" + bytes(64), "picture_unsupported", "HE"),
}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory) -> dict[str, pd.Series]:
    """Every case as one picture of one dataset: its row of the scan, by name of the case."""
    folder = write_mini_dataset(tmp_path_factory.mktemp("kinds") / "d", counts={"train": 1}).folder
    files = {case: (name, data) for case, (name, data, _) in SEEN.items()}
    files |= {case: ("a.png", data) for case, (data, _, _) in UNREAD.items()}
    files |= {f"{table} {case}": ("a.png", row[0]) for table, rows in TABLES.items() for case, row in rows.items()}
    places = {}
    for number, (case, (name, data)) in enumerate(files.items()):
        path = folder / f"images/train/{number:03d}/{name}"
        path.parent.mkdir()
        path.write_bytes(data)
        places[case] = path.relative_to(folder).as_posix()
    rows = scan_dataset(folder, LIMITS).pictures.set_index("path")
    return {case: rows.loc[place] for case, place in places.items()}


TABLES = {"read": READ, "refused": REFUSED}


@pytest.mark.parametrize("case", SEEN)
def test_it_is_read_with_the_size_that_people_see(case, scanned):
    row = scanned[case]
    assert pd.isna(row["rule"])
    assert (row["width_px"], row["height_px"]) == SEEN[case][2]


@pytest.mark.parametrize("case", UNREAD)
def test_it_is_named_and_refused(case, scanned):
    row, (_, rule, words) = scanned[case], UNREAD[case]
    assert row["rule"] == rule
    assert words in row["got"]
    assert pd.isna(row["width_px"])


def test_the_scan_reads_what_the_service_reads(scanned):
    wrong = [case for case in READ if not pd.isna(scanned[f"read {case}"]["rule"])]
    assert wrong == []
    sizes = {case: READ[case][1].shape[1::-1] for case in READ}
    assert {case: tuple(scanned[f"read {case}"][["width_px", "height_px"]]) for case in READ} == sizes


def test_the_scan_refuses_what_the_service_refuses(scanned):
    rules = {"unsupported": "picture_unsupported", "damaged": "picture_undecodable", "large": "picture_too_large"}
    for case, (_, error, words) in REFUSED.items():
        row = scanned[f"refused {case}"]
        assert row["rule"] == rules[error], case
        assert re.search(words, f"{row['expected']} {row['got']}"), case
