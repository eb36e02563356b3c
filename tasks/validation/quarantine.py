"""Quarantine: pictures with a fault of their own are kept out of training and listed, and the rest goes on.

Nothing is deleted or moved: the pinned folder stays as it is, and the list says what was left out and why.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from serving.atomic import write_atomically
from tasks.validation.expectations import RuleOutcome

QUARANTINE_FILE = "quarantine.csv"
PICTURE_COLUMN = {"pictures": "path", "labels": "picture"}
"""The tables whose rows belong to one picture, and the column that names it."""


def quarantined_pictures(
    outcomes: Iterable[RuleOutcome], tables: dict[str, pd.DataFrame]
) -> dict[str, tuple[str, ...]]:
    """The pictures of the rows that break these rules, in sorted order, each with the rules that it breaks."""
    rules: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.rows is not None:
            broken = tables[outcome.table][PICTURE_COLUMN[outcome.table]].iloc[outcome.rows].unique()
            for picture in broken:
                rules.setdefault(str(picture), []).append(outcome.rule)
    return {picture: tuple(rules[picture]) for picture in sorted(rules)}


def write_quarantine(quarantined: dict[str, tuple[str, ...]], folder: Path) -> Path:
    """Write quarantine.csv to `folder`, one row per picture; also without any, so that an old list goes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("picture", "rules"))
    writer.writerows((picture, " ".join(rules)) for picture, rules in quarantined.items())
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / QUARANTINE_FILE, text.getvalue().encode("utf-8", "surrogateescape"), durable=False)
    return folder / QUARANTINE_FILE
