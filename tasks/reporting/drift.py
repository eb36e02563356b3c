"""What changed between two revisions of a dataset: pictures, labels, classes, and what the pictures and boxes are like.

Pictures are matched by content first and by path second: a renamed picture is no new one. Boxes are compared by class
name, so that a class list in another order is told as that, and not as other labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tasks.reporting.measures import (
    MEASURES,
    NOTABLE_DISTANCE,
    Counts,
    Measure,
    boxes_of,
    is_more_than_chance,
    js_distance,
)
from tasks.scan import DatasetScan

Boxes = Counter[tuple[object, ...]]


@dataclass(frozen=True)
class LabelChange:
    """One picture whose boxes differ: how many there were and are, how many went and came."""

    path: str
    old_boxes: int
    new_boxes: int
    removed: int
    added: int


@dataclass(frozen=True)
class ClassChange:
    """One class by name: id and boxes in both revisions; None where the revision does not have it."""

    name: str
    old_id: int | None
    new_id: int | None
    old_boxes: int
    new_boxes: int
    old_share: float
    new_share: float


@dataclass(frozen=True)
class Shift:
    """How far one measure moved. Medians are None where a revision has no value."""

    measure: Measure
    against: str
    """What is compared with the old revision: the new revision, or the added pictures alone."""
    old_median: float | None
    new_median: float | None
    distance: float
    """Jensen-Shannon distance of the histograms, 0 to 1."""
    notable: bool
    old_counts: tuple[float, ...]
    new_counts: tuple[float, ...]


@dataclass(frozen=True)
class Drift:
    """The change from an old revision to a new one. Paths are those of the new revision where the picture is in it."""

    old_pictures: int
    new_pictures: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    replaced: tuple[str, ...]
    """Same path, other content."""
    renamed: tuple[tuple[str, str], ...]
    """Same content: old path, new path."""
    moved: tuple[tuple[str, str, str], ...]
    """Same content, other split: new path, old split, new split."""
    labels: tuple[LabelChange, ...]
    classes: tuple[ClassChange, ...]
    class_mix_distance: float
    class_mix_notable: bool
    shifts: tuple[Shift, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all changed."""
        listed = (self.added, self.removed, self.replaced, self.renamed, self.moved, self.labels)
        return not any(listed) and not any(change.old_id != change.new_id for change in self.classes)


def compare_scans(old: DatasetScan, new: DatasetScan) -> Drift:
    """What changed from `old` to `new`. No picture is read: all is in the tables."""
    match = _Match(_pictures(old), _pictures(new))
    classes = _compare_classes(old, new)
    mix = (np.array([c.old_boxes for c in classes], float), np.array([c.new_boxes for c in classes], float))
    return Drift(
        old_pictures=len(match.old),
        new_pictures=len(match.new),
        added=match.added,
        removed=match.removed,
        replaced=match.replaced,
        renamed=tuple((before, after) for before, after in match.same if before != after),
        moved=match.moved(),
        labels=_compare_labels(old, new, match),
        classes=classes,
        class_mix_distance=_distance(*mix),
        class_mix_notable=_is_notable(*mix),
        shifts=_shifts(old, new, match),
    )


def _pictures(scan: DatasetScan) -> pd.DataFrame:
    """The rows by path, each picture once; `split` names all of its splits."""
    rows = scan.pictures
    if rows["path"].is_unique:
        return rows.set_index("path", drop=False)
    splits = rows.groupby("path")["split"].agg(lambda names: ", ".join(sorted(set(names))))
    return rows.drop_duplicates("path").set_index("path", drop=False).assign(split=splits)


class _Match:
    """Which picture of the new revision is which of the old one."""

    def __init__(self, old: pd.DataFrame, new: pd.DataFrame) -> None:
        self.old, self.new = old, new
        before: dict[str, str] = dict(zip(old["path"], old["sha256"], strict=True))
        after: dict[str, str] = dict(zip(new["path"], new["sha256"], strict=True))
        kept = [path for path, content in after.items() if before.get(path) == content]
        renamed = _pair_by_content(_without(before, kept), _without(after, kept))
        self.same = sorted([*((path, path) for path in kept), *renamed], key=lambda pair: pair[1])
        gone = _without(before, [path for path, _ in self.same])
        came = _without(after, [path for _, path in self.same])
        self.replaced = tuple(sorted(gone.keys() & came.keys()))
        self.added = tuple(sorted(came.keys() - gone.keys()))
        self.removed = tuple(sorted(gone.keys() - came.keys()))

    def moved(self) -> tuple[tuple[str, str, str], ...]:
        """Pictures of the same content in another split."""
        before, after = self.old["split"].to_dict(), self.new["split"].to_dict()
        found = ((path, str(before[earlier]), str(after[path])) for earlier, path in self.same)
        return tuple(move for move in found if move[1] != move[2])


def _without(contents: dict[str, str], paths: Iterable[str]) -> dict[str, str]:
    left_out = set(paths)
    return {path: content for path, content in contents.items() if path not in left_out}


