"""The three defects of the sample plates: scratch, pit and stain, each as a change of light with its own box."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from deployments.demo.plate_surface import Plane, grid_xy, soft_noise, window_xy

CLASS_NAMES = ("scratch", "pit", "stain")
SUPERSAMPLE = 4


@dataclass(frozen=True, eq=False)
class Defect:
    """One defect in one picture.

    change: grey levels added to the light, (h, w); tint_rgb: (3,), how much of it each channel takes;
    box_xyxy_px: whole pixels, left, top, right, bottom (exclusive), tight around what can be seen.
    """

    class_id: int
    change: Plane
    tint_rgb: npt.NDArray[np.float32]
    box_xyxy_px: tuple[int, int, int, int]


def make_defect(rng: np.random.Generator, class_id: int, image_wh: tuple[int, int]) -> Defect:
    """A defect of the class anywhere in the picture."""
    tint = np.ones(3, np.float32)
    if CLASS_NAMES[class_id] == "scratch":
        change, share = _scratch(rng, image_wh), 0.28
    elif CLASS_NAMES[class_id] == "pit":
        change, share = _pit(rng, image_wh), 0.22
    else:
        change, share = _stain(rng, image_wh), 0.35
        tint += (rng.uniform(-0.35, 0.55) * np.array([-1.0, 0.0, 1.0])).astype(np.float32)
    return Defect(class_id, change, tint, _box_of(np.abs(change) > share * np.abs(change).max()))


def _box_of(visible: npt.NDArray[np.bool_]) -> tuple[int, int, int, int]:
    columns, rows = np.flatnonzero(visible.any(axis=0)), np.flatnonzero(visible.any(axis=1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _scratch(rng: np.random.Generator, image_wh: tuple[int, int]) -> Plane:
    """A thin line, straight or bent, that tapers and fades; a groove shows a light and a dark flank."""
    points = _curve(rng, image_wh)
    along = np.linspace(0, 1, len(points))
    width_px = rng.uniform(1.8, 3.8) * (0.45 + 0.55 * np.sin(math.pi * along) ** 0.7)
    depth = np.clip(0.85 + 0.2 * np.sin(along * rng.uniform(4, 12) + rng.uniform(0, 6)), 0.5, 1.0)
    mask = _draw(points, width_px, depth, image_wh)
    flank = cv2.warpAffine(mask, np.array([[1, 0, rng.choice([-1.2, 1.2])], [0, 1, 1.2]]), image_wh)
    strength = rng.uniform(50.0, 95.0) * float(rng.choice([-1.0, 1.0]))
    return np.asarray(strength * mask - rng.uniform(0.2, 0.45) * strength * np.clip(flank - mask, 0, 1), np.float32)


def _curve(rng: np.random.Generator, image_wh: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Points (n, 2) of a quadratic Bezier curve."""
    length = rng.uniform(0.36, 0.75) * min(image_wh)
    # Seldom along an axis: the box of such a line is a sliver, and no detector is judged fairly by its overlap.
    angle = rng.integers(0, 4) * math.pi / 2 + math.pi / 4 + rng.uniform(-0.45, 0.45)
    step = length * np.array([math.cos(angle), math.sin(angle)])
    start = rng.uniform([4, 4], np.array(image_wh) - 4)
    bend = start + step / 2 + np.array([-step[1], step[0]]) * rng.normal(0, 0.22)
    t = np.linspace(0, 1, 28)[:, None]
    return np.asarray((1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * (start + step))


def _draw(
    points: npt.NDArray[np.float64],
    width_px: npt.NDArray[np.float64],
    depth: npt.NDArray[np.float64],
    image_wh: tuple[int, int],
) -> Plane:
    """The line as coverage 0..1, (h, w): drawn large and averaged down, so that widths under a pixel are honest."""
    canvas = np.zeros((image_wh[1] * SUPERSAMPLE, image_wh[0] * SUPERSAMPLE), np.uint8)
    corners = np.rint(points * SUPERSAMPLE).astype(int).tolist()
    for start, end, width, level in zip(corners[:-1], corners[1:], width_px, depth, strict=False):
        cv2.line(canvas, start, end, int(255 * level), max(1, round(width * SUPERSAMPLE)))
    return np.asarray(cv2.resize(canvas, image_wh, interpolation=cv2.INTER_AREA) / np.float32(255), np.float32)


def _pit(rng: np.random.Generator, image_wh: tuple[int, int]) -> Plane:
    """A small dark crater, not quite round, with a rim that is bright on the side of the lamp."""
    radius = rng.uniform(4.5, 9.0)
    centre_xy = (rng.uniform(12, image_wh[0] - 12), rng.uniform(12, image_wh[1] - 12))
    window, dx, dy = window_xy(image_wh, centre_xy, 2.6 * radius)
    around = np.arctan2(dy, dx)
    outline = 1 + 0.14 * np.cos(2 * around + rng.uniform(0, 6)) + 0.09 * np.cos(3 * around + rng.uniform(0, 6))
    distance = np.hypot(dx, dy) / (radius * outline)
    crater = 1 / (1 + np.exp(np.clip((distance - 0.85) / 0.11, -30, 30)))
    rim = np.exp(-(((distance - 1.2) / 0.2) ** 2)) * (0.55 + 0.45 * np.cos(around - rng.uniform(0, 2 * math.pi)))
    change = np.zeros((image_wh[1], image_wh[0]), np.float32)
    change[window] = -rng.uniform(34, 75) * crater + rng.uniform(18, 42) * rim
    return change


def _stain(rng: np.random.Generator, image_wh: tuple[int, int]) -> Plane:
    """A large soft blotch of low contrast, darker along its outline as dried liquid is."""
    x, y = grid_xy(image_wh)
    half_u, half_v = (rng.uniform(0.11, 0.25) * min(image_wh) for _ in range(2))
    turn = rng.uniform(0, math.pi)
    dx, dy = x - rng.uniform(0.12, 0.88) * image_wh[0], y - rng.uniform(0.12, 0.88) * image_wh[1]
    u, v = dx * math.cos(turn) + dy * math.sin(turn), -dx * math.sin(turn) + dy * math.cos(turn)
    body = 1 - (u / half_u) ** 2 - (v / half_v) ** 2 + 0.3 * soft_noise(rng, image_wh, min(half_u, half_v) / 2)
    cover = np.clip(_largest_part(body > 0) * body / rng.uniform(0.4, 0.9), 0, 1)
    cover = cv2.GaussianBlur((cover**2 * (3 - 2 * cover)).astype(np.float32), (0, 0), 1.5)
    outline = np.exp(-(((cover - 0.55) / 0.25) ** 2)) * cover
    mottled = 1 + 0.15 * soft_noise(rng, image_wh, 6)
    return np.asarray(-rng.uniform(15, 32) * mottled * (0.75 * cover + 0.5 * outline), np.float32)


def _largest_part(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Only the largest connected part: a stain is one thing with one box."""
    count, parts, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    if count < 2:
        return mask
    return np.asarray(parts == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA])))
