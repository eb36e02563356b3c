"""A dataset that a small detector learns in seconds: coloured squares on noisy plates; and ways to spoil its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from builders import BLUE, GREEN, RED, Colour, plate

NAMES = ("red", "green", "blue", "yellow")
COLOURS: tuple[Colour, ...] = (RED, GREEN, BLUE, (255, 255, 0))
SHAPES = ((96, 64), (64, 96), (96, 96))
COUNTS = {"train": 32, "val": 16, "test": 240}
NOISE = 20


def write_coloured_squares(folder: Path, counts: Mapping[str, int] = COUNTS, seed: int = 7) -> None:
    """Two or three squares on each plate, every class equally often; every sixth plate is good."""
    rng = np.random.default_rng(seed)
    for split, count in counts.items():
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for number in range(count):
            ids = () if number % 6 == 5 else [(number + step) % len(NAMES) for step in range(2 + number % 2)]
            image, rows = _plate(rng, SHAPES[number % 3], ids)
            assert cv2.imwrite(str(folder / "images" / split / f"{split}{number:03}.png"), image[:, :, ::-1])
            (folder / "labels" / split / f"{split}{number:03}.txt").write_text("".join(rows))
    write_names(folder, NAMES)


def _plate(rng: np.random.Generator, wh: tuple[int, int], ids: Sequence[int]) -> tuple[np.ndarray, list[str]]:
    width, height = wh
    patches, rows = [], []
    for class_id in ids:
        side = int(rng.integers(12, 22))
        left, top = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
        patches.append(((left, top, left + side, top + side), COLOURS[class_id]))
        centre = ((left + side / 2) / width, (top + side / 2) / height)
        rows.append(f"{class_id} {centre[0]:.6f} {centre[1]:.6f} {side / width:.6f} {side / height:.6f}\n")
    noise = rng.normal(0, NOISE, (height, width, 3))
    return np.clip(plate(wh, *patches) + noise, 0, 255).astype(np.uint8), rows


def write_names(folder: Path, names: Sequence[str]) -> None:
    """The class list."""
    listed = ", ".join(names)
    (folder / "data.yaml").write_text(f"train: images/train\nval: images/val\ntest: images/test\nnames: [{listed}]\n")


def with_labels_of_others(folder: Path) -> None:
    """Each picture to learn from gets the labels of the one five places on, which shows other squares elsewhere."""
    for split in ("train", "val"):
        files = sorted((folder / "labels" / split).iterdir())
        texts = [file.read_text() for file in files]
        for index, file in enumerate(files):
            file.write_text(texts[(index + 5) % len(texts)])


def without_class(folder: Path) -> None:
    """The last class is gone from the list and from all labels."""
    _keep_rows(folder, lambda class_id: class_id < len(NAMES) - 1)
    write_names(folder, NAMES[:-1])


def with_only_classes(folder: Path) -> None:
    """All classes stay in the list; only the first half is labelled."""
    _keep_rows(folder, lambda class_id: class_id < len(NAMES) // 2)


def _keep_rows(folder: Path, wanted: Callable[[int], bool]) -> None:
    for file in (folder / "labels").rglob("*.txt"):
        rows = [row for row in file.read_text().splitlines() if wanted(int(row.split()[0]))]
        file.write_text("".join(f"{row}\n" for row in rows))
