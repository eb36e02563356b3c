"""Splits of the five real sets: shares of the classes, near copies together, and nothing moves when a set grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from builders import shared_data
from data_contracts.dataset import Split
from tasks.datasets.dataset_layout import DatasetLayout, read_layout
from tasks.scan import scan_dataset
from tasks.splits import Labels, SplitChoice, SplitConfig, Ties, choose_splits, record_rows
from tasks.splitting.split_facts import COMPARED, near_copies, read_picture_labels
from tasks.splitting.split_record import SplitRecord

SETS = ("deeppcb-yolo", "neu-det-yolo", "lpbf-metal-yolo", "magnetic-tile-yolo", "kolektor-sdd-yolo")
CONFIG = SplitConfig(
    seed=0, val_share=0.2, test_share=0.1, group_pattern=None, picture_column="picture", group_column="group",
    near_duplicates=True,
)  # fmt: skip


def _class_shares(choice: SplitChoice, labels: Labels, pool: set) -> dict[int, tuple[int, float, float]]:
    """Class id to boxes in all, and its shares in train and val, among the pictures of `pool`."""
    counts = {
        split: Counter(name for picture in pictures if picture in pool for name in labels[picture].class_ids)
        for split, pictures in choice.splits.items()
    }
    total = sum(counts.values(), Counter())
    return {
        name: (count, counts[Split.TRAIN][name] / count, counts[Split.VAL][name] / count)
        for name, count in total.items()
    }


def _pooled(layout: DatasetLayout) -> DatasetLayout:
    return replace(layout, splits={Split.TRAIN: layout.splits[Split.TRAIN] + layout.splits[Split.VAL]})


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    ("pooled", "train_share"), [(False, 0.8), (True, 0.7)], ids=["val drawn", "val and test drawn"]
)
def test_classes_get_their_shares_and_near_copies_stay_together(name, pooled, train_share):
    layout = read_layout(shared_data() / name)
    layout = _pooled(layout) if pooled else layout
    labels = read_picture_labels(layout)
    near = near_copies(scan_dataset(layout.root, COMPARED))
    choice = choose_splits(layout, labels, CONFIG, ties=Ties({}, near))
    pool = set(layout.splits[Split.TRAIN])
    for number, (count, in_train, in_val) in _class_shares(choice, labels, pool).items():
        if count >= 25:
            assert (in_train, in_val) == pytest.approx((train_share, 0.2), abs=0.025), layout.class_names[number]
        if abs(in_val - 0.2) > 0.02:
            assert any(f"Class {layout.class_names[number]}: " in note for note in choice.notes)
    split_of = {picture: split for split, pictures in choice.splits.items() for picture in pictures}
    assert all(split_of[one] == split_of[other] for one, other in near if {one, other} <= pool)
    if not pooled:
        assert choice.splits[Split.TEST] == layout.splits[Split.VAL]


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_grows_by_half_moves_nothing(name):
    layout = _pooled(read_layout(shared_data() / name))
    labels = read_picture_labels(layout)
    pictures = sorted(labels)
    some = replace(layout, splits={Split.TRAIN: tuple(pictures[::3] + pictures[1::3])})
    first = choose_splits(some, {one: labels[one] for one in some.splits[Split.TRAIN]}, CONFIG)
    record = SplitRecord().updated(record_rows(first.splits, labels, {}))
    second = choose_splits(layout, labels, CONFIG, record=record)
    assert all(set(first.splits[split]) <= set(second.splits[split]) for split in Split)
    assert sum(map(len, second.splits.values())) == len(pictures)
    assert len(second.splits[Split.VAL]) / len(pictures) == pytest.approx(0.2, abs=0.02)
