"""Datasets of any size to measure with, in the project's layout; and the rows of a scan without any pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pandas as pd

from tasks.scanning.picture_facts import THUMBNAIL_SIDE, perceptual_hash

CLASSES = ("scratch", "dent", "stain")
LONG_AGO_S = 10**9
"""Time of change of every file: long enough ago that a scan trusts it."""
COPIES_SHARE = 0.01

Levels = npt.NDArray[np.float32]


def write_dataset(folder: Path, jpegs: Sequence[bytes], count: int) -> Path:
    """`count` pictures, one in five for validation, each with other bytes (a comment) and two boxes; the folder."""
    for part in ("train", "val"):
        (folder / "images" / part).mkdir(parents=True)
        (folder / "labels" / part).mkdir(parents=True)
    for number in range(count):
        part = "val" if number % 5 == 4 else "train"
        comment = number.to_bytes(4, "big")
        jpeg = jpegs[number % len(jpegs)]
        _write(folder / f"images/{part}/{number:06}.jpg", jpeg[:2] + b"\xff\xfe\x00\x06" + comment + jpeg[2:])
        left = 0.2 + 0.6 * number / count
        rows = f"{number % 3} {left:.6f} 0.3 0.1 0.1\n{(number + 1) % 3} {left:.6f} 0.7 0.1 0.2\n"
        _write(folder / f"labels/{part}/{number:06}.txt", rows.encode())
    yaml = "path: .\ntrain: images/train\nval: images/val\nnames: [scratch, dent, stain]\n"
    (folder / "data.yaml").write_text(yaml, encoding="utf-8")
    return folder


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))


def made_rows(count: int, shared_share: float) -> tuple[pd.DataFrame, int]:
    """What `near_pairs` reads of `count` picture rows, and how many of them are copies saved again.

    `shared_share`: how much of each thumbnail is the same for all, as for one product under one camera.
    """
    rng = np.random.default_rng(0)
    scene = _shapes(rng)
    copies = int(count * COPIES_SHARE)
    shown = [_mixed(scene, _shapes(rng), shared_share) for _ in range(count - copies)]
    noise = rng.normal(0, 0.5, (copies, THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    shown += [(shown[number] + noise[number]).round().clip(0, 255).astype(np.uint8) for number in range(copies)]
    columns = {
        "sha256": [str(number) for number in range(count)],
        "perceptual_hash": [perceptual_hash(thumbnail) for thumbnail in shown],
        "thumbnail": [thumbnail.tobytes() for thumbnail in shown],
        "width_px": [640] * count,
        "height_px": [640] * count,
    }
    return pd.DataFrame(columns), copies


def _shapes(rng: np.random.Generator) -> Levels:
    """Coarse and fine shapes, grey levels around 0."""
    coarse, fine = (rng.normal(0, 25, (side, side)).astype(np.float32) for side in (4, 12))
    wanted = (THUMBNAIL_SIDE, THUMBNAIL_SIDE)
    shapes: Levels = cv2.resize(coarse, wanted, interpolation=cv2.INTER_CUBIC) + cv2.resize(fine, wanted)
    return shapes


def _mixed(scene: Levels, own: Levels, shared_share: float) -> npt.NDArray[np.uint8]:
    return (128 + shared_share * scene + (1 - shared_share) * own).clip(0, 255).astype(np.uint8)
