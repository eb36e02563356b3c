"""Groups that a person states: `groups.csv` in the dataset folder says which part, lot or burst a picture shows.

    picture,group
    images/train/0001.png,lot 7

A picture is named by its path in the folder, or by its file name where only one picture has that name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from data_contracts.errors import DatasetError, Problem, raise_if_any
from tasks.scan import group_key
from tasks.splitting.csv_table import MAX_PROBLEMS, read_table

GROUPS_NAME = "groups.csv"


@dataclass(frozen=True)
class Groups:
    """Group of each picture that has one, and sentences about rows and pictures without the other."""

    of: Mapping[PurePosixPath, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_groups(folder: Path, pictures: Iterable[PurePosixPath], picture_column: str, group_column: str) -> Groups:
    """The groups of `groups.csv` in `folder`; none where there is no file.

    Raises DatasetError for a table that cannot be read, one that names none of the pictures, a file name that several
    pictures have, and a picture in two groups.
    """
    path = folder / GROUPS_NAME
    if not path.is_file():
        return Groups()
    action = "Correct the file, or name its columns in the configuration."
    table = read_table(path, required=(picture_column, group_column), action=action)
    known = _Names(pictures)
    found: dict[PurePosixPath, str] = {}
    unknown, problems = [], []
    for line, fields in table:
        written, group = fields[picture_column], fields[group_column]
        matches = known.find(written)
        if len(matches) > 1:
            got = f"{len(matches)} pictures called {written}"
            problems.append(Problem(f"{path}, line {line}", "a path in the dataset folder", got, action))
        elif not matches:
            unknown.append(written)
        elif group and found.setdefault(matches[0], group) != group:
            expected = f"group {found[matches[0]]!r} for {written}, as above"
            problems.append(Problem(f"{path}, line {line}", expected, repr(group), action))
    if table and not found and not problems:
        got = f"{len(table)} rows that name none, such as {table[0][1][picture_column]!r}"
        problems.append(Problem(str(path), "the pictures of the dataset", got, action))
    raise_if_any(DatasetError, problems[:MAX_PROBLEMS])
    return Groups(found, tuple(_notes(unknown, known.count - len(found))))


class _Names:
    """Pictures by path and by file name."""

    def __init__(self, pictures: Iterable[PurePosixPath]) -> None:
        self._paths = set(pictures)
        self._by_name: dict[str, list[PurePosixPath]] = {}
        for picture in sorted(self._paths):
            self._by_name.setdefault(picture.name, []).append(picture)
        self.count = len(self._paths)

    def find(self, written: str) -> list[PurePosixPath]:
        """The pictures that a cell may mean; backslashes are taken as slashes."""
        path = PurePosixPath(written.replace("\\", "/"))
        if path in self._paths:
            return [path]
        return self._by_name.get(path.name, []) if len(path.parts) == 1 else []


def _notes(unknown: list[str], without: int) -> Iterable[str]:
    if unknown:
        yield f"{GROUPS_NAME} names {len(unknown)} pictures that are not there, such as {unknown[0]}."
    if without:
        yield f"{without} pictures have no group in {GROUPS_NAME}."


def with_pattern(groups: Groups, pictures: Iterable[PurePosixPath], group_pattern: str | None) -> Groups:
    """Groups by name for the pictures that have none by column.

    >>> with_pattern(Groups(), [PurePosixPath("images/train/part7_03.png")], r"^(part\\d+)_").of
    {PurePosixPath('images/train/part7_03.png'): 'part7'}
    """
    if group_pattern is None:
        return groups
    pattern = re.compile(group_pattern)
    named = ((picture, group_key(picture, pattern)) for picture in pictures)
    return Groups({picture: group for picture, group in named if group is not None} | dict(groups.of), groups.notes)


def groups_text(groups: Mapping[PurePosixPath, str], picture_column: str, group_column: str) -> str:
    """The groups as CSV, by picture."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((picture_column, group_column))
    writer.writerows(sorted((str(picture), group) for picture, group in groups.items()))
    return text.getvalue()
