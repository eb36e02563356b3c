"""Reads the files of a dataset that changed since the last scan, in parallel, and puts old and new rows together."""

from __future__ import annotations

import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console
from rich.progress import Progress

from serving.cpus import threads_from_quota
from serving.images import ImageLimits
from tasks.scanning.picture_facts import A_READABLE_FILE, PictureFacts, read_picture
from tasks.scanning.scan_cache import FACTS, LABEL_COLUMNS, PICTURE_COLUMNS, Known, typed
from tasks.scanning.scan_rows import LabelFacts, read_labels

SETTLED_NS = 2 * 10**9
"""A file that changed less than this before it was read may change again without a new time: it is not trusted yet."""

_CHUNK = 16
_NO_FILE = "-"
_NO_PLAIN_FILE = "?"
"""In the place of the file is a folder, a pipe, a dead link, or what may not be looked at: read again each time."""
_facts_of = attrgetter(*FACTS)
_LABEL_FACTS = ("label_stamp", "label_state", "boxes", "labels_key")

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Read = tuple[PictureFacts | None, LabelFacts | None]


@dataclass(frozen=True)
class Files:
    """The pictures of a dataset, each once, and their label files. Paths are relative to `root`."""

    root: Path
    pictures: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True)
class Reader:
    """How files are read. `contents`: facts of other pictures by SHA-256, which spare the decoding."""

    limits: ImageLimits
    class_count: int
    contents: dict[str, PictureFacts]

    def read(self, picture: str | None, labels: str | None) -> _Read:
        """The facts of the two files; None for one that is not to be read."""
        return (
            read_picture(Path(picture), self.limits, self.contents) if picture else None,
            read_labels(Path(labels), self.class_count) if labels else None,
        )


def update(known: Known, files: Files, reader: Reader, *, full: bool = False, progress: bool = False) -> Known:
    """The tables for `files`, in their order: old rows of unchanged files, new ones for all others.

    It is `known` itself when nothing changed. `full` reads every file.
    """
    settled_ns = time.time_ns() - SETTLED_NS
    stamps, label_stamps = _stamps(files.root, files.pictures), _stamps(files.root, files.labels)
    at = _positions(known.pictures["path"], files.pictures)
    picture_is_old = _is_same(known.pictures["stamp"], at, stamps) & (not full)
    labels_are_old = _is_same(known.pictures["label_stamp"], at, label_stamps) & (not full)
    if picture_is_old.all() and labels_are_old.all() and np.array_equal(at, np.arange(len(known.pictures))):
        return known
    if not picture_is_old.all():
        reader = replace(reader, contents=reader.contents | known.by_content())
    read = _read_all(files, reader, ~picture_is_old, ~labels_are_old, progress=progress)
    new_facts = [
        (files.pictures[n], _trusted(stamps[n], settled_ns, facts), *_facts_of(facts))
        for n, (facts, _) in read.items()
        if facts
    ]
    new_labels = [
        (_trusted(label_stamps[n], settled_ns), labels.state, labels.boxes, labels.key)
        for n, (_, labels) in read.items()
        if labels
    ]
    pictures = pd.concat(
        [
            _interleave(known.pictures, ("path", "stamp", *FACTS), at, picture_is_old, new_facts),
            _interleave(known.pictures, _LABEL_FACTS, at, labels_are_old, new_labels),
        ],
        axis=1,
    )
    return Known(pictures[list(PICTURE_COLUMNS)], _label_rows(known.labels, files, labels_are_old, read))


def _stamps(root: Path, paths: Sequence[str]) -> list[str]:
    """Size, time of change and inode of each file; "-" where there is none, "?" where it is no plain one."""
    return [_stamp(f"{root}/{path}") for path in paths]


def _stamp(path: str) -> str:
    try:
        facts = os.stat(path)  # noqa: PTH116 - 100,000 times
    except OSError:
        return _NO_PLAIN_FILE if os.path.lexists(path) else _NO_FILE
    return f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}" if stat.S_ISREG(facts.st_mode) else _NO_PLAIN_FILE


