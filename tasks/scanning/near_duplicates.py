"""Pictures that are nearly the same: one saved again, moved by a few pixels, made brighter, or the next of a burst.

In three steps, on the thumbnails of the scan: pictures that lie close together on the set's principal components are
candidates; a fit decides about each (`tasks.scanning.thumbnail_match`); of what belongs together, the closest pairs
are kept that hold it together. Pictures of one product under one camera all look alike. Where that would join a large
part of the set, only pairs that are much closer than usual stay. docs/decisions/0010 has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import (
    connected_components,
    minimum_spanning_tree,
)
from threadpoolctl import threadpool_limits

from serving.cpus import threads_from_quota
from tasks.scanning.picture_facts import THUMBNAIL_SIDE
from tasks.scanning.thumbnail_match import LEAST_STRUCTURE, fit, structure

COMPONENTS = 32
"""Directions that candidates are searched along. A distance along them is never more than the whole distance."""
RADIUS_SQUARED = 0.2
"""Between structures of length 1. Copies moved by 2 px in 100 px lie up to 0.18 apart."""
NEIGHBOURS = 4
"""Candidates per picture among those behind it: the closest ones within the radius."""
SAMPLE = 512
"""Pictures that the directions are taken from."""
SMALL_CLUSTER, LARGE_CLUSTER = 4, 30
"""A quarter of a small set, 30 pictures, or 2 % of a large set may be near duplicates of each other. More than that is
the product's own look: then only pairs half as far apart count, again and again."""

MOST_OFF_SHAPE_PX = 3
MOST_OFF_AREA = 1.15
"""A copy that was scaled has the shape of its picture, up to so many pixels of a side; one that was cut otherwise, or
the next frame of a part that is cut out of its picture, has an area that differs by no more than this."""

_ROWS, _COLUMNS, _PAIRS = 512, 512, 512
_ROUNDS = 8

Thumbnails = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Pairs = npt.NDArray[np.int64]
"""(n, 2) positions, the smaller one first."""

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def near_pairs(pictures: pd.DataFrame) -> pd.DataFrame:
    """Near duplicates among the picture rows of a scan, one row per pair: first, second (positions), distance (bits).

    `distance` is that of the perceptual hashes. Exact copies (equal SHA-256) count as one picture, the first one.
    Of a cluster come so many pairs as hold it together, not all. Flat pictures have no near duplicates.
    """
    with threadpool_limits(1, "blas"):  # Small matrices, in threads of our own: more of them would only wait.
        at, leader = _comparable(pictures)
        sizes = pictures[["width_px", "height_px"]].to_numpy(dtype=np.float64)[at]
        pairs, left_over = _confirmed(_thumbnails(pictures, at), sizes, leader)
    pairs = at[_spanning(pairs, left_over, len(at))]
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    bits = _hamming(pictures["perceptual_hash"], pairs)
    return pd.DataFrame({"first": pairs[:, 0], "second": pairs[:, 1], "distance": bits})


def _comparable(pictures: pd.DataFrame) -> tuple[Positions, Positions]:
    """Positions of distinct pictures that show any structure, and for each the first one with an equal thumbnail."""
    is_first = pictures["thumbnail"].notna() & ~pictures["sha256"].duplicated()
    at = np.flatnonzero(is_first.to_numpy())
    blocks = [at[start : start + _PAIRS] for start in range(0, len(at), _PAIRS)]
    spread = [structure(_thumbnails(pictures, block)).std(axis=(1, 2)) for block in blocks]
    at = at[np.concatenate(spread) >= LEAST_STRUCTURE] if spread else at
    which, _ = pd.factorize(pictures["thumbnail"].to_numpy()[at])
    _, first = np.unique(which, return_index=True)
    return at, first[which]


def _thumbnails(pictures: pd.DataFrame, at: Positions) -> Thumbnails:
    """uint8 (n, 32, 32)"""
    levels = b"".join(pictures["thumbnail"].to_numpy()[at])
    return np.frombuffer(levels, np.uint8).reshape(-1, THUMBNAIL_SIDE, THUMBNAIL_SIDE)


