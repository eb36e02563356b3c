"""What earlier scans found, kept as parquet: one folder per dataset folder, class list and limits.

Two tables, one row per picture file and one per label row, of a picture each once, whatever splits name it. Both files
carry the same number of their scan, so that two processes that write at once leave a pair that fits, or one that is
told not to fit and made anew. Nothing here is needed: what cannot be read is scanned again.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
import uuid
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from data_contracts.base import canonical_json
from serving.images import ImageLimits
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.scanning.picture_facts import PictureFacts

FORMAT = 1
"""Raise it when the tables or the meaning of a column change: older tables are then not read."""
KEEP_DAYS = 60
"""Tables that no scan has used for so long are removed."""

_SCAN_ID = b"scan"
FACTS = tuple(PictureFacts.__dataclass_fields__)
PICTURE_COLUMNS = ("path", "stamp", "label_stamp", "label_state", "boxes", "labels_key", *FACTS)
LABEL_COLUMNS = (
    "picture", "line", "text", "class_id", "centre_x", "centre_y", "width", "height", "rule", "expected", "got",
)  # fmt: skip
_WHOLE = ("boxes", "size_bytes", "line")
_NUMBERS = (
    "width_px", "height_px", "bit_depth", "exif_orientation", "brightness", "contrast", "sharpness",
    "class_id", "centre_x", "centre_y", "width", "height",
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """The two tables, indexed by position. Numbers are floats where one may be missing."""

    pictures: pd.DataFrame
    labels: pd.DataFrame

    def by_content(self) -> dict[str, PictureFacts]:
        """SHA-256 to the facts of a picture file."""
        rows = self.pictures[list(FACTS)].astype(object)
        rows = rows.where(rows.notna(), None)
        return {row[1]: PictureFacts(*_as_written(row)) for row in rows.itertuples(index=False, name=None)}


def _as_written(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Whole numbers as integers again: a column with gaps holds floats."""
    whole = {"width_px", "height_px", "bit_depth", "exif_orientation"}
    return tuple(
        int(value) if name in whole and value is not None else value for name, value in zip(FACTS, row, strict=True)
    )


def typed(rows: list[tuple[Any, ...]], columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows as a table whose column types do not depend on what the rows hold."""
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return pd.DataFrame({name: _column(name, list(column)) for name, column in zip(columns, values, strict=True)})


def _column(name: str, values: list[Any]) -> pd.Series[Any]:
    if name == "thumbnail":
        return pd.Series(values, dtype=object)
    kind = "int64" if name in _WHOLE else "float64" if name in _NUMBERS else "str"
    return pd.Series(values, dtype=kind)


NOTHING = Known(typed([], PICTURE_COLUMNS), typed([], LABEL_COLUMNS))


class ScanCache:
    """The tables of one dataset folder below `home`."""

    def __init__(self, home: Path, layout: DatasetLayout, limits: ImageLimits) -> None:
        self._home = home
        self._content_key = _short([FORMAT, *astuple(limits)])
        self._folder = home / f"{self._content_key}-{_short([str(layout.root.resolve()), *layout.class_names])}"

    def load(self) -> tuple[Known, dict[str, PictureFacts]]:
        """The tables of this folder, and picture facts by content.

        For a folder that was never scanned these come from the folder scanned last, with the same limits: the next
        revision of a dataset holds mostly the same pictures.
        """
        if own := _load(self._folder):
            return own, {}
        others = sorted(self._home.glob(f"{self._content_key}-*"), key=_last_used, reverse=True)
        other = next(filter(None, map(_load, others)), NOTHING)
        return NOTHING, other.by_content()

    def keep(self, known: Known, *, is_new: bool) -> None:
        """Replace the tables if they are new, and note that they were used. A full disk does not fail a scan."""
        scan_id = uuid.uuid4().hex.encode()
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, table in (("pictures", known.pictures), ("labels", known.labels)) if is_new else ():
                _write(self._folder / f"{name}.parquet", table, scan_id)
            (self._folder / "used").touch()
            self._remove_unused()

    def _remove_unused(self) -> None:
        oldest = time.time() - KEEP_DAYS * 86400
        for folder in self._home.iterdir():
            if _last_used(folder) < oldest and (folder / "used").exists():
                shutil.rmtree(folder, ignore_errors=True)


def _short(value: list[Any]) -> str:
    return hashlib.blake2b(canonical_json([str(part) for part in value]), digest_size=8).hexdigest()


def _last_used(folder: Path) -> float:
    try:
        return (folder / "used").stat().st_mtime
    except OSError:
        return 0.0


def _load(folder: Path) -> Known | None:
    try:
        pictures, labels = (pq.read_table(folder / f"{name}.parquet") for name in ("pictures", "labels"))
        fits = (pictures.schema.metadata or {})[_SCAN_ID] == (labels.schema.metadata or {})[_SCAN_ID]
        known = Known(pictures.to_pandas(), labels.to_pandas())
    except (OSError, KeyError, ValueError, pa.ArrowException):  # absent, cut off, or not ours
        return None
    columns = (tuple(known.pictures.columns), tuple(known.labels.columns))
    return known if fits and columns == (PICTURE_COLUMNS, LABEL_COLUMNS) else None


def _write(path: Path, frame: pd.DataFrame, scan_id: bytes) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    draft = path.with_name(f".{path.name}.{scan_id.decode()}.tmp")
    try:
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), _SCAN_ID: scan_id}), draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
