"""What goes along with the pictures of a new revision: splits.csv and groups.csv, with the paths of that revision."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tasks.datasets.dataset_layout import DatasetLayout
from tasks.splits import SplitConfig, record_rows
from tasks.splitting.split_drawing import TooFewPictures
from tasks.splitting.split_facts import Looks, divide
from tasks.splitting.split_groups import GROUPS_NAME, groups_text, read_groups
from tasks.splitting.split_record import RECORD_NAME, RecordRow, SplitRecord, read_record, write_record

logger = logging.getLogger(__name__)

Places = Mapping[PurePosixPath, Sequence[PurePosixPath]]
"""Where each picture of a layout goes."""


def copy_record(
    layout: DatasetLayout, places: Places, target: Path, previous: Path | None, config: SplitConfig | None
) -> None:
    """Write splits.csv and groups.csv to `target`.

    A splits.csv of the folder itself counts more than that of `previous`. Without `config` nothing is drawn.
    """
    own = read_record(layout.root / RECORD_NAME)
    earlier = read_record(previous / RECORD_NAME) if previous else SplitRecord()
    if config is None:
        _carry(layout.root, target, earlier.overlaid(own))
        return
    groups = read_groups(layout.root, places, config.picture_column, config.group_column)
    if groups.of:
        placed = {place: groups.of[picture] for picture in groups.of for place in places[picture]}
        (target / GROUPS_NAME).write_text(groups_text(placed, config.picture_column, config.group_column), "utf-8")
    record = _as_in(places, earlier).overlaid(own)
    try:
        divided = divide(layout, config, record, Looks(progress=True))
    except TooFewPictures as error:
        logger.warning("No splits are recorded yet: %s", error)
        _carry(layout.root, target, record, with_groups=False)
        return
    rows = record_rows(divided.choice.splits, divided.labels, divided.groups)
    write_record(target / RECORD_NAME, record.updated(_placed(rows, places)))
    for note in divided.choice.notes:
        logger.info(note)


def _carry(source: Path, target: Path, record: SplitRecord, *, with_groups: bool = True) -> None:
    """Hand on what is there."""
    if record.rows:
        write_record(target / RECORD_NAME, record)
    if with_groups and (source / GROUPS_NAME).is_file():
        shutil.copyfile(source / GROUPS_NAME, target / GROUPS_NAME)


def _as_in(places: Places, record: SplitRecord) -> SplitRecord:
    """A record of copied pictures with the paths that they have in the folder."""
    source_of = {str(place): str(picture) for picture, found in places.items() for place in found}
    return SplitRecord(tuple(replace(row, picture=source_of.get(row.picture, row.picture)) for row in record.rows))


def _placed(rows: Sequence[RecordRow], places: Places) -> list[RecordRow]:
    return [replace(row, picture=str(place)) for row in rows for place in places[PurePosixPath(row.picture)]]
