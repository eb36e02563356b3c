"""The change between two revisions in words: sentences for people, a text for the terminal, fields for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tasks.reporting.drift import ClassChange, Drift, Shift
from tasks.reporting.report_text import plural, text_table

SHOWN = 10
LABELS_CHANGED, PICTURES_ADDED = "labels changed", "pictures added"
SHARE_POINTS = 0.02
"""A class whose share of the boxes moved less than this is not named."""


def drift_sentences(drift: Drift) -> list[str]:
    """What a person should know, the gravest first. One sentence where nothing changed."""
    if drift.is_empty:
        return ["Nothing changed: the same pictures with the same boxes."]
    return [
        *_class_list_sentences(drift.classes),
        _picture_sentence(drift),
        *_label_sentence(drift),
        *_mix_sentence(drift),
        *(_shift_sentence(shift) for shift in drift.shifts if shift.notable),
    ]


def _picture_sentence(drift: Drift) -> str:
    counts = {
        "added": len(drift.added), "removed": len(drift.removed), "replaced by another of the same name":
        len(drift.replaced), "renamed": len(drift.renamed), "moved to another split": len(drift.moved),
    }  # fmt: skip
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "all the same"
    return f"Pictures: {drift.old_pictures:,} before, {drift.new_pictures:,} now; {told}."


def _label_sentence(drift: Drift) -> list[str]:
    if not drift.labels:
        return []
    added, removed = (sum(getattr(change, what) for change in drift.labels) for what in ("added", "removed"))
    return [f"Labels of {plural(len(drift.labels), 'picture')} changed: boxes came: {added:,}, went: {removed:,}."]


def _class_list_sentences(classes: Sequence[ClassChange]) -> Iterator[str]:
    """Classes that were renamed (one went, one came at its id), are new, are gone, or changed their id."""
    gone = {change.old_id: change for change in classes if change.new_id is None}
    came = {change.new_id: change for change in classes if change.old_id is None}
    for number in sorted(gone.keys() & came.keys(), key=str):
        old, new = gone.pop(number), came.pop(number)
        yield f"Class {number} was {old.name!r} and is {new.name!r} now."
    for change in came.values():
        yield f"Class {change.name!r} is new (id {change.new_id}, {plural(change.new_boxes, 'box', 'boxes')})."
    for change in gone.values():
        yield f"Class {change.name!r} is gone (it had id {change.old_id}, {plural(change.old_boxes, 'box', 'boxes')})."
    for change in classes:
        if None not in (change.old_id, change.new_id) and change.old_id != change.new_id:
            yield f"Class {change.name!r} had id {change.old_id} and has id {change.new_id} now."


def _mix_sentence(drift: Drift) -> list[str]:
    if not drift.class_mix_notable:
        return []
    moved = sorted(drift.classes, key=lambda change: -abs(change.new_share - change.old_share))
    named = [
        f"{change.name} {change.old_share:.1%} to {change.new_share:.1%}"
        for change in moved[:SHOWN]
        if abs(change.new_share - change.old_share) >= SHARE_POINTS
    ]
    told = f": {', '.join(named)} of the boxes" if named else ""
    return [f"The class mix moved (distance {drift.class_mix_distance:.2f}){told}."]


def _shift_sentence(shift: Shift) -> str:
    medians = f"median {number_text(shift.old_median)} before, {number_text(shift.new_median)} in {shift.against}"
    return (
        f"{shift.measure.name.capitalize()} differs ({shift.measure.unit}): {medians}, distance {shift.distance:.2f}."
    )


def number_text(value: float | None) -> str:
    """A number with as many digits as it needs.

    >>> number_text(0.1234), number_text(0.5), number_text(12.34), number_text(12345.6), number_text(None)
    ('0.12', '0.5', '12.3', '12,346', '-')
    """
    if value is None:
        return "-"
    text = f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def render_drift(drift: Drift, shown: int = SHOWN) -> str:
    """The change as plain text for a terminal."""
    lines = drift_sentences(drift)
    if drift.is_empty:
        return "\n".join(lines) + "\n"
    rows = [
        [change.name, _id_text(change), f"{change.old_boxes}", f"{change.new_boxes}", f"{change.old_share:.1%}",
         f"{change.new_share:.1%}"]
        for change in drift.classes
    ]  # fmt: skip
    lines += ["", *text_table(["class", "id", "boxes before", "now", "share before", "now"], rows)]
    rows = [
        [shift.measure.name, shift.against, number_text(shift.old_median), number_text(shift.new_median),
         f"{shift.distance:.2f}", "differs" if shift.notable else ""]
        for shift in drift.shifts
    ]  # fmt: skip
    lines += ["", *text_table(["measure", "old revision against", "median before", "now", "distance", ""], rows)]
    for title, entries in drift_lists(drift).items():
        lines += ["", f"{title} ({len(entries):,})", *(f"  {entry}" for entry in entries[:shown])]
        if len(entries) > shown:
            lines.append(f"  .. and {len(entries) - shown:,} more; --json lists all")
    return "\n".join(lines) + "\n"


def _id_text(change: ClassChange) -> str:
    if change.old_id == change.new_id:
        return str(change.new_id)
    return f"{'-' if change.old_id is None else change.old_id} -> {'-' if change.new_id is None else change.new_id}"


def drift_lists(drift: Drift) -> dict[str, list[str]]:
    """Titles and entries of what is listed by picture; nothing where nothing is."""
    lists = {
        LABELS_CHANGED: [
            f"{change.path}: boxes {change.old_boxes} -> {change.new_boxes}, came {change.added}, went {change.removed}"
            for change in drift.labels
        ],
        PICTURES_ADDED: list(drift.added),
        "pictures removed": list(drift.removed),
        "pictures replaced": list(drift.replaced),
        "pictures renamed": [f"{old} -> {new}" for old, new in drift.renamed],
        "pictures moved to another split": [f"{path}: {old} -> {new}" for path, old, new in drift.moved],
    }
    return {title: entries for title, entries in lists.items() if entries}


def drift_fields(drift: Drift) -> dict[str, Any]:
    """The change as fields for JSON: everything, with the sentences."""
    fields = asdict(drift)
    fields["shifts"] = [
        {"measure": shift.measure.name, "unit": shift.measure.unit, "against": shift.against,
         "old_median": shift.old_median, "new_median": shift.new_median, "distance": round(shift.distance, 6),
         "notable": shift.notable}
        for shift in drift.shifts
    ]  # fmt: skip
    return {"changed": not drift.is_empty, "sentences": drift_sentences(drift), **fields}
