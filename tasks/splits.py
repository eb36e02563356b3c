"""Which pictures train, which choose thresholds (val), and which judge (test).

A user's own split is kept. Where it has no test part, its val part becomes the fixed test split and a val part is drawn
from its train part. Drawing is seeded, keeps groups and exact copies together and gives every class its share
(iterative stratification: the rarest class first, each unit to the part that lacks that class most).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError, Problem
from tasks.dataset_layout import DatasetLayout
from tasks.scan import GroupPattern, group_key

BACKGROUND = -1
"""Stands for "no defect" among the class ids, so that pictures without defects are shared out like a class."""

NOTABLE_POINTS = 0.02
"""A class whose share in val is further off than this is named in the notes."""


class SplitConfig(Contract):
    """How pictures are shared out where the dataset does not say so itself."""

    seed: int = Field(ge=0, le=2**32 - 1, description="Seed of the drawing.")
    val_share: float = Field(gt=0, le=0.5, description="Share of the drawn-from pictures that becomes val.")
    test_share: float = Field(gt=0, le=0.5, description="Share that becomes test where neither val nor test is given.")
    group_pattern: GroupPattern = Field(
        description="Regular expression on a picture's name; its first group is the part, lot or burst."
    )


@dataclass(frozen=True)
class PictureLabels:
    """What drawing needs to know of one picture: class ids of its boxes, and a hash of its content."""

    class_ids: tuple[int, ...]
    content: str


@dataclass(frozen=True)
class SplitChoice:
    """The pictures of every split, and sentences for the report on how they came there."""

    splits: dict[Split, tuple[PurePosixPath, ...]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Unit:
    """Pictures that must stay together."""

    pictures: tuple[PurePosixPath, ...]
    boxes: Counter[int]


def choose_splits(
    layout: DatasetLayout, labels: Mapping[PurePosixPath, PictureLabels], config: SplitConfig
) -> SplitChoice:
    """Train, val and test of a dataset. Raises DatasetError when there is too little to draw from."""
    given = {split: pictures for split, pictures in layout.splits.items() if pictures}
    train = given.get(Split.TRAIN, ())
    val, test = given.get(Split.VAL), given.get(Split.TEST)
    if val and test:
        return SplitChoice(
            {Split.TRAIN: train, Split.VAL: val, Split.TEST: test}, ("The dataset's own split is kept.",)
        )
    fixed = test or val
    shares = {Split.VAL: config.val_share} if fixed else {Split.VAL: config.val_share, Split.TEST: config.test_share}
    drawn = _draw(train, labels, shares, config)
    notes = [_origin_note(val, test), _drawing_note(drawn, train, config), *_share_notes(drawn, labels, layout, shares)]
    splits = drawn | ({Split.TEST: fixed} if fixed else {})
    return SplitChoice({split: tuple(sorted(splits[split])) for split in Split}, tuple(notes))


def _origin_note(val: tuple[PurePosixPath, ...] | None, test: tuple[PurePosixPath, ...] | None) -> str:
    if test:
        return f"The dataset's own test part ({len(test)} pictures) is kept; it has no val part."
    if val:
        return f"The dataset has no test part: its val part ({len(val)} pictures) is the fixed test split."
    return "The dataset has neither val nor test part."


def _drawing_note(
    drawn: dict[Split, tuple[PurePosixPath, ...]], train: tuple[PurePosixPath, ...], config: SplitConfig
) -> str:
    parts = " and ".join(f"{len(drawn[split])} as {split}" for split in drawn if split != Split.TRAIN)
    groups = f", grouped by {config.group_pattern!r}" if config.group_pattern else ""
    return f"Of {len(train)} train pictures {parts} were drawn, stratified by class{groups}, seed {config.seed}."


def _draw(
    pictures: tuple[PurePosixPath, ...],
    labels: Mapping[PurePosixPath, PictureLabels],
    shares: dict[Split, float],
    config: SplitConfig,
) -> dict[Split, tuple[PurePosixPath, ...]]:
    units = _units(pictures, labels, config.group_pattern)
    if len(units) <= len(shares):
        expected = f"more than {len(shares)} groups of pictures to draw from"
        action = "Add pictures, name val and test in data.yaml, or correct group_pattern."
        raise DatasetError(Problem("split train", expected, str(len(units)), action))
    shares = {Split.TRAIN: 1 - sum(shares.values()), **shares}
    parts = _stratify(units, shares, random.Random(config.seed))  # noqa: S311  Not for secrets.
    return {split: tuple(picture for unit in parts[split] for picture in unit.pictures) for split in shares}


def _units(
    pictures: Iterable[PurePosixPath], labels: Mapping[PurePosixPath, PictureLabels], group_pattern: str | None
) -> list[_Unit]:
    """Pictures that share a group key or their content, joined; sorted, so that only the seed decides."""
    pattern = re.compile(group_pattern) if group_pattern else None
    members: dict[str, list[PurePosixPath]] = {}
    unit_of: dict[str, str] = {}
    for picture in sorted(pictures):
        keys = {f"content {labels[picture].content}", f"group {group_key(picture, pattern) or picture}"}
        known = sorted({unit_of[key] for key in keys if key in unit_of})
        unit = known[0] if known else str(picture)
        joined = [member for name in known for member in members.pop(name)]
        members[unit] = [*joined, picture]
        unit_of = {key: unit if name in known else name for key, name in unit_of.items()} if len(known) > 1 else unit_of
        unit_of.update(dict.fromkeys(keys, unit))
    return [_Unit(tuple(unit), _count(unit, labels)) for _, unit in sorted(members.items())]


def _count(pictures: Iterable[PurePosixPath], labels: Mapping[PurePosixPath, PictureLabels]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for picture in pictures:
        counted.update(labels[picture].class_ids or (BACKGROUND,))
    return counted


def _stratify(units: list[_Unit], shares: dict[Split, float], rng: random.Random) -> dict[Split, list[_Unit]]:
    """Each unit to the part that lacks its rarest class most; ties go to the part that lacks pictures most.

    Lacking is relative to a part's share: otherwise the largest part takes all crowded pictures first.
    """
    left = rng.sample(units, len(units))
    total = sum((unit.boxes for unit in units), Counter[int]())
    pictures = sum(len(unit.pictures) for unit in units)
    lacking = {part: {name: float(count) for name, count in total.items()} for part in shares}
    room = dict.fromkeys(shares, float(pictures))
    parts: dict[Split, list[_Unit]] = {part: [] for part in shares}
    while left:
        holders = Counter(name for unit in left for name in unit.boxes)
        rarest = min(holders, key=lambda name: (holders[name], name))
        chosen = sorted((unit for unit in left if rarest in unit.boxes), key=lambda unit: -unit.boxes[rarest])
        for unit in chosen:
            part = max(parts, key=lambda name: (lacking[name][rarest], room[name]))
            parts[part].append(unit)
            room[part] -= len(unit.pictures) / shares[part]
            for name, count in unit.boxes.items():
                lacking[part][name] -= count / shares[part]
        left = [unit for unit in left if rarest not in unit.boxes]
    return _none_empty(parts)


def _none_empty(parts: dict[Split, list[_Unit]]) -> dict[Split, list[_Unit]]:
    """With very few units a small share can come out empty: it then gets the last unit of the largest part."""
    for units in parts.values():
        if not units:
            units.append(max(parts.values(), key=len).pop())
    return parts


def _share_notes(
    drawn: dict[Split, tuple[PurePosixPath, ...]],
    labels: Mapping[PurePosixPath, PictureLabels],
    layout: DatasetLayout,
    shares: dict[Split, float],
) -> list[str]:
    counted = {split: _count(pictures, labels) for split, pictures in drawn.items()}
    total = sum(counted.values(), Counter[int]())
    return [
        f"Class {layout.class_names[name]}: {counted[split][name]} of {count} boxes in {split}, "
        f"{counted[split][name] / count:.1%} where {share:.0%} was wished; its pictures or groups allow no better."
        for name, count in sorted(total.items())
        for split, share in shares.items()
        if name != BACKGROUND and abs(counted[split][name] / count - share) > NOTABLE_POINTS
    ]
