"""The parts of the data report as plain values: what the template writes down. No picture is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tasks.reporting.drift import Drift, Shift
from tasks.reporting.drift_text import drift_lists, drift_sentences, number_text
from tasks.reporting.measures import MEASURES, Measure, boxes_of
from tasks.reporting.report_charts import (
    OTHER_COLOUR,
    SCATTER_POINTS,
    SPLIT_COLOURS,
    Curve,
    class_ink,
    coverage,
    heat_map_png,
    histogram_svg,
    scatter_svg,
)
from tasks.reporting.report_examples import BOX_COLUMNS
from tasks.reporting.report_text import by_rule, place_of, plural, rule_totals
from tasks.scan import DatasetScan
from tasks.validation.findings import ValidationReport

ROWS_PER_RULE = 20
LISTED = 40
SIZE_ROWS = 8
MAPS = 60
FEW_CLASSES = 8
"""With more, colours of dots cannot be told apart: all get the same."""
MAP_WIDTH_PX = 168

Section = dict[str, Any]


def head_section(report: ValidationReport, title: str, about: Mapping[str, str], pairs: int) -> Section:
    """Title, verdict, where the data come from, and the numbers that matter most."""
    found = report.by_severity()
    counts = {
        "Pictures": sum(split["pictures"] for split in report.counts.values()),
        "Boxes": sum(split["boxes"] for split in report.counts.values()),
        "Classes": len(report.class_boxes),
        "Errors": found["error"],
        "Warnings": found["warning"],
        "Pairs alike": pairs,
        "Quarantined": len(report.quarantined),
    }
    verdict = "Accepted" if report.accepted else "Rejected"
    reason = ", ".join(plural(count, severity) for severity, count in found.items() if count) or "no findings"
    held = sum(not result.broken for result in report.rules)
    return {
        "rules_held": f"{held} of {plural(len(report.rules), 'rule')} hold." if report.rules else "",
        "title": title,
        "accepted": report.accepted,
        "verdict": f"{verdict}: {reason}",
        "about": list(about.items()),
        "tiles": [(name, f"{count:,}") for name, count in counts.items()],
        "quarantined": {
            "total": len(report.quarantined),
            "shown": [
                (path, ", ".join(report.quarantine_reasons.get(path, ()))) for path in report.quarantined[:LISTED]
            ],
        },
    }


def findings_section(report: ValidationReport) -> list[Section]:
    """Per broken rule, the gravest first: its words, its first findings."""
    totals = rule_totals(report)
    return [
        {
            "name": rule,
            "words": rule.replace("_", " ").capitalize(),
            "severity": findings[0].severity,
            "total": totals[rule],
            "listed": len(findings),
            "actions": list(dict.fromkeys(finding.action for finding in findings)),
            "expected": findings[0].expected if len({finding.expected for finding in findings}) == 1 else "",
            "rows": [{"place": place_of(f), "got": f.got, "expected": f.expected} for f in findings[:ROWS_PER_RULE]],
        }
        for rule, findings in by_rule(report.findings).items()
    ]


def classes_section(report: ValidationReport, scan: DatasetScan) -> Section:
    """Pictures per split, boxes per class and split."""
    splits = [
        {
            "name": name,
            "colour": SPLIT_COLOURS[name],
            "counts": list(counts.values()),
            "largest": max((boxes.get(name, 0) for boxes in report.class_boxes.values()), default=0),
        }
        for name, counts in report.counts.items()
    ]
    pictures = boxes_of(scan.labels).groupby("class_id")["picture"].nunique().to_dict()
    classes = [
        {"name": name, "boxes": list(boxes.values()), "total": sum(boxes.values()), "shares": _shares(boxes),
         "pictures": int(pictures.get(number, 0))}
        for number, (name, boxes) in enumerate(report.class_boxes.items())
    ]  # fmt: skip
    return {"splits": splits, "split_columns": list(next(iter(report.counts.values()), {})), "classes": classes}


def _shares(boxes: Mapping[str, int]) -> str:
    """The splits' shares of a class.

    >>> _shares({"train": 3, "val": 1})
    '75 / 25 %'
    """
    total = sum(boxes.values())
    return " / ".join(f"{100 * count / total:.0f}" for count in boxes.values()) + " %" if total else "-"


def pictures_section(scan: DatasetScan) -> Section:
    """Histograms of what the pictures are like, and their sizes."""
    known = scan.pictures[scan.pictures["width_px"].notna()]
    charts = [_split_chart(measure, known) for measure in MEASURES if measure.of == "pictures" and len(known)]
    columns = ["width_px", "height_px", "mode"]
    sizes = known.groupby(columns, dropna=False).size().reset_index(name="count").sort_values("count", ascending=False)
    rows = [
        {"wh": f"{row['width_px']:.0f} x {row['height_px']:.0f}", "mode": str(row["mode"]), "pictures": row["count"]}
        for row in sizes.head(SIZE_ROWS).to_dict("records")
    ]
    more = plural(len(sizes) - SIZE_ROWS, "size") if len(sizes) > SIZE_ROWS else ""
    return {"picture_charts": charts, "sizes": {"rows": rows, "more": more, "range": _size_range(known)}}


def _size_range(known: pd.DataFrame) -> str:
    """Smallest and largest width and height, in words."""
    if known.empty:
        return ""
    sides = {name: (int(known[f"{name}_px"].min()), int(known[f"{name}_px"].max())) for name in ("width", "height")}
    told = [f"{name} {low:,}" if low == high else f"{name} {low:,} to {high:,}" for name, (low, high) in sides.items()]
    return f"{', '.join(told).capitalize()} pixels, as displayed."


def _split_chart(measure: Measure, table: pd.DataFrame) -> Section:
    """One measure, a curve per split."""
    curves = [
        Curve(name, colour, measure.histogram(table[table["split"] == name]), filled=name == "train")
        for name, colour in SPLIT_COLOURS.items()
        if (table["split"] == name).any()
    ]
    values = measure.known(table)
    words = f"{measure.unit}; median {number_text(float(np.median(values)))}" if len(values) else measure.unit
    return {"title": measure.name.capitalize(), "words": words, "svg": histogram_svg(curves, measure.edges)}


def boxes_section(scan: DatasetScan) -> Section:
    """Sizes, shapes and places of the boxes."""
    boxes = boxes_of(scan.labels)
    names = scan.layout.class_names
    few = len(names) <= FEW_CLASSES
    colours = {number: class_ink(number) if few else OTHER_COLOUR for number in range(len(names))}
    return {
        "boxes": len(boxes),
        "scatter": scatter_svg(boxes, colours),
        "scatter_taken": SCATTER_POINTS if len(boxes) > SCATTER_POINTS else 0,
        "scatter_legend": [(name, colours[number]) for number, name in enumerate(names)] if few else [],
        "box_charts": [_split_chart(measure, boxes) for measure in MEASURES if measure.of == "boxes" and len(boxes)],
        **_maps_section(boxes, names, scan.pictures),
    }


def _maps_section(boxes: pd.DataFrame, names: Sequence[str], pictures: pd.DataFrame) -> Section:
    """A map of all boxes, then one per class, those with the most boxes first."""
    numbers = boxes["class_id"].to_numpy(dtype=np.float64)
    fractions = boxes[list(BOX_COLUMNS)].to_numpy(dtype=np.float64)
    found = [(len(boxes), "all boxes", fractions)] if len(names) > 1 else []
    of_class = ((int((numbers == number).sum()), name, fractions[numbers == number]) for number, name in
                enumerate(names))  # fmt: skip
    held = sorted((entry for entry in of_class if entry[0]), key=lambda entry: -entry[0])
    maps = [
        {"name": name, "boxes": plural(count, "box", "boxes"), "source": heat_map_png(coverage(inside))}
        for count, name, inside in [*found, *held[:MAPS]]
    ]
    height = _map_height(pictures)
    return {"maps": maps if len(boxes) else [], "maps_more": max(0, len(held) - MAPS), "map_wh": (MAP_WIDTH_PX, height)}


def _map_height(pictures: pd.DataFrame) -> int:
    shapes = (pictures["height_px"] / pictures["width_px"]).dropna()
    shape = float(shapes.median()) if len(shapes) else 1.0
    return round(MAP_WIDTH_PX * min(max(shape, 0.25), 2.5))


def drift_section(drift: Drift) -> Section:
    """What changed since the previous revision: sentences, charts of the measures that moved, lists."""
    lists = drift_lists(drift)
    return {
        "sentences": drift_sentences(drift),
        "charts": [_shift_chart(shift) for shift in drift.shifts if shift.notable],
        "classes": [] if drift.is_empty else drift.classes,
        "lists": [(title, entries[:LISTED], len(entries)) for title, entries in lists.items()],
    }


def _shift_chart(shift: Shift) -> Section:
    old, new = (np.array(counts) for counts in (shift.old_counts, shift.new_counts))
    curves = [Curve("before", "#8b98a5", old, filled=True), Curve("now", "#b3261e", new)]
    medians = f"median {number_text(shift.old_median)} to {number_text(shift.new_median)} in {shift.against}"
    return {
        "title": shift.measure.name.capitalize(),
        "words": f"{shift.measure.unit}; {medians}, distance {shift.distance:.2f}",
        "svg": histogram_svg(curves, shift.measure.edges),
    }
