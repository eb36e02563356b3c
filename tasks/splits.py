"""Which pictures train, which choose thresholds (val), and which judge (test).

A user's own split is kept. Where it has no test part, its val part becomes the fixed test split and a val part is drawn
from its train part. Drawing is seeded, keeps groups, copies and near copies together and gives every class its share
(`tasks.splitting.stratify`). It is sticky: what a record says of a picture stays, a new one goes to the split of its
group or of its near copies, and only the rest is drawn, each to where it is lacking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import Split
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.scan import GroupPattern
from tasks.splitting import split_notes
from tasks.splitting.split_drawing import Drawn, Pool, draw
from tasks.splitting.split_record import RecordRow, SplitRecord
from tasks.splitting.split_units import PictureLabels, Ties, join_units

__all__ = ["PictureLabels", "SplitChoice", "SplitConfig", "Ties", "choose_splits", "record_rows", "undrawn"]

Parts = dict[Split, list[PurePosixPath]]
Labels = Mapping[PurePosixPath, PictureLabels]


class SplitConfig(Contract):
    """How pictures are shared out where the dataset does not say so itself."""

    seed: int = Field(ge=0, le=2**32 - 1, description="Seed of the drawing.")
    val_share: float = Field(gt=0, le=0.5, description="Share of the drawn-from pictures that becomes val.")
    test_share: float = Field(gt=0, le=0.4, description="Share that becomes test where neither val nor test is given.")
    group_pattern: GroupPattern = Field(
        description="Regular expression on a picture's name; its first group is the part, lot or burst."
    )
    picture_column: str = Field(min_length=1, description="Column of groups.csv with the picture.")
    group_column: str = Field(min_length=1, description="Column of groups.csv with the part, lot or burst.")
    near_duplicates: bool = Field(description="Whether pictures that nearly look the same stay in one split.")


@dataclass(frozen=True)
class SplitChoice:
    """The pictures of every split, and sentences for the report on how they came there."""

    splits: dict[Split, tuple[PurePosixPath, ...]]
    notes: tuple[str, ...]


def undrawn(layout: DatasetLayout, labels: Labels, record: SplitRecord) -> tuple[PurePosixPath, ...]:
    """The pictures for which neither the dataset nor the record names a split."""
    if layout.splits.get(Split.VAL) and layout.splits.get(Split.TEST):
        return ()
    train = layout.splits.get(Split.TRAIN, ())
    return tuple(picture for picture in train if record.split_of(picture, labels[picture].content) is None)


def choose_splits(
    layout: DatasetLayout,
    labels: Labels,
    config: SplitConfig,
    *,
    record: SplitRecord | None = None,
    ties: Ties | None = None,
) -> SplitChoice:
    """Train, val and test of a dataset. Raises TooFewPictures when there is too little to draw from."""
    ties = ties or Ties()
    record = (record or SplitRecord()).seen_with(facts.content for facts in labels.values())
    train, val, test = (layout.splits.get(split, ()) for split in Split)
    if val and test:
        parts: Parts = {Split.TRAIN: [*train], Split.VAL: [*val], Split.TEST: [*test]}
        units = join_units([*train, *val, *test], labels, ties)
        notes = ["The dataset's own split is kept.", *split_notes.crossings(units, parts, ties.groups)]
        return _choice(parts, [*notes, *split_notes.moved(parts, labels, record)], labels, layout)
    fixed = test or val
    wished = {Split.VAL: config.val_share} | ({} if fixed else {Split.TEST: config.test_share})
    shares = {Split.TRAIN: 1 - sum(wished.values()), **wished}
    drawn = draw(Pool(train, fixed, labels, ties), record, shares, config.seed)
    notes = [split_notes.origin(val, test), _drawing_note(drawn, train, config), *drawn.notes]
    notes += split_notes.shares(drawn.parts, shares, labels, layout.class_names)
    notes += split_notes.moved({Split.TEST: [*fixed]}, labels, record)
    parts = drawn.parts | {Split.TEST: [*fixed, *drawn.parts[Split.TEST]]}
    return _choice(parts, notes, labels, layout)


def _choice(parts: Parts, notes: list[str], labels: Labels, layout: DatasetLayout) -> SplitChoice:
    mixes = split_notes.mixes(parts, labels, layout.class_names)
    return SplitChoice({split: tuple(sorted(parts[split])) for split in Split}, (*notes, *mixes))


def _drawing_note(drawn: Drawn, train: Sequence[PurePosixPath], config: SplitConfig) -> str:
    new = {split: len(pictures) for split, pictures in drawn.new.items() if pictures}
    kept = len(train) - sum(new.values())
    if not new:
        return f"All {kept} train pictures keep the split recorded for them."
    ties = [f"grouped by {config.group_pattern!r}"] if config.group_pattern else []
    ties += ["near copies together"] if config.near_duplicates else []
    how = ", ".join(["stratified by class", *ties, f"seed {config.seed}"])
    counts = ", ".join(f"{count} {split}" for split, count in new.items())
    earlier = f"{kept} train pictures keep the split recorded for them; " if kept else ""
    return f"{earlier}{sum(new.values())} train pictures were given out ({counts}): {how}."


def record_rows(
    splits: Mapping[Split, Iterable[PurePosixPath]], labels: Labels, groups: Mapping[PurePosixPath, str]
) -> list[RecordRow]:
    """What to remember of a choice, one row per picture."""
    return [
        RecordRow(str(picture), split, labels[picture].content, groups.get(picture, ""))
        for split, pictures in splits.items()
        for picture in pictures
    ]