def _trusted(stamp: str, settled_ns: int, facts: PictureFacts | None = None) -> str:
    """The stamp to keep: "", which no file has, for one that must be read again next time."""
    if stamp == _NO_FILE and facts is None:
        return stamp
    is_unread = facts is not None and facts.expected == A_READABLE_FILE
    is_settled = stamp not in (_NO_FILE, _NO_PLAIN_FILE) and int(stamp.split()[1]) <= settled_ns
    return stamp if is_settled and not is_unread else ""


def _positions(column: pd.Series[str], wanted: Sequence[str]) -> Positions:
    """Where each wanted value stands in the column; -1 where it does not."""
    return np.asarray(pd.Index(column).get_indexer(pd.Index(pd.Series(wanted, dtype="str"))), dtype=np.int64)


def _is_same(column: pd.Series[str], at: Positions, stamps: Sequence[str]) -> Mask:
    old = column.to_numpy(dtype=object)
    if not len(old):
        return np.zeros(len(at), dtype=np.bool_)
    same: Mask = (at >= 0) & (old[at] == np.array(stamps, dtype=object))
    return same


def _read_all(files: Files, reader: Reader, pictures: Mask, labels: Mask, *, progress: bool) -> dict[int, _Read]:
    """Position to what was read, for every position at which one of the two files is to be read."""
    wanted = [int(n) for n in np.flatnonzero(pictures | labels)]
    root = files.root

    def read(numbers: Sequence[int]) -> list[_Read]:
        return [
            reader.read(
                f"{root}/{files.pictures[n]}" if pictures[n] else None,
                f"{root}/{files.labels[n]}" if labels[n] else None,
            )
            for n in numbers
        ]

    with warnings.catch_warnings(), ThreadPoolExecutor(threads_from_quota(1)) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd headers; what matters becomes a row.
        found = pool.map(read, _chunks(wanted))
        return dict(zip(wanted, chain.from_iterable(_shown(found, len(wanted), progress=progress)), strict=True))


def _chunks(numbers: list[int]) -> list[list[int]]:
    return [numbers[start : start + _CHUNK] for start in range(0, len(numbers), _CHUNK)]


def _shown(found: Iterator[list[_Read]], total: int, *, progress: bool) -> Iterator[list[_Read]]:
    """`found`, with a bar on standard error when that is a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not (progress and sys.stderr.isatty()), transient=True) as bar:
        task = bar.add_task("reading pictures", total=total)
        for chunk in found:
            bar.advance(task, len(chunk))
            yield chunk


def _interleave(
    old: pd.DataFrame, columns: tuple[str, ...], at: Positions, is_old: Mask, new: list[tuple[Any, ...]]
) -> pd.DataFrame:
    """Old rows where `is_old`, the new ones in turn elsewhere."""
    kept = old[list(columns)].take(at[is_old])
    table = pd.concat([kept, typed(new, columns)], ignore_index=True)
    order = np.argsort(np.concatenate([np.flatnonzero(is_old), np.flatnonzero(~is_old)]))
    return table.take(order).reset_index(drop=True)


def _label_rows(old: pd.DataFrame, files: Files, is_old: Mask, read: dict[int, _Read]) -> pd.DataFrame:
    numbers = _positions_of_rows(old["picture"], files.pictures)
    kept = (numbers >= 0) & is_old[numbers] if len(is_old) else numbers >= 0
    new = [(files.pictures[n], *row) for n, (_, labels) in read.items() if labels for row in labels.rows]
    new_numbers = [n for n, (_, labels) in read.items() if labels for _ in labels.rows]
    table = pd.concat([old[kept], typed(new, LABEL_COLUMNS)], ignore_index=True)
    order = np.argsort(np.concatenate([numbers[kept], np.array(new_numbers, dtype=np.int64)]), kind="stable")
    return table.take(order).reset_index(drop=True)


def _positions_of_rows(column: pd.Series[str], pictures: Sequence[str]) -> Positions:
    """For each row the position of its picture; -1 for a picture that is gone."""
    return _positions(pd.Series(pictures, dtype="str"), column.tolist())