def _pair_by_content(before: dict[str, str], after: dict[str, str]) -> list[tuple[str, str]]:
    """(old path, new path) of equal content; copies are paired in the order of their paths."""
    waiting: dict[str, list[str]] = {}
    for path in sorted(before, reverse=True):
        waiting.setdefault(before[path], []).append(path)
    return [(waiting[after[path]].pop(), path) for path in sorted(after) if waiting.get(after[path])]


def _compare_classes(old: DatasetScan, new: DatasetScan) -> tuple[ClassChange, ...]:
    """Every class of either revision: the new ones in id order, then those that are gone."""
    before, after = old.layout.class_names, new.layout.class_names
    old_boxes, new_boxes = _boxes_per_class(old), _boxes_per_class(new)
    old_total, new_total = sum(old_boxes.values()) or 1, sum(new_boxes.values()) or 1
    return tuple(
        ClassChange(
            name=name,
            old_id=before.index(name) if name in before else None,
            new_id=after.index(name) if name in after else None,
            old_boxes=old_boxes[name],
            new_boxes=new_boxes[name],
            old_share=old_boxes[name] / old_total,
            new_share=new_boxes[name] / new_total,
        )
        for name in [*after, *(name for name in before if name not in after)]
    )


def _boxes_per_class(scan: DatasetScan) -> Counter[str]:
    numbers = boxes_of(scan.labels)["class_id"].to_numpy(dtype=np.int64)
    counts = np.bincount(numbers, minlength=len(scan.layout.class_names)).tolist()
    return Counter(dict(zip(scan.layout.class_names, counts, strict=True)))


def _compare_labels(old: DatasetScan, new: DatasetScan, match: _Match) -> tuple[LabelChange, ...]:
    """The pictures of both revisions whose boxes differ; a replaced picture counts as the same one."""
    pairs = [*match.same, *((path, path) for path in match.replaced)]
    if old.layout.class_names == new.layout.class_names:
        before, after = match.old["labels_key"].to_dict(), match.new["labels_key"].to_dict()
        pairs = [(earlier, path) for earlier, path in pairs if before[earlier] != after[path]]
    old_boxes = _boxes_by_picture(old, {earlier for earlier, _ in pairs})
    new_boxes = _boxes_by_picture(new, {path for _, path in pairs})
    changes = (_label_change(path, old_boxes[earlier], new_boxes[path]) for earlier, path in sorted(pairs))
    return tuple(change for change in changes if change.removed or change.added)


def _boxes_by_picture(scan: DatasetScan, paths: set[str]) -> dict[str, Boxes]:
    """(class name, rounded box) with its count, per picture."""
    found: dict[str, Boxes] = {path: Counter() for path in paths}
    boxes = boxes_of(scan.labels)
    rows = boxes[boxes["picture"].isin(paths)].drop_duplicates(["picture", "line"])
    columns = ("picture", "class_id", "centre_x", "centre_y", "width", "height")
    for picture, class_id, *box in zip(*(rows[column] for column in columns), strict=True):
        name = scan.layout.class_names[int(class_id)]
        found[picture][(name, *(round(value, 6) for value in box))] += 1
    return found


def _label_change(path: str, old: Boxes, new: Boxes) -> LabelChange:
    return LabelChange(path, old.total(), new.total(), (old - new).total(), (new - old).total())


def _shifts(old: DatasetScan, new: DatasetScan, match: _Match) -> tuple[Shift, ...]:
    """Every measure, old against new; and against the added pictures alone, which a large old part would hide."""
    before = {"pictures": match.old, "boxes": boxes_of(old.labels)}
    after = {"pictures": match.new, "boxes": boxes_of(new.labels)}
    shifts = [_shift(measure, "the new revision", before, after) for measure in MEASURES]
    came = [*match.added, *match.replaced]
    if came and len(came) < len(match.new):
        after = {name: table[table[key].isin(came)] for (name, table), key in zip(after.items(), ("path", "picture"),
                                                                                  strict=True)}  # fmt: skip
        shifts += [_shift(measure, "the added pictures", before, after) for measure in MEASURES]
    return tuple(shifts)


def _shift(measure: Measure, against: str, old: dict[str, pd.DataFrame], new: dict[str, pd.DataFrame]) -> Shift:
    before, after = measure.histogram(old[measure.of]), measure.histogram(new[measure.of])
    return Shift(
        measure=measure,
        against=against,
        old_median=_median(measure, old[measure.of]),
        new_median=_median(measure, new[measure.of]),
        distance=_distance(before, after),
        notable=_is_notable(before, after),
        old_counts=tuple(before.tolist()),
        new_counts=tuple(after.tolist()),
    )


def _distance(old: Counts, new: Counts) -> float:
    """The Jensen-Shannon distance; 0 where either side has nothing to compare."""
    return js_distance(old, new) if old.sum() and new.sum() else 0.0


def _is_notable(old: Counts, new: Counts) -> bool:
    return _distance(old, new) >= NOTABLE_DISTANCE and is_more_than_chance(old, new)


def _median(measure: Measure, table: pd.DataFrame) -> float | None:
    values = measure.known(table)
    return float(np.median(values)) if len(values) else None
