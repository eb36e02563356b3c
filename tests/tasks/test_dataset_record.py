"""splits.csv and groups.csv of a dataset's revisions, on real files."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path, PurePosixPath

import pytest

from builders import encode, noisy_plate, write_mini_dataset
from data_contracts.base import sha256_of
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from tasks.datasets.dataset_copy import copy_dataset
from tasks.datasets.dataset_layout import read_layout
from tasks.splits import SplitConfig
from tasks.splitting.split_record import SplitRecord, read_record

CONFIG = SplitConfig(
    seed=0, val_share=0.2, test_share=0.1, group_pattern=None, picture_column="picture", group_column="group",
    near_duplicates=False,
)  # fmt: skip


def _add(source: Path, target: Path, previous: Path | None = None, config: SplitConfig | None = CONFIG) -> SplitRecord:
    copy_dataset(read_layout(source), target, previous=previous, splits=config)
    return read_record(target / "splits.csv")


def _by_content(record: SplitRecord) -> dict[str, Split]:
    return {row.sha256: row.split for row in record.rows}


def test_every_picture_is_recorded_at_the_path_that_it_gets(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20, "valid": 4}).folder
    record = _add(source, tmp_path / "t")
    assert {row.picture for row in record.rows} == {
        path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob("*.png")
    }
    for row in record.rows:
        assert row.sha256 == sha256_of((tmp_path / "t" / row.picture).read_bytes())
        assert (row.split == Split.TEST) == row.picture.startswith("images/val/")
    assert sum(row.split == Split.VAL for row in record.rows) in {4, 5}


def test_a_revision_with_more_pictures_and_other_names_moves_nothing(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20}).folder
    first = _by_content(_add(source, tmp_path / "1"))
    for path in sorted((source / "images").rglob("*.png")):
        path.rename(path.with_name(f"new-{path.name}"))
    for number in range(8):
        (source / f"images/train/p{number}.png").write_bytes(encode(noisy_plate(seed=number)))
    second = _by_content(_add(source, tmp_path / "2", tmp_path / "1"))
    assert len(second) == 28
    assert {content: second[content] for content in first} == first
    again = _by_content(_add(source, tmp_path / "3", tmp_path / "2", CONFIG.model_copy(update={"seed": 9})))
    assert again == second


def test_the_same_content_gives_the_same_bytes(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20}).folder
    _add(source, tmp_path / "1")
    _add(source, tmp_path / "2", tmp_path / "1")
    assert (tmp_path / "1/splits.csv").read_bytes() == (tmp_path / "2/splits.csv").read_bytes()


def test_a_split_that_the_folder_writes_down_counts_more(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20}).folder
    _add(source, tmp_path / "1")
    rows = "".join(f"images/train/p{number}.png,{'val' if number < 10 else 'train'}\n" for number in range(19))
    (source / "splits.csv").write_text(f"picture,split\n{rows}images/train/p19.png,test\n")
    record = _add(source, tmp_path / "2", tmp_path / "1")
    found = {PurePosixPath(row.picture).stem: row.split for row in record.rows}
    assert found == {f"p{number}": Split.VAL if number < 10 else Split.TRAIN for number in range(19)} | {
        "p19": Split.TEST
    }


@pytest.mark.parametrize(
    ("name", "text"), [("splits.csv", "picture,split\na,b\n"), ("groups.csv", "picture,group\nx.png,1\n")]
)
def test_a_wrong_table_stops_the_revision(name, text, tmp_path):
    source = write_mini_dataset(tmp_path / "s").folder
    (source / name).write_text(text)
    with pytest.raises(DatasetError, match=name):
        _add(source, tmp_path / "t")


def test_groups_by_column_stay_together_and_go_along_with_their_new_paths(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20, "valid": 2}).folder
    rows = "".join(f"p{number}.png;lot {number // 4}\n" for number in range(20))
    (source / "groups.csv").write_text(f"file;charge\n{rows}p20.png;lot 9\n")
    config = CONFIG.model_copy(update={"picture_column": "file", "group_column": "charge"})
    record = _add(source, tmp_path / "1", config=config)
    splits = {}
    for row in record.rows:
        splits.setdefault(row.group, set()).add(row.split)
    assert all(len(found) == 1 for group, found in splits.items() if group)
    assert "images/val/p20.png,lot 9" in (tmp_path / "1/groups.csv").read_text()
    copied = _add(tmp_path / "1", tmp_path / "2", tmp_path / "1", config=config)
    assert copied == record


def test_a_late_picture_of_a_lot_goes_where_the_lot_is(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20}, parts_per_group=2).folder
    config = CONFIG.model_copy(update={"group_pattern": r"^(part\d+)_"})
    record = _add(source, tmp_path / "1", config=config)
    for number in range(10):
        (source / f"images/train/part{number}_9.png").write_bytes(encode(noisy_plate(seed=number)))
    second = _add(source, tmp_path / "2", tmp_path / "1", config)
    split_of_lot = {row.group: row.split for row in record.rows}
    assert len(split_of_lot) == 10
    assert all(row.split == split_of_lot[row.group] for row in second.rows)


def test_near_copies_stay_together(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 4}).folder
    for number in range(12):
        image = noisy_plate((128, 128), seed=number)[::8, ::8].repeat(16, axis=0).repeat(16, axis=1)
        (source / f"images/train/a{number}.png").write_bytes(encode(image))
        (source / f"images/train/b{number}.png").write_bytes(encode((image * 0.95).astype("uint8")))
    record = _add(source, tmp_path / "t", config=CONFIG.model_copy(update={"near_duplicates": True}))
    found = {PurePosixPath(row.picture).stem: row.split for row in record.rows}
    assert all(found[f"a{number}"] == found[f"b{number}"] for number in range(12))
    assert set(found.values()) == set(Split)


def test_too_little_to_draw_from_leaves_no_record_but_a_revision(tmp_path, caplog):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 2}).folder
    with caplog.at_level(logging.WARNING):
        record = _add(source, tmp_path / "t")
    assert record == SplitRecord()
    assert not (tmp_path / "t/splits.csv").exists()
    assert "No splits are recorded yet" in caplog.text
    assert len(list((tmp_path / "t/images").rglob("*.png"))) == 2


def test_without_a_configuration_the_record_is_handed_on(tmp_path):
    source = write_mini_dataset(tmp_path / "s", counts={"train": 20}).folder
    record = _add(source, tmp_path / "1")
    shutil.rmtree(source / "images/train")
    shutil.copytree(tmp_path / "1/images/train", source / "images/train")
    assert _add(source, tmp_path / "2", tmp_path / "1", config=None) == record


def test_a_listed_background_gets_an_empty_label_file(tmp_path):
    source = write_mini_dataset(tmp_path / "s").folder
    (source / "labels/train/p4.txt").unlink()
    (source / "labels/train/p3.txt").unlink()
    (source / "backgrounds.txt").write_text("images/train/p4.png\n")
    _add(source, tmp_path / "t")
    assert (tmp_path / "t/labels/train/p4.txt").read_bytes() == b""
    assert not (tmp_path / "t/labels/train/p3.txt").exists()