def may_be_copies(sizes: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether pictures of these sizes (n, 2) can be copies of each other: one shape, or nearly one area.

    >>> sizes, others = [[640, 480], [344, 300], [240, 184]], [[320, 240], [350, 310], [211, 157]]
    >>> may_be_copies(np.array(sizes, float), np.array(others, float)).tolist()
    [True, True, False]
    """
    off = np.abs(sizes[:, 0] * others[:, 1] - others[:, 0] * sizes[:, 1])
    one_shape = off <= MOST_OFF_SHAPE_PX * np.maximum(sizes.max(axis=1), others.max(axis=1))
    areas, other_areas = sizes.prod(axis=1), others.prod(axis=1)
    one_area = np.maximum(areas, other_areas) <= MOST_OFF_AREA * np.minimum(areas, other_areas)
    alike: npt.NDArray[np.bool_] = one_shape | one_area
    return alike


def _confirmed(thumbnails: Thumbnails, sizes: npt.NDArray[np.float64], leader: Positions) -> tuple[Pairs, Vectors]:
    """Pairs that show the same scene, and what the fit leaves over. Equal thumbnails pair with the first of them."""
    own = np.arange(len(leader))
    followers, leaders = own[leader != own], own[leader == own]
    candidates = leaders[_candidates(_vectors(thumbnails, leaders))]

    def judge(pairs: Pairs) -> tuple[Pairs, Vectors]:
        judged = fit(structure(thumbnails[pairs[:, 0]]), structure(thumbnails[pairs[:, 1]]))
        same = judged.is_same_scene() & may_be_copies(sizes[pairs[:, 0]], sizes[pairs[:, 1]])
        return pairs[same], judged.left_over[same]

    blocks = [candidates[start : start + _PAIRS] for start in range(0, len(candidates), _PAIRS)]
    equal = np.stack([leader[followers], followers], axis=1)
    found = [(equal, np.zeros(len(equal), np.float32)), *_in_parallel(judge, blocks)]
    return np.concatenate([pairs for pairs, _ in found]), np.concatenate([left_over for _, left_over in found])


def _in_parallel(work: Callable[[_Given], _Found], given: Iterable[_Given]) -> Iterator[_Found]:
    """In threads: the arithmetic of arrays runs without the interpreter lock."""
    with ThreadPoolExecutor(threads_from_quota(1)) as pool:
        yield from pool.map(work, given)


def _vectors(thumbnails: Thumbnails, at: Positions) -> Vectors:
    """Structures of length 1 along the principal components of a sample, float32 (n, COMPONENTS)."""
    if not len(at):
        return np.zeros((0, COMPONENTS), np.float32)
    chosen = np.random.default_rng(0).choice(len(at), min(len(at), SAMPLE), replace=False)
    sample = _unit(thumbnails[at[chosen]])
    directions = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2][:COMPONENTS].T
    starts = range(0, len(at), SAMPLE)
    return np.concatenate([_unit(thumbnails[at[start : start + SAMPLE]]) @ directions for start in starts])


def _unit(thumbnails: Thumbnails) -> Vectors:
    rows = structure(thumbnails).reshape(len(thumbnails), -1)
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _candidates(vectors: Vectors) -> Pairs:
    """Each vector with the closest ones behind it. Every pair is looked at, in tiles that fit a CPU's cache."""
    squares = (vectors * vectors).sum(axis=1, keepdims=True)
    ones = np.ones_like(squares)
    rows, columns = np.hstack([vectors, squares, ones]), np.hstack([-2 * vectors, ones, squares])

    def search(top: int) -> Pairs:
        return _nearest(rows[top : top + _ROWS], columns, top)

    found = list(_in_parallel(search, range(0, len(vectors), _ROWS)))
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)


def _nearest(rows: Vectors, columns: Vectors, top: int) -> Pairs:
    """The closest columns behind each row. `rows @ columns.T` are squared distances; the first row stands at `top`."""
    distances = np.full((len(rows), NEIGHBOURS), RADIUS_SQUARED, np.float32)
    positions = np.full((len(rows), NEIGHBOURS), -1, np.int64)
    for left in range(top, len(columns), _COLUMNS):
        tile = rows @ columns[left : left + _COLUMNS].T
        if left == top:
            tile[np.tril_indices(len(rows), m=tile.shape[1])] = np.inf
        closer = np.flatnonzero((tile < distances.max(axis=1, keepdims=True)).any(axis=1))
        if len(closer):
            seen = np.hstack([distances[closer], tile[closer]])
            best = np.argpartition(seen, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
            known = np.take_along_axis(positions[closer], np.minimum(best, NEIGHBOURS - 1), axis=1)
            positions[closer] = np.where(best < NEIGHBOURS, known, best - NEIGHBOURS + left)
            distances[closer] = np.take_along_axis(seen, best, axis=1)
    first, place = np.nonzero(positions >= 0)
    return np.stack([first + top, positions[first, place]], axis=1)


def _spanning(pairs: Pairs, left_over: Vectors, count: int) -> Pairs:
    """The closest pairs that hold the clusters together, of clusters of a usual size."""
    usual = max(min(LARGE_CLUSTER, max(SMALL_CLUSTER, count // 4)), count // 50)
    limit = float(left_over.max(initial=0.0))
    for _ in range(_ROUNDS):
        limit /= 2
        is_usual = _cluster_sizes(pairs, count)[pairs[:, 0]] <= usual
        keep = is_usual | (left_over <= limit)
        pairs, left_over = pairs[keep], left_over[keep]
    graph = coo_array((left_over + 1, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    tree = minimum_spanning_tree(graph.tocsr()).tocoo()
    ends: Pairs = np.stack([tree.row, tree.col], axis=1).astype(np.int64)
    return np.sort(ends, axis=1)


def _cluster_sizes(pairs: Pairs, count: int) -> Positions:
    """The size of the cluster that each picture belongs to."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, which = connected_components(graph.tocsr(), directed=False)
    sizes: Positions = np.bincount(which)[which]
    return sizes


def _hamming(hashes: pd.Series[str], pairs: Pairs) -> npt.NDArray[np.int64]:
    first, second = (np.array([int(value, 16) for value in hashes.iloc[column]], dtype=np.uint64) for column in pairs.T)
    return np.asarray(np.bitwise_count(first ^ second), dtype=np.int64)
