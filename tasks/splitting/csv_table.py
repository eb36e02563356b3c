"""Small CSV tables that people write: named columns, comma, semicolon or tab, UTF-8 with or without BOM."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from data_contracts.errors import DatasetError, Problem, raise_if_any

DELIMITERS = ",;\t"
MAX_PROBLEMS = 20

Rows = list[tuple[int, dict[str, str]]]
"""Line number, from 1, and the stripped values of the asked columns; an optional column that is missing is empty."""


def read_table(path: Path, required: Sequence[str], optional: Sequence[str] = (), *, action: str) -> Rows:
    """The rows of the table at `path`; blank lines and other columns are passed over.

    Raises DatasetError, with `action` as what to do, for text that is no UTF-8, a column that is missing or stands
    twice, and lines with more or fewer values than the header.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte {error.object[error.start]:#04x} at position {error.start}"
        raise DatasetError(Problem(str(path), "text in UTF-8", got, action)) from None
    header, *lines = text.splitlines() or [""]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader([header, *lines], delimiter=delimiter)
    try:
        numbered = [(reader.line_num, [value.strip() for value in values]) for values in reader]
    except csv.Error as error:
        raise DatasetError(Problem(f"{path}, line {reader.line_num}", "CSV", str(error), action)) from None
    columns = numbered.pop(0)[1] if numbered else []
    _require_columns(path, columns, required, optional, action)
    written = [(line, values) for line, values in numbered if any(values)]
    problems = [
        Problem(f"{path}, line {line}", f"{len(columns)} values, as in the header", str(len(values)), action)
        for line, values in written
        if len(values) != len(columns)
    ]
    raise_if_any(DatasetError, problems[:MAX_PROBLEMS])
    found = [(line, dict.fromkeys(optional, "") | dict(zip(columns, values, strict=True))) for line, values in written]
    return [(line, {name: fields[name] for name in (*required, *optional)}) for line, fields in found]


def _require_columns(
    path: Path, columns: list[str], required: Sequence[str], optional: Sequence[str], action: str
) -> None:
    missing = [name for name in required if name not in columns]
    twice = [name for name in (*required, *optional) if columns.count(name) > 1]
    if missing or twice:
        expected = f"each of the columns {', '.join(required)} once"
        got = ", ".join(filter(None, columns)) or "an empty line"
        raise DatasetError(Problem(f"{path}, line 1", expected, got, action))
