"""Sentences for the report: where the splits come from, and what could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from data_contracts.dataset import Split
from tasks.splitting.split_record import SplitRecord
from tasks.splitting.split_units import PictureLabels, Unit, count_boxes

NOTABLE_POINTS = 0.02
"""A class whose share is further off than this is named."""

Parts = Mapping[Split, Sequence[PurePosixPath]]
Labels = Mapping[PurePosixPath, PictureLabels]


def origin(val: Sequence[PurePosixPath], test: Sequence[PurePosixPath]) -> str:
    """Which parts the dataset names itself, of those that lack val or test."""
    if test:
        return f"The dataset's own test part ({len(test)} pictures) is kept; it has no val part."
    if val:
        return f"The dataset has no test part: its val part ({len(val)} pictures) is the fixed test split."
    return "The dataset has neither val nor test part."


def shares(parts: Parts, wished: Mapping[Split, float], labels: Labels, class_names: Sequence[str]) -> list[str]:
    """The classes of which a drawn part has more or fewer boxes than its share."""
    boxes = {split: count_boxes(parts[split], labels).boxes for split in wished}
    notes = []
    for number, name in enumerate(class_names):
        total = sum(counts.get(number, 0) for counts in boxes.values())
        for split, share in wished.items():
            count = boxes[split].get(number, 0)
            if split != Split.TRAIN and total and abs(count / total - share) > NOTABLE_POINTS:
                notes.append(
                    f"Class {name}: {count} of {total} boxes in {split}, {count / total:.1%} where {share:.0%} was "
                    "wished; nothing nearer was found without moving recorded pictures or parting groups."
                )
    return notes


def mixes(parts: Parts, labels: Labels, class_names: Sequence[str]) -> list[str]:
    """The classes that make up a larger part of train than of val, or the other way round."""
    train, val = (count_boxes(parts[split], labels).boxes for split in (Split.TRAIN, Split.VAL))
    train_total, val_total = sum(train.values()) or 1, sum(val.values()) or 1
    found = ((name, train.get(n, 0) / train_total, val.get(n, 0) / val_total) for n, name in enumerate(class_names))
    return [
        f"Class {name} is {in_train:.1%} of the boxes in train and {in_val:.1%} in val."
        for name, in_train, in_val in found
        if abs(in_train - in_val) > NOTABLE_POINTS
    ]


def crossings(units: Iterable[Unit], parts: Parts, groups: Mapping[PurePosixPath, str]) -> list[str]:
    """Groups and copies that lie in several parts of the dataset's own split."""
    splits: dict[PurePosixPath, set[Split]] = {}
    for split, pictures in parts.items():
        for picture in pictures:
            splits.setdefault(picture, set()).add(split)
    found = [unit.pictures for unit in units if len(set().union(*(splits[one] for one in unit.pictures))) > 1]
    if not found:
        return []
    names = sorted({groups.get(pictures[0], str(pictures[0])) for pictures in found})
    some = ", ".join(names[:5]) + (" .." if len(names) > 5 else "")
    place = "several parts of the dataset's own split"
    return [f"{len(found)} groups or sets of copies lie in {place}: {some}. Results on them flatter the model."]


def moved(parts: Parts, labels: Labels, record: SplitRecord) -> list[str]:
    """How many pictures of the dataset's own parts were in another split before."""
    notes = []
    for split, pictures in parts.items():
        before = [(record.split_of(picture, labels[picture].content), picture) for picture in pictures]
        changed = [(earlier, picture) for earlier, picture in before if earlier not in (None, split)]
        if changed:
            earlier, picture = min(changed, key=lambda change: change[1])
            notes.append(
                f"{len(changed)} pictures are in {split} because the dataset says so, and were not before, such as "
                f"{picture}, which was in {earlier}."
            )
    return notes
