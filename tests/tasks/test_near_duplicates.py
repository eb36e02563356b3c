from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pandas as pd
import pytest

from serving.images import ImageLimits
from tasks.scanning.near_duplicates import near_pairs
from tasks.scanning.picture_facts import PictureFacts, picture_facts

LIMITS = ImageLimits(max_bytes=2**25, max_pixels=2**26)
SIDE = 320


def part(seed: int, *, defect: tuple[int, int] | None = None, scene: int | None = None) -> np.ndarray:
    """A textured part; with `scene` all parts of that number look alike but for a faint texture of their own."""
    shape = np.random.default_rng(seed if scene is None else 1000 + scene)
    picture = 120 + cv2.resize(shape.normal(0, 40, (7, 7)).astype(np.float32), (SIDE, SIDE))
    own = np.random.default_rng(seed)
    picture += cv2.resize(own.normal(0, 4, (80, 80)).astype(np.float32), (SIDE, SIDE))
    if defect:
        cv2.circle(picture, defect, 16, 255 if picture[defect[1], defect[0]] < 128 else 0, cv2.FILLED)
    return picture.clip(0, 255).astype(np.uint8)


def flat(seed: int) -> np.ndarray:
    """A plate without any shape: light that falls off, and noise."""
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    noise = np.random.default_rng(seed).normal(0, 6, (SIDE, SIDE))
    return (180 - 60 * (x * x + y * y) + noise).clip(0, 255).astype(np.uint8)


def saved_again(picture: np.ndarray, quality: int = 60) -> np.ndarray:
    return cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_GRAYSCALE)


def moved(picture: np.ndarray, x: int, y: int) -> np.ndarray:
    return cv2.warpAffine(
        picture, np.array([[1, 0, x], [0, 1, y]], np.float32), (SIDE, SIDE), borderMode=cv2.BORDER_REPLICATE
    )


def brighter(picture: np.ndarray) -> np.ndarray:
    return (picture * 1.06 + 5).clip(0, 255).astype(np.uint8)


def table(pictures: list[np.ndarray]) -> pd.DataFrame:
    """The picture rows of a scan over these pictures."""
    rows = [
        picture_facts(cv2.imencode(".png", picture)[1].tobytes(), PictureFacts(0, f"{number}"), LIMITS)
        for number, picture in enumerate(pictures)
    ]
    columns = ("sha256", "perceptual_hash", "thumbnail", "width_px", "height_px")
    return pd.DataFrame({name: [getattr(row, name) for row in rows] for name in columns})


def found(pictures: list[np.ndarray]) -> set[tuple[int, int]]:
    pairs = near_pairs(table(pictures))
    return set(zip(pairs["first"], pairs["second"], strict=True))


COPIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "saved again": saved_again,
    "saved again badly": lambda picture: saved_again(picture, 30),
    "moved right and down": lambda picture: moved(picture, 2, 2),
    "moved left and up": lambda picture: moved(picture, -2, -2),
    "moved across": lambda picture: moved(picture, 2, -2),
    "brighter": brighter,
    "half the size": lambda picture: cv2.resize(picture, (SIDE // 2, SIDE // 2), interpolation=cv2.INTER_AREA),
    "all of it": lambda picture: saved_again(brighter(moved(picture, 2, 1))),
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_a_changed_copy_is_found_and_nothing_else(change: Callable[[np.ndarray], np.ndarray]) -> None:
    pictures = [part(seed) for seed in range(12)]
    assert found([*pictures, change(pictures[5])]) == {(5, 12)}


OTHERS = {
    "other parts": [part(seed) for seed in range(12)],
    "one product, a defect at another place": [part(seed, scene=0, defect=(40 + 20 * seed, 160)) for seed in range(12)],
    "one product without defects": [part(seed, scene=0) for seed in range(40)],
    "flat plates": [flat(seed) for seed in range(6)],
    "a flat plate and its copy": [flat(0), saved_again(flat(0))],
    "plain grey": [np.full((SIDE, SIDE), level, np.uint8) for level in (10, 11, 200)],
    "negative": [part(0), 255 - part(0)],
    "one picture": [part(0)],
    "none": [],
}


@pytest.mark.parametrize("pictures", OTHERS.values(), ids=OTHERS)
def test_what_is_no_copy_is_not_found(pictures: list[np.ndarray]) -> None:
    assert found(pictures) == set()


def test_a_copy_among_pictures_of_one_product_is_found() -> None:
    pictures = [part(seed, scene=0) for seed in range(40)]
    assert (7, 40) in found([*pictures, saved_again(pictures[7], 90)])


def test_a_cluster_gives_the_pairs_that_hold_it_together() -> None:
    pictures = [part(seed) for seed in range(20)]
    burst = [moved(saved_again(pictures[3], 95 - number), 0, number % 3) for number in range(4)]
    pairs = found([*pictures, *burst])
    assert len(pairs) == 4
    assert {position for pair in pairs for position in pair} == {3, 20, 21, 22, 23}


def test_exact_copies_count_once() -> None:
    rows = table([part(0), part(0), saved_again(part(0)), part(1)])
    rows.loc[1, "sha256"] = rows.loc[0, "sha256"]
    assert near_pairs(rows)[["first", "second"]].to_numpy().tolist() == [[0, 2]]


def test_distance_is_that_of_the_hashes() -> None:
    rows = table([part(0), brighter(part(0))])
    rows["perceptual_hash"] = ["00000000000000ff", "000000000000000e"]
    assert near_pairs(rows)["distance"].tolist() == [5]


def test_many_equal_pictures_give_a_star() -> None:
    rows = pd.concat([table([part(0)])] * 5000, ignore_index=True)
    rows["sha256"] = [str(number) for number in range(5000)]
    pairs = near_pairs(rows)
    assert pairs["first"].unique().tolist() == [0]
    assert len(pairs) == 4999


def test_pictures_that_could_not_be_read_are_passed_over() -> None:
    rows = table([part(0), part(1), saved_again(part(0))])
    rows.loc[1, ["thumbnail", "perceptual_hash"]] = None
    assert near_pairs(rows)[["first", "second"]].to_numpy().tolist() == [[0, 2]]
    rows["thumbnail"] = None
    assert near_pairs(rows).empty


def test_a_smaller_copy_is_found_and_a_smaller_picture_of_another_shape_is_not() -> None:
    picture = part(1)
    half, cut = cv2.resize(picture, (SIDE // 2, SIDE // 2)), cv2.resize(picture, (SIDE * 3 // 4, SIDE * 2 // 3))
    assert found([picture, half, part(2)]) == {(0, 1)}
    assert found([picture, cut, part(2)]) == set()
