"""The gate report's part on the whole split: candidate beside champion, and the paired difference."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.evaluation.evaluation_result import EvaluationResult, SplitIntervals
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_charts import difference_svg
from tasks.gate_report.gate_measures import Measure, Section, change_text, range_chart
from tasks.gate_report.gate_text import points_text
from tasks.gating.golden_slices import GoldenSlice

NONE = SplitIntervals(map50=None, map50_95=None, overkill_rate=None, false_alarms_per_picture=None)
COMPARED = {"map50": "mAP50", "map50_95": "mAP50-95"}


def comparison_section(case: GateCase) -> Section:
    """Candidate beside champion over the whole split."""
    ours, champion = case.evidence.candidate, case.champion_manifest
    sides = [_measures(one) for one in (ours, case.evidence.champion) if one]
    return {
        "pictures": ours.pictures,
        "confidence": f"{100 * ours.settings.confidence:g} %",
        "champion": f"{champion.version} ({champion.digest[:12]})" if champion else "",
        "rows": list(_rows(sides)),
        "difference": _difference(case),
    }


def _measures(one: EvaluationResult) -> dict[str, Measure]:
    bounds = one.intervals or NONE
    escaped, defects = one.escaped_pictures, one.defect_pictures
    overkill = f"{one.overkill_pictures} of {one.good_pictures}"
    return {
        "mAP50": Measure(one.map50, bounds.map50),
        "mAP50-95": Measure(one.map50_95, bounds.map50_95),
        "Defective parts judged OK": Measure(escaped / defects if defects else None, None, f"{escaped} of {defects}"),
        "Good parts judged NG": Measure(one.overkill_rate, bounds.overkill_rate, overkill),
        "False alarms per picture": Measure(one.false_alarms_per_picture, bounds.false_alarms_per_picture, share=False),
    }


def _rows(sides: list[dict[str, Measure]]) -> Iterator[Section]:
    for name in sides[0]:
        measures = [side[name] for side in sides]
        yield {
            "name": name,
            "better": "higher is better" if name.startswith("mAP") else "lower is better",
            "cells": [one.cell() for one in measures],
            "change": change_text(*measures) if len(measures) > 1 else "",
            "range": range_chart(measures, f"{name}, candidate above champion"),
        }


def slices_section(case: GateCase) -> Section | None:
    """Per class what each champion found, and how much of it the candidate finds; None without a champion."""
    found, earlier = case.report.comparison, case.evidence.earlier
    if found is None:
        return None
    columns = [("today's", found.slices), *((one.champion[:12], one.slices) for one in earlier)]
    return {
        "champions": [name for name, _ in columns],
        "rows": [(parts[0].name, [_slice_text(part) for part in parts])
                 for parts in zip(*(slices for _, slices in columns), strict=True)],
        "limit": f"{100 * case.policy.max_forgotten:g} %",
        "least": case.policy.min_slice,
    }  # fmt: skip


def _slice_text(part: GoldenSlice) -> str:
    new = f", {part.newly_found} new" if part.newly_found else ""
    return f"{part.still_found} of {part.champion_found}{new}"


def _difference(case: GateCase) -> Section | None:
    found = case.report.comparison
    if found is None or found.difference is None or found.admission_lower is None or found.promotion_lower is None:
        return None
    bounds = [
        (f"{100 * (1 - found.admission_level):g} %", found.admission_lower, "registered"),
        (f"{100 * (1 - found.promotion_level):g} %", found.promotion_lower, "promoted"),
    ]
    about = f"difference of {COMPARED[found.compared]} to the champion, in points"
    drawn = [(certainty, lower) for certainty, lower, _ in bounds]
    return {
        "compared": COMPARED[found.compared],
        "value": points_text(found.difference),
        "bounds": [(certainty, points_text(lower), use) for certainty, lower, use in bounds],
        "rounds": found.rounds,
        "margin": points_text(-case.policy.margin),
        "svg": difference_svg(found.difference, drawn, case.policy.margin, about),
    }
