from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from data_contracts.errors import DatasetError
from tasks.splitting.split_groups import Groups, groups_text, read_groups, with_pattern

PICTURES = [PurePosixPath(path) for path in ("images/train/1.png", "images/train/2.png", "images/val/2.png")]
FIRST, SECOND, THIRD = PICTURES

READ = {
    "paths": ("picture,group\nimages/train/1.png,lot 7\nimages/val/2.png,lot 8\n", {FIRST: "lot 7", THIRD: "lot 8"}),
    "a name that is unique": ("picture,group\n1.png,lot 7\n", {FIRST: "lot 7"}),
    "backslashes and dot": ("picture;group\n.\\images\\train\\2.png;lot 7\n", {SECOND: "lot 7"}),
    "no group": ("picture,group\nimages/train/1.png,\n1.png,a\n", {FIRST: "a"}),
}


@pytest.mark.parametrize(("text", "groups"), READ.values(), ids=READ)
def test_groups_by_column(text, groups, tmp_path):
    (tmp_path / "groups.csv").write_text(text)
    found = read_groups(tmp_path, PICTURES, "picture", "group")
    assert found.of == groups
    assert f"{len(PICTURES) - len(groups)} pictures have no group" in found.notes[-1]


def test_other_columns_and_pictures_that_are_not_there(tmp_path):
    (tmp_path / "groups.csv").write_text("File,Charge,x\n1.png,7,\ngone.png,8,\n")
    found = read_groups(tmp_path, PICTURES, "File", "Charge")
    assert found.of == {FIRST: "7"}
    assert found.notes[0] == "groups.csv names 1 pictures that are not there, such as gone.png."


def test_no_file_is_no_groups(tmp_path):
    assert read_groups(tmp_path, PICTURES, "picture", "group") == Groups()


WRONG = {
    "two groups": ("1.png,a\nimages/train/1.png,b", "line 3: expected group 'a' for images/train/1.png, .* got 'b'"),
    "a name that two have": ("2.png,a", "line 2: expected a path in the dataset folder, got 2 pictures called 2.png"),
    "none of the pictures": ("train/1.png,a", "expected the pictures of the dataset, got 1 rows that name none"),
    "columns": ("", "line 1: expected each of the columns name, lot once, got picture, group"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_told_by_line(case, tmp_path):
    rows, message = WRONG[case]
    (tmp_path / "groups.csv").write_text(f"picture,group\n{rows}\n")
    columns = ("name", "lot") if case == "columns" else ("picture", "group")
    with pytest.raises(DatasetError, match=message):
        read_groups(tmp_path, PICTURES, *columns)


def test_names_group_the_pictures_that_the_table_leaves_out():
    groups = with_pattern(Groups({FIRST: "lot 7"}), PICTURES, r"^(\d)")
    assert groups.of == {FIRST: "lot 7", SECOND: "2", THIRD: "2"}
    assert with_pattern(Groups({FIRST: "lot 7"}), PICTURES, None).of == {FIRST: "lot 7"}


def test_groups_are_read_as_they_were_written(tmp_path):
    groups = {FIRST: 'lot "7", late', THIRD: "lot 8"}
    (tmp_path / "groups.csv").write_text(groups_text(groups, "file", "lot"))
    assert read_groups(tmp_path, PICTURES, "file", "lot").of == groups
