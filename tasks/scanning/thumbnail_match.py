"""Whether two thumbnails show the same scene: one is fitted to the other, and what is left over is judged.

The fit allows what happens to a copy: brightness and contrast change, the picture moves by a cell or less, the light
falls off otherwise. It is linear least squares: `second = gain x first + shift x gradient + offset + left over`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_STRUCTURE = 3.0
"""Grey levels by which a thumbnail must deviate without the fall-off of the light. With less, noise decides."""
MOST_LEFT_OVER = 0.3
"""Deviation of what is left over, as a share of the thumbnails' own."""
MOST_IN_ONE_CELL = 0.2
"""The same for the worst cell, where the structure is strong: a defect that only one of two parts has shows there."""
BLUR_LEVELS = 8.0
"""Grey levels that the worst cell may differ by on top of that: edges that fall between two cells, JPEG, rounding."""
MOST_SHIFT_CELLS = 2.0
LEAST_GAIN = 0.7

Levels = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Fit:
    """How well each second thumbnail is explained by its first one; arrays (n,)."""

    left_over: Levels
    """Deviation of what the fit does not explain, as a share of the two thumbnails' own."""
    worst_levels: Levels
    """What is left over in the worst cell, grey levels."""
    spread_levels: Levels
    """Geometric mean of the two thumbnails' deviations, grey levels."""
    gain: Levels
    shift_cells: Levels
    """The larger one of the shifts along x and y."""

    def is_same_scene(self) -> npt.NDArray[np.bool_]:
        """Whether what is left over is small, as a whole and in every cell."""
        most_in_one_cell = MOST_IN_ONE_CELL * self.spread_levels + BLUR_LEVELS
        return (
            (self.left_over <= MOST_LEFT_OVER)
            & (self.worst_levels <= most_in_one_cell)
            & (self.shift_cells <= MOST_SHIFT_CELLS)
            & (self.gain >= LEAST_GAIN)
            & (self.gain <= 1 / LEAST_GAIN)
        )


def structure(thumbnails: npt.NDArray[np.uint8]) -> Levels:
    """Float32 (n, side - 2, side - 2): smoothed, and without the fall-off of the light (a surface of second order)."""
    sums = thumbnails.astype(np.uint16)
    sums = sums[:, :-2] + 2 * sums[:, 1:-1] + sums[:, 2:]
    sums = sums[:, :, :-2] + 2 * sums[:, :, 1:-1] + sums[:, :, 2:]
    levels: Levels = sums.astype(np.float32) / np.float32(16)
    rows = levels.reshape(len(levels), -1)
    surface = _surface(levels.shape[1])
    return np.asarray(rows - (rows @ surface) @ surface.T, dtype=np.float32).reshape(levels.shape)


def _surface(side: int) -> Levels:
    """Orthonormal columns (side * side, 6) that span the surfaces of second order."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].reshape(2, -1)
    orthonormal, _ = np.linalg.qr(np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1))
    return np.asarray(orthonormal, dtype=np.float32)


def fit(first: Levels, second: Levels) -> Fit:
    """Fit every second structure (n, side, side) by the first one at the same position."""
    middle: Levels = first + second
    given = [
        _centred(first[:, 1:-1, 1:-1]),
        _centred((middle[:, 1:-1, 2:] - middle[:, 1:-1, :-2]) / np.float32(4)),
        _centred((middle[:, 2:, 1:-1] - middle[:, :-2, 1:-1]) / np.float32(4)),
    ]
    wanted = _centred(second[:, 1:-1, 1:-1])
    normal = np.stack([np.stack([_dot(one, other) for other in given], axis=1) for one in given], axis=1)
    normal += 1e-3 * np.eye(len(given), dtype=np.float32)
    answers = np.stack([_dot(one, wanted) for one in given], axis=1)
    factors = np.linalg.solve(normal, answers[:, :, None])[:, :, 0]
    left_over = wanted.copy()
    for number, one in enumerate(given):
        left_over -= factors[:, number, None] * one
    cells = wanted.shape[1]
    spread = np.sqrt(np.sqrt(normal[:, 0, 0] * _dot(wanted, wanted)) / cells)
    return Fit(
        left_over=np.sqrt(_dot(left_over, left_over) / cells) / np.maximum(spread, 1e-6),
        worst_levels=np.abs(left_over).max(axis=1),
        spread_levels=spread,
        gain=factors[:, 0],
        shift_cells=np.abs(factors[:, 1:]).max(axis=1),
    )


def _centred(levels: Levels) -> Levels:
    rows = levels.reshape(len(levels), -1)
    centred: Levels = rows - rows.mean(axis=1, keepdims=True)
    return centred


def _dot(one: Levels, other: Levels) -> Levels:
    products: Levels = np.einsum("nc,nc->n", one, other)
    return products
