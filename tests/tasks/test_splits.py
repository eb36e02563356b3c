from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from pydantic import ValidationError

from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.splits import PictureLabels, SplitChoice, SplitConfig, Ties, choose_splits
from tasks.splitting.split_groups import Groups, with_pattern

CONFIG = SplitConfig(
    seed=7,
    val_share=0.2,
    test_share=0.1,
    group_pattern=None,
    picture_column="picture",
    group_column="group",
    near_duplicates=True,
)


def _pictures(split: str, count: int) -> tuple[PurePosixPath, ...]:
    return tuple(PurePosixPath(f"images/{split}/part{number // 4}_{number:03}.png") for number in range(count))


def _layout(**counts: int) -> DatasetLayout:
    return DatasetLayout(
        Path("/d"), ("pit", "scratch"), {Split(name): _pictures(name, count) for name, count in counts.items()}
    )


def _labels(layout: DatasetLayout) -> dict[PurePosixPath, PictureLabels]:
    """Of ten pictures, seven hold a pit, one of these two scratches as well, and three hold nothing."""
    return {
        picture: PictureLabels(((0,) if number % 10 < 6 else (0, 1, 1) if number % 10 == 6 else ()), str(picture))
        for pictures in layout.splits.values()
        for number, picture in enumerate(pictures)
    }


def _choose(config: SplitConfig = CONFIG, **counts: int) -> SplitChoice:
    layout = _layout(**counts)
    return choose_splits(layout, _labels(layout), config)


def _sizes(choice: SplitChoice) -> tuple[int, int, int]:
    return tuple(len(choice.splits[split]) for split in Split)


CASES = {
    "own split kept": ({"train": 30, "val": 7, "test": 5}, (30, 7, 5), "own split"),
    "val becomes test": ({"train": 100, "val": 9}, (80, 20, 9), "fixed test split"),
    "test kept, val drawn": ({"train": 100, "test": 9}, (80, 20, 9), "no val part"),
    "nothing given": ({"train": 100}, (70, 20, 10), "neither"),
    "an empty val is none": ({"train": 100, "val": 0}, (70, 20, 10), "neither"),
    "very little": ({"train": 3}, (1, 1, 1), "neither"),
}


@pytest.mark.parametrize(("counts", "sizes", "words"), CASES.values(), ids=CASES)
def test_where_the_parts_come_from(counts, sizes, words):
    choice = _choose(**counts)
    assert _sizes(choice) == sizes
    assert words in " ".join(choice.notes)
    everything = [picture for pictures in choice.splits.values() for picture in pictures]
    assert len(set(everything)) == len(everything) == sum(counts.values())


def test_a_user_s_val_is_the_test_split_unchanged():
    assert _choose(train=50, val=9).splits[Split.TEST] == _pictures("val", 9)


def test_every_class_and_the_background_get_their_share():
    layout = _layout(train=200)
    labels = _labels(layout)
    choice = choose_splits(layout, labels, CONFIG)
    for share, split in ((0.7, Split.TRAIN), (0.2, Split.VAL), (0.1, Split.TEST)):
        ids = [labels[picture].class_ids for picture in choice.splits[split]]
        assert sum(1 in found for found in ids) == pytest.approx(20 * share, abs=1)
        assert sum(0 in found for found in ids) == pytest.approx(140 * share, abs=2)
        assert sum(not found for found in ids) == pytest.approx(60 * share, abs=2)


def test_the_seed_alone_decides():
    assert _choose(train=80) == _choose(train=80)
    assert _choose(train=80) != _choose(CONFIG.model_copy(update={"seed": 8}), train=80)


def test_the_order_of_the_pictures_does_not_matter():
    layout = _layout(train=80)
    turned = DatasetLayout(layout.root, layout.class_names, {Split.TRAIN: layout.splits[Split.TRAIN][::-1]})
    assert choose_splits(turned, _labels(layout), CONFIG) == choose_splits(layout, _labels(layout), CONFIG)


def test_groups_and_copies_stay_together():
    layout = _layout(train=80)
    labels = _labels(layout)
    first, last = layout.splits[Split.TRAIN][0], layout.splits[Split.TRAIN][-1]
    labels[last] = PictureLabels((0,), labels[first].content)  # The same bytes in two groups join the groups.
    groups = with_pattern(Groups(), labels, r"^(part\d+)_").of
    choice = choose_splits(layout, labels, CONFIG, ties=Ties(groups))
    split_of = {picture: split for split, pictures in choice.splits.items() for picture in pictures}
    groups: dict[str, set[Split]] = {}
    for picture, split in split_of.items():
        groups.setdefault(picture.stem.split("_")[0], set()).add(split)
    assert {len(splits) for splits in groups.values()} == {1}
    assert groups[first.stem.split("_")[0]] == groups[last.stem.split("_")[0]]
    assert len(choice.splits[Split.VAL]) >= 8


def test_a_share_that_cannot_be_met_is_told():
    layout = _layout(train=20)
    labels = {picture: PictureLabels((0,), str(picture)) for picture in layout.splits[Split.TRAIN]}
    labels[layout.splits[Split.TRAIN][3]] = PictureLabels((1, 1, 1), "rare")
    notes = choose_splits(layout, labels, CONFIG).notes
    assert any("Class scratch" in note and "0 of 3" in note for note in notes)


def test_too_little_to_draw_from_is_refused():
    with pytest.raises(DatasetError, match="more than 2 groups"):
        _choose(train=2)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ValidationError, match="no regular expression"):
        SplitConfig.model_validate(CONFIG.model_dump() | {"group_pattern": "("})
