"""Clean metal plates: brushed grain, lighting, machining marks, screws and edges, none of which is a defect."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.float32]
"""One value per pixel, (height, width)."""

LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, eq=False)
class Surface:
    """A plate before anything happened to it.

    light: grey levels 0..255, (h, w); usable: bool (h, w), True where a defect may lie; cast_rgb: (3,), factor per
    channel; grain_rad: direction of the brushing.
    """

    light: Plane
    usable: npt.NDArray[np.bool_]
    cast_rgb: npt.NDArray[np.float32]
    grain_rad: float


def make_surface(rng: np.random.Generator, image_wh: tuple[int, int]) -> Surface:
    """A plate of `image_wh` pixels; everything about it comes from `rng`."""
    grain_rad = (
        rng.choice([0.0, math.pi / 2]) + rng.normal(0.0, 0.12) if rng.random() < 0.7 else rng.uniform(0, math.pi)
    )
    light = rng.uniform(95.0, 170.0) * _lighting(rng, image_wh)
    light += _grain(rng, image_wh, grain_rad)
    if rng.random() < 0.4:
        light += _machining_marks(rng, image_wh)
    usable = np.ones(light.shape, np.bool_)
    if rng.random() < 0.3:
        _add_edge(rng, light, usable)
    for _ in range(int(rng.choice([0, 1, 2], p=[0.35, 0.4, 0.25]))):
        _add_screw(rng, light, usable)
    cast = np.array([1.0, 1.0, 1.0]) + rng.normal(0.0, 0.015, 3) + rng.uniform(-0.03, 0.05) * np.array([-1, 0, 1])
    return Surface(light.astype(np.float32), usable, (cast / (cast @ LUMINANCE)).astype(np.float32), float(grain_rad))


def photograph(rng: np.random.Generator, light_rgb: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """What a camera makes of the light (h, w, 3): soft optics, shot and read noise, 8 bits; RGB (h, w, 3)."""
    soft = cv2.GaussianBlur(light_rgb, (0, 0), float(rng.uniform(0.45, 0.7)))
    height, width = soft.shape[:2]
    grey = rng.standard_normal((height, width), np.float32)
    # Colour noise is coarser than grey noise in a camera with a Bayer filter, and cheaper to draw that way.
    colour = cv2.resize(rng.standard_normal((height // 2, width // 2, 3), np.float32), (width, height))
    sigma = np.sqrt(1.0 + np.clip(soft[..., 1], 0, 255) * rng.uniform(0.02, 0.06))
    picture = soft + 0.5 * colour + (0.9 * grey * sigma)[..., None]
    return np.asarray(np.clip(np.rint(picture), 0, 255), np.uint8)


def grid_xy(image_wh: tuple[int, int]) -> tuple[Plane, Plane]:
    """Pixel coordinates x and y, each (h, w)."""
    width, height = image_wh
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    return x, y


def window_xy(
    image_wh: tuple[int, int], centre_xy: tuple[float, float], reach_px: float
) -> tuple[tuple[slice, slice], Plane, Plane]:
    """The part of a picture within `reach_px` of a point: its slices and its offsets dx, dy from the point."""
    spans = [
        slice(max(0, math.floor(centre - reach_px)), min(side, math.ceil(centre + reach_px) + 1))
        for centre, side in zip(centre_xy, image_wh, strict=True)
    ]
    x, y = (np.arange(span.start, span.stop, dtype=np.float32) for span in spans)
    dx, dy = np.meshgrid(x - np.float32(centre_xy[0]), y - np.float32(centre_xy[1]))
    return (spans[1], spans[0]), dx, dy


def soft_noise(rng: np.random.Generator, image_wh: tuple[int, int], sigma_px: float) -> Plane:
    """Smooth noise of mean 0 and deviation 1 with structures of about `sigma_px`, (h, w)."""
    # Drawn coarse and enlarged: a wide blur at full size costs ten times as much and looks the same.
    step = max(1.0, sigma_px / 2)
    coarse = rng.standard_normal((math.ceil(image_wh[1] / step) + 2, math.ceil(image_wh[0] / step) + 2), np.float32)
    field = cv2.resize(
        cv2.GaussianBlur(coarse, (0, 0), 2.0 if step > 1 else sigma_px), image_wh, interpolation=cv2.INTER_CUBIC
    )
    return np.asarray((field - field.mean()) / (field.std() + 1e-6), np.float32)


def _lighting(rng: np.random.Generator, image_wh: tuple[int, int]) -> Plane:
    """Factor per pixel: a gradient, a vignette and up to two specular bands."""
    x, y = grid_xy(image_wh)
    u, v = x / image_wh[0] - 0.5, y / image_wh[1] - 0.5
    angle = rng.uniform(0, 2 * math.pi)
    factor = 1.0 + rng.uniform(0.1, 0.5) * (u * math.cos(angle) + v * math.sin(angle))
    factor -= rng.uniform(0.1, 0.5) * (u**2 + v**2)
    for _ in range(int(rng.integers(0, 3))):
        angle, centre, width = rng.uniform(0, math.pi), rng.uniform(-0.45, 0.45), rng.uniform(0.05, 0.2)
        across = u * math.cos(angle) + v * math.sin(angle) - centre
        along = -u * math.sin(angle) + v * math.cos(angle) - rng.uniform(-0.4, 0.4)
        factor += rng.uniform(0.08, 0.38) * np.exp(-((across / width) ** 2) - (along / rng.uniform(0.25, 0.9)) ** 2)
    return np.asarray(factor, np.float32)


def _grain(rng: np.random.Generator, image_wh: tuple[int, int], angle_rad: float) -> Plane:
    """Brushing: noise drawn out along one direction, coarse and fine, in grey levels."""
    side = math.ceil(math.hypot(*image_wh))
    # Uniform is enough: the blur sums so many values that the result is normal all the same.
    coarse, fine = (rng.random((2, side, side), np.float32) - 0.5) * 3.46
    streaks = cv2.blur(coarse, (int(rng.integers(45, 120)), 1)) * rng.uniform(20, 45)
    streaks += cv2.blur(fine, (int(rng.integers(7, 20)), 1)) * rng.uniform(5, 11)
    turn = cv2.getRotationMatrix2D((side / 2, side / 2), math.degrees(angle_rad), 1.0)
    turn[:, 2] += np.array(image_wh) / 2 - side / 2
    return np.asarray(cv2.warpAffine(streaks, turn, image_wh, borderMode=cv2.BORDER_REFLECT), np.float32)


def _machining_marks(rng: np.random.Generator, image_wh: tuple[int, int]) -> Plane:
    """Regular fine lines: straight from milling, or arcs round a far centre from turning."""
    x, y = grid_xy(image_wh)
    angle, reach = rng.uniform(0, 2 * math.pi), max(image_wh)
    if rng.random() < 0.5:
        distance = x * math.cos(angle) + y * math.sin(angle)
    else:
        far = reach * rng.uniform(0.7, 1.6)
        distance = np.hypot(x - image_wh[0] / 2 - far * math.cos(angle), y - image_wh[1] / 2 - far * math.sin(angle))
    period = rng.uniform(7.0, 17.0)
    phase = (distance / period) % 1.0
    lines = np.exp(-(((phase - 0.5) * period / rng.uniform(0.8, 1.4)) ** 2))
    patch = np.clip(0.5 + 0.9 * soft_noise(rng, image_wh, reach / 4), 0, 1)
    return np.asarray(lines * patch * rng.uniform(9, 24) * float(rng.choice([-1.0, 1.0])), np.float32)


def _add_screw(rng: np.random.Generator, light: Plane, usable: npt.NDArray[np.bool_]) -> None:
    """A drilled hole or a screw head near the rim of the picture, with its bright chamfer; changes both planes."""
    height, width = light.shape
    radius = rng.uniform(8.0, 13.0)
    margin = radius + rng.uniform(2.0, 14.0)
    cx = float(rng.choice([margin, width - margin]) if rng.random() < 0.7 else rng.uniform(margin, width - margin))
    cy = float(rng.choice([margin, height - margin]))
    window, dx, dy = window_xy((width, height), (cx, cy), radius + 8)
    distance = np.hypot(dx, dy)
    if not usable[window].all():
        return
    part, shade = light[window], np.clip(dx * 0.6 + dy * 0.8, -radius, radius) / radius
    inside = np.clip(radius - distance + 0.5, 0, 1)
    if rng.random() < 0.55:
        fill = rng.uniform(18, 45) + 14 * shade
    else:
        turn = rng.uniform(0, math.pi)
        slot = np.abs(dx * math.sin(turn) - dy * math.cos(turn)) < radius * 0.16
        fill = np.where(slot, 40.0, float(part.mean()) * rng.uniform(0.9, 1.25) - 30 * shade)
    part += (inside * (fill - part)).astype(np.float32)
    ring = np.exp(-(((distance - radius - 1.2) / 1.3) ** 2))
    part += (ring * rng.uniform(22, 55) * (0.65 + 0.35 * shade)).astype(np.float32)
    usable[window] &= distance > radius + 6


def _add_edge(rng: np.random.Generator, light: Plane, usable: npt.NDArray[np.bool_]) -> None:
    """One side of the plate with the dark table behind it and a bright burr; changes both planes."""
    height, width = light.shape
    x, y = grid_xy((width, height))
    angle = rng.integers(0, 4) * math.pi / 2 + rng.normal(0.0, 0.04)
    offset = (x - width / 2) * math.cos(angle) + (y - height / 2) * math.sin(angle)
    beyond = offset - (np.abs(offset).max() * rng.uniform(0.8, 0.9))
    table = rng.uniform(20, 60) + 4 * soft_noise(rng, (width, height), 12)
    light += (np.clip(beyond + 0.5, 0, 1) * (table - light)).astype(np.float32)
    light += (np.exp(-((beyond / 1.1) ** 2)) * rng.uniform(15, 60)).astype(np.float32)
    usable &= beyond < -6
