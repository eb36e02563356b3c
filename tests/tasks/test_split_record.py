from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from tasks.splitting.split_record import RecordRow, SplitRecord, read_record, record_text, write_record

A, B, C = "a" * 64, "b" * 64, "c" * 64
TRAIN, VAL, TEST = Split
RECORD = SplitRecord((RecordRow("1.png", VAL, A, "lot 1"), RecordRow("2.png", TEST, B), RecordRow("3.png", TRAIN, "")))

LOOKED_UP = {
    "as recorded": ("1.png", A, VAL),
    "renamed": ("new.png", A, VAL),
    "renamed to a recorded name": ("2.png", A, VAL),
    "content replaced": ("2.png", C, TEST),
    "content replaced, the old one still there": ("1.png", C, None),
    "known by path alone": ("3.png", C, TRAIN),
    "new": ("4.png", C, None),
}


@pytest.mark.parametrize(("path", "content", "split"), LOOKED_UP.values(), ids=LOOKED_UP)
def test_which_split_a_picture_keeps(path, content, split):
    record = RECORD.seen_with([A, C])
    assert record.split_of(PurePosixPath(path), content) == split


def test_of_copies_in_several_splits_each_keeps_its_own_and_a_new_one_trains():
    record = SplitRecord((RecordRow("1.png", TEST, A), RecordRow("2.png", TRAIN, A)))
    found = [record.split_of(PurePosixPath(path), A) for path in ("1.png", "2.png", "3.png")]
    assert found == [TEST, TRAIN, TRAIN]


def test_what_is_gone_is_remembered_without_its_path():
    updated = RECORD.updated([RecordRow("9.png", TRAIN, C), RecordRow("2.png", TEST, B)])
    assert updated.rows == (
        RecordRow("2.png", TEST, B), RecordRow("9.png", TRAIN, C), RecordRow("", VAL, A, "lot 1"),
    )  # fmt: skip
    assert updated.split_of(PurePosixPath("back.png"), A) == VAL
    assert updated.splits_of_group("lot 1") == {VAL}


def test_another_record_says_more_than_this_one():
    both = RECORD.overlaid(SplitRecord((RecordRow("x.png", TRAIN, A), RecordRow("3.png", VAL, ""))))
    assert [both.split_of(PurePosixPath(path), content) for path, content in (("1.png", A), ("2.png", B), ("3.png", C))
            ] == [TRAIN, TEST, VAL]  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path):
    rows = RECORD.updated([RecordRow('odd, "name".png', VAL, C, "lot; 2")])
    write_record(tmp_path / "deep" / "splits.csv", rows)
    assert read_record(tmp_path / "deep" / "splits.csv") == rows
    assert record_text(rows).startswith("picture,split,sha256,group\n")


def test_no_file_is_an_empty_record(tmp_path):
    assert read_record(tmp_path / "splits.csv") == SplitRecord()


WRITTEN_BY_HAND = {
    "two columns": "picture,split\na.png,val\n",
    "spreadsheet": "\ufeffsplit;picture;remark\r\nval;a.png;checked\r\n\r\n",
    "tabs": "picture\tsplit\n a.png \t val \n",
}


@pytest.mark.parametrize("text", WRITTEN_BY_HAND.values(), ids=WRITTEN_BY_HAND)
def test_a_table_that_a_person_wrote(text, tmp_path):
    (tmp_path / "splits.csv").write_bytes(text.encode())
    assert read_record(tmp_path / "splits.csv").rows == (RecordRow("a.png", VAL, ""),)


WRONG = {
    "split": (f"picture,split,sha256\na,train,{A}\nb,trian,{B}", r"line 3, column split: expected train, .* 'trian'"),
    "two splits": ("picture,split\na,train\nb,val\na,val", "line 4, a: expected train, as in line 2, got val"),
    "hash": ("picture,split,sha256\na,train,12ab", "line 2, column sha256: expected 64 hexadecimal digits"),
    "columns": ("path,split\na,train", "line 1: expected each of the columns picture, split once, got path, split"),
    "column twice": ("picture,split,split\na,train,val", "line 1: expected each of the columns"),
    "values": ("picture,split\na,train\nb\n", "line 3: expected 2 values, as in the header, got 1"),
    "no picture": ("picture,split\n,train", "line 2, column picture: expected a path"),
    "path outside": ("picture,split\n../a,train\n/b,val\nc\\d,val", "line 2, .*\n.*line 3, .*\n.*line 4, "),
    "empty": ("", "line 1: .* got an empty line"),
    "UTF-16": ("picture,split\na,val".encode("utf-16"), "expected text in UTF-8, got byte 0xff"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_record_is_told_by_line(text, message, tmp_path):
    (tmp_path / "splits.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatasetError, match=message) as caught:
        read_record(tmp_path / "splits.csv")
    assert str(tmp_path / "splits.csv") in str(caught.value)


def test_a_field_that_never_ends_is_told(tmp_path):
    (tmp_path / "splits.csv").write_text('picture,split\n"' + "a" * 140_000 + ",val\n")
    with pytest.raises(DatasetError, match="expected CSV, got field larger than"):
        read_record(tmp_path / "splits.csv")
