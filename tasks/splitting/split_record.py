"""`splits.csv`: which split each picture of a dataset was given, so that it keeps it when the dataset changes.

    picture,split,sha256,group
    images/train/part7_1.png,val,5e88..,part7

A picture is known by its content; its path counts where the content was replaced, or where a person left sha256 empty.
A row without a picture remembers one that is no longer in the dataset.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from data_contracts.dataset import Split
from data_contracts.errors import DatasetError, Problem, raise_if_any
from serving.atomic import write_atomically
from tasks.splitting.csv_table import MAX_PROBLEMS, Rows, read_table

RECORD_NAME = "splits.csv"
COLUMNS = ("picture", "split", "sha256", "group")
ACTION = "Correct the file, or remove it: all splits are then drawn anew."

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RecordRow:
    """One picture: path relative to the dataset folder ("" when it is gone), split, content and group ("" for none)."""

    picture: str
    split: Split
    sha256: str
    group: str = ""


@dataclass(frozen=True)
class SplitRecord:
    """The splits given so far."""

    rows: tuple[RecordRow, ...] = ()
    contents: frozenset[str] = field(default=frozenset(), compare=False)
    """SHA-256 of the pictures at hand; a path counts for a picture only when its recorded content is none of them."""

    def split_of(self, picture: PurePosixPath, content: str) -> Split | None:
        """The split of a picture, or None when it is new."""
        path = str(picture)
        if (path, content) in self._exact:
            return self._exact[path, content]
        if content in self._by_content:
            return self._by_content[content]
        row = self._by_path.get(path)
        return row.split if row is not None and row.sha256 not in self.contents else None

    def splits_of_group(self, group: str) -> frozenset[Split]:
        """The splits that hold pictures of `group`, also of pictures that are gone."""
        return self._by_group.get(group, frozenset())

    def seen_with(self, contents: Iterable[str]) -> SplitRecord:
        """The same record for a dataset with these contents."""
        return SplitRecord(self.rows, frozenset(contents))

    def updated(self, rows: Iterable[RecordRow]) -> SplitRecord:
        """`rows` for the pictures of today, and what was recorded of others, which are gone."""
        today = sorted(set(rows), key=_order)
        contents = {row.sha256 for row in today}
        gone = {
            RecordRow("", row.split, row.sha256, row.group): None
            for row in self.rows
            if row.sha256 and row.sha256 not in contents
        }
        return SplitRecord((*today, *sorted(gone, key=_order)))

    def overlaid(self, other: SplitRecord) -> SplitRecord:
        """This record, where `other` says nothing else about a picture."""
        contents = {row.sha256 for row in other.rows if row.sha256}
        paths = {row.picture for row in other.rows if row.picture and not row.sha256}
        kept = (row for row in self.rows if row.sha256 not in contents and row.picture not in paths)
        return SplitRecord((*other.rows, *kept))

    @cached_property
    def _exact(self) -> dict[tuple[str, str], Split]:
        return {(row.picture, row.sha256): row.split for row in self.rows if row.picture}

    @cached_property
    def _by_content(self) -> dict[str, Split]:
        """Of copies in several splits, the first of train, val and test counts."""
        order = {split: number for number, split in enumerate(Split)}
        rows = sorted((row for row in self.rows if row.sha256), key=lambda row: -order[row.split])
        return {row.sha256: row.split for row in rows}

    @cached_property
    def _by_path(self) -> dict[str, RecordRow]:
        return {row.picture: row for row in self.rows if row.picture}

    @cached_property
    def _by_group(self) -> Mapping[str, frozenset[Split]]:
        found: dict[str, set[Split]] = {}
        for row in self.rows:
            if row.group:
                found.setdefault(row.group, set()).add(row.split)
        return {group: frozenset(splits) for group, splits in found.items()}


def _order(row: RecordRow) -> tuple[str, str, str, str]:
    return row.picture, row.sha256, row.split, row.group


def read_record(path: Path) -> SplitRecord:
    """The record at `path`; an empty one where there is no file. Raises DatasetError naming the wrong lines."""
    if not path.is_file():
        return SplitRecord()
    table = read_table(path, required=COLUMNS[:2], optional=COLUMNS[2:], action=ACTION)
    problems = [
        Problem(f"{path}, line {line}, column {column}", expected, repr(fields[column]), ACTION)
        for line, fields in table
        for column, expected in _faults(fields)
    ]
    raise_if_any(DatasetError, [*problems, *_contradictions(path, table)][:MAX_PROBLEMS])
    rows = (RecordRow(row["picture"], Split(row["split"]), row["sha256"], row["group"]) for _, row in table)
    return SplitRecord(tuple(rows))


def _contradictions(path: Path, table: Rows) -> Iterator[Problem]:
    """Rows that give a picture another split than an earlier row."""
    first: dict[tuple[str, str], tuple[int, str]] = {}
    for line, row in table:
        earlier, split = first.setdefault((row["picture"], row["sha256"]), (line, row["split"]))
        if row["picture"] and split != row["split"]:
            expected = f"{split}, as in line {earlier}"
            yield Problem(f"{path}, line {line}, {row['picture']}", expected, row["split"], ACTION)


def _faults(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Column and what it should be, for each value of a row that is wrong."""
    path = PurePosixPath(fields["picture"])
    if fields["split"] not in set(Split):
        yield "split", "train, val or test"
    if fields["sha256"] and not _SHA256.fullmatch(fields["sha256"]):
        yield "sha256", "64 hexadecimal digits, or nothing"
    if not fields["picture"] and not fields["sha256"]:
        yield "picture", "a path"
    if path.is_absolute() or ".." in path.parts or "\\" in fields["picture"]:
        yield "picture", "a path relative to the dataset folder, with /"


def write_record(path: Path, record: SplitRecord) -> None:
    """Write the record at once or not at all; equal records give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, record_text(record).encode())


def record_text(record: SplitRecord) -> str:
    """The record as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((row.picture, row.split.value, row.sha256, row.group) for row in record.rows)
    return text.getvalue()
