"""A dataset grows, shrinks and is mended: who stays where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_contracts.dataset import Split
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.splits import PictureLabels, SplitChoice, SplitConfig, Ties, choose_splits, record_rows
from tasks.splitting.split_drawing import TooFewPictures
from tasks.splitting.split_record import RecordRow, SplitRecord

CONFIG = SplitConfig(
    seed=3, val_share=0.2, test_share=0.1, group_pattern=None, picture_column="picture", group_column="group",
    near_duplicates=True,
)  # fmt: skip
TRAIN, VAL, TEST = Split


@dataclass(frozen=True)
class _Part:
    """One picture of the made-up dataset."""

    content: str
    class_ids: tuple[int, ...] = (0,)
    group: str | None = None
    part: Split = TRAIN
    name: str = ""

    @property
    def path(self) -> PurePosixPath:
        return PurePosixPath(f"images/{self.part}/{self.name or self.content}.png")


def _many(count: int, start: int = 0) -> list[_Part]:
    return [_Part(f"p{number:03}", ((), (0,), (0, 1, 1))[number % 3]) for number in range(start, start + count)]


def _choose(
    pictures: Sequence[_Part], record: SplitRecord | None = None, near: Sequence[tuple[_Part, _Part]] = ()
) -> SplitChoice:
    splits = {split: tuple(one.path for one in pictures if one.part == split) for split in Split}
    labels = {one.path: PictureLabels(one.class_ids, one.content) for one in pictures}
    groups = {one.path: one.group for one in pictures if one.group}
    ties = Ties(groups, tuple((one.path, other.path) for one, other in near))
    return choose_splits(DatasetLayout(Path("/d"), ("a", "b", "c"), splits), labels, CONFIG, record=record, ties=ties)


def _split_of(choice: SplitChoice, pictures: Sequence[_Part]) -> dict[str, Split]:
    by_path = {path: split for split, paths in choice.splits.items() for path in paths}
    assert sum(map(len, choice.splits.values())) == len(by_path) == len(pictures)
    return {one.content: by_path[one.path] for one in pictures}


def _record(choice: SplitChoice, pictures: Sequence[_Part], before: SplitRecord | None = None) -> SplitRecord:
    labels = {one.path: PictureLabels(one.class_ids, one.content) for one in pictures}
    groups = {one.path: one.group for one in pictures if one.group}
    return (before or SplitRecord()).updated(record_rows(choice.splits, labels, groups))


def _given(**splits: str) -> SplitRecord:
    """What was recorded, as content=split; the names are those of `_Part`."""
    return SplitRecord(tuple(RecordRow(f"images/train/{one}.png", Split(split), one) for one, split in splits.items()))


CHANGES = {
    "pictures added": lambda old: [*old, *_many(25, 100)],
    "pictures removed": lambda old: old[::2],
    "pictures renamed": lambda old: [_Part(one.content, one.class_ids, name=f"new-{one.content}") for one in old],
    "names exchanged": lambda old: [
        _Part(one.content, one.class_ids, name=other.content) for one, other in zip(old, old[::-1], strict=True)
    ],
    "labels mended": lambda old: [_Part(one.content, (2, 2)) for one in old],
    "one class more": lambda old: [*old, *(_Part(f"c{number}", (2,)) for number in range(12))],
    "a val part added": lambda old: [*old, *(_Part(f"v{number}", part=VAL) for number in range(9))],
    "the order": lambda old: old[::-1],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_old_picture_moves(change):
    old = _many(60)
    first = _choose(old)
    before = _split_of(first, old)
    new = change(old)
    after = _split_of(_choose(new, _record(first, old)), new)
    kept = before.keys() & after.keys()
    assert kept
    assert {content: after[content] for content in kept} == {content: before[content] for content in kept}


def test_a_picture_that_comes_back_and_one_whose_file_was_saved_again_keep_their_split():
    old = _many(60)
    first = _choose(old)
    before = _split_of(first, old)
    record = _record(_choose(old[10:], _record(first, old)), old[10:], _record(first, old))
    again = [*old[:59], _Part("saved again", name=old[59].content)]
    after = _split_of(_choose(again, record), again)
    assert all(after[one.content] == before[one.content] for one in old[:59])
    assert after["saved again"] == before[old[59].content]


def test_new_pictures_go_where_pictures_are_lacking():
    old = _many(60)
    record = SplitRecord(tuple(RecordRow(str(one.path), TRAIN, one.content) for one in old))
    after = _choose([*old, *_many(30, 100)], record)
    assert {split: len(paths) for split, paths in after.splits.items()} == {TRAIN: 63, VAL: 18, TEST: 9}


LOT = {"group": "lot"}
RELATIVES = {
    "same group": ([_Part("x", **LOT), _Part("new", **LOT)], [], {"x": "val"}, VAL, ""),
    "same content": ([_Part("x"), _Part("x", name="copy")], [], {"x": "test"}, TEST, ""),
    "near copy": ([_Part("x"), _Part("new")], [(0, 1)], {"x": "test"}, TEST, ""),
    "near copy of a near copy": ([_Part("x"), _Part("y"), _Part("new")], [(0, 1), (1, 2)], {"x": "val"}, VAL, ""),
    "between train and test": (
        [_Part("x"), _Part("y"), _Part("new")], [(0, 2), (1, 2)], {"x": "test", "y": "train"}, TRAIN,
        "1 new pictures belong to pictures of several splits",
    ),
    "between val and test": (
        [_Part("x"), _Part("y"), _Part("new")], [(0, 2), (1, 2)], {"x": "test", "y": "val"}, VAL, "several splits",
    ),
    "its group before its near copy": (
        [_Part("x", **LOT), _Part("y"), _Part("new", **LOT)], [(1, 2)], {"x": "test", "y": "train"}, TEST,
        "several splits",
    ),
    "near copy of the fixed test split": (
        [_Part("x", part=VAL), _Part("new")], [(0, 1)], {}, TRAIN, "1 pictures of train belong by group",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "near", "recorded", "split", "words"), RELATIVES.values(), ids=RELATIVES)
def test_a_new_picture_joins_its_relatives(parts, near, recorded, split, words):
    old = _many(30)
    record = SplitRecord((*_record(_choose(old), old).rows, *_given(**recorded).rows))
    choice = _choose([*old, *parts], record, [(parts[one], parts[other]) for one, other in near])
    assert parts[-1].path in choice.splits[split]
    for content, earlier in recorded.items():
        assert PurePosixPath(f"images/train/{content}.png") in choice.splits[Split(earlier)]
    assert words in " ".join(choice.notes)


def test_a_group_whose_pictures_are_gone_is_remembered():
    old = _many(30)
    rows = (*_record(_choose(old), old).rows, RecordRow("", TEST, "gone", "lot"))
    new = [*old, _Part("new", group="lot")]
    assert _split_of(_choose(new, SplitRecord(rows)), new)["new"] == TEST


def test_relatives_that_lie_in_several_splits_stay_and_are_told():
    old = [*_many(30), _Part("x"), _Part("y")]
    record = SplitRecord((*_record(_choose(old[:30]), old[:30]).rows, *_given(x="train", y="test").rows))
    choice = _choose(old, record, [(old[30], old[31])])
    after = _split_of(choice, old)
    assert (after["x"], after["y"]) == (TRAIN, TEST)
    assert any("1 sets of groups, copies or near copies lie in several splits" in note for note in choice.notes)


def test_the_dataset_s_own_split_counts_more_than_the_record():
    own = [_Part("a"), _Part("b", part=VAL, group="lot"), _Part("c", part=TEST, group="lot")]
    choice = _choose(own, _given(a="train", b="test", c="test"))
    assert _split_of(choice, own) == {"a": TRAIN, "b": VAL, "c": TEST}
    words = " ".join(choice.notes)
    assert "1 pictures are in val because the dataset says so" in words
    assert "images/val/b.png, which was in test" in words
    assert "1 groups or sets of copies lie in several parts of the dataset's own split: lot." in words


def test_a_split_that_is_empty_after_removals_is_told():
    old = _many(4)
    record = _given(p000="train", p001="train", p002="val", p003="val")
    with pytest.raises(TooFewPictures, match=r"4 in all, none left for test. .* correct the groups or splits.csv"):
        _choose(old, record)


def test_a_class_that_makes_up_another_part_of_val_is_told():
    own = [
        *(_Part(f"t{number}", (number % 2,)) for number in range(20)),
        *(_Part(f"v{number}", (0,), part=VAL) for number in range(5)),
        _Part("x", part=TEST),
    ]
    assert "Class b is 50.0% of the boxes in train and 0.0% in val." in _choose(own).notes


_class_ids = st.lists(st.integers(0, 2), max_size=3).map(tuple)
_rows = st.lists(st.tuples(_class_ids, st.integers(0, 9), st.booleans()), min_size=12, max_size=40)


@settings(max_examples=8, deadline=None)
@given(_rows, st.integers(4, 11), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=6), st.randoms())
def test_whatever_is_added_groups_stay_whole_and_nothing_moves(rows, first_count, pairs, rng):
    parts = [_Part(f"{n}", ids, f"g{group}" if grouped else None) for n, (ids, group, grouped) in enumerate(rows)]
    near = [(parts[one], parts[other]) for one, other in pairs if max(one, other) < len(parts)]
    try:
        first = _choose(parts[:first_count])
    except TooFewPictures:
        return
    before = _split_of(first, parts[:first_count])
    record = _record(first, parts[:first_count])
    second = _choose(parts, record, near)
    after = _split_of(second, parts)
    assert {content: after[content] for content in before} == before
    for group in {one.group for one in parts if one.group}:
        assert len({after[one.content] for one in parts if one.group == group}) == 1
    rng.shuffle(parts)
    assert _choose(parts, record, near) == second


@settings(max_examples=8, deadline=None)
@given(_rows, st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=8))
def test_drawn_at_once_near_copies_and_groups_stay_together(rows, pairs):
    parts = [_Part(f"{n}", ids, f"g{group}" if grouped else None) for n, (ids, group, grouped) in enumerate(rows)]
    near = [(parts[one], parts[other]) for one, other in pairs if max(one, other) < len(parts)]
    try:
        choice = _choose(parts, near=near)
    except TooFewPictures:
        return
    split_of = _split_of(choice, parts)
    assert all(split_of[one.content] == split_of[other.content] for one, other in near)
    for group in {one.group for one in parts if one.group}:
        assert len({split_of[one.content] for one in parts if one.group == group}) == 1
    assert all(choice.splits[split] for split in Split)
