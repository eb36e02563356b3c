"""Splits of datasets that record none, made with plain git and DVC: this machine keeps a ledger for them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from tasks.datasets.dataset_layout import DatasetLayout
from tasks.datasets.pinned_copy import file_lock
from tasks.splits import SplitConfig, record_rows
from tasks.splitting.split_facts import Divided, Looks, divide
from tasks.splitting.split_record import RECORD_NAME, SplitRecord, read_record, write_record


def divide_with_ledger(layout: DatasetLayout, config: SplitConfig, ledger: Path | None, looks: Looks) -> Divided:
    """The splits of `layout`. What its own splits.csv does not say, `ledger` says or is told.

    Two processes that use one ledger wait for each other. Raises DatasetError as `divide` does, and for a table that
    is wrong.
    """
    own = read_record(layout.root / RECORD_NAME)
    with file_lock(ledger.with_suffix(".lock")) if ledger else nullcontext():
        kept = read_record(ledger) if ledger else SplitRecord()
        record = kept.overlaid(own)
        divided = divide(layout, config, record, looks)
        if ledger and (kept.rows or divided.drawn):
            rows = record_rows(divided.choice.splits, divided.labels, divided.groups)
            write_record(ledger, record.updated(rows))
    return divided
