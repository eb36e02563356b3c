"""The gate report's parts on classes, on INT8 and on what the candidate costs, as plain values."""

from __future__ import annotations

from collections.abc import Iterator

from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from tasks.evaluation.evaluation_result import ClassIntervals, ClassResult, EvaluationResult
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_measures import Measure, Section, range_chart
from tasks.gate_report.gate_text import minus, number_text, points_text, share_text
from tasks.gating.speed_result import Cost

NONE = ClassIntervals(ap50=None, escape_rate=None, false_alarms_per_picture=None, overkill_rate=None)


def classes_section(case: GateCase) -> list[Section]:
    """One entry per class of the dataset: counts, rates with intervals, and the champion's beside them."""
    ours, champion = case.evidence.candidate, case.evidence.champion
    before = {one.name: one for one in champion.classes} if champion else {}
    return [_class(one, ours, before.get(one.name)) for one in ours.classes]


def _class(one: ClassResult, split: EvaluationResult, before: ClassResult | None) -> Section:
    sides = [_measures(result, split) for result in (one, before) if result]
    return {
        "name": one.name,
        "instances": one.instances,
        "threshold": number_text(one.threshold, 2),
        "precision": share_text(one.precision),
        "cells": [
            {
                **measures[0].cell(),
                "champion": measures[1].cell()["value"] if before and measures[1].value is not None else "",
                "svg": range_chart(measures, f"{one.name}: {name}"),
            }
            for name in sides[0]
            for measures in [[side[name] for side in sides]]
        ],
    }


def _measures(one: ClassResult, split: EvaluationResult) -> dict[str, Measure]:
    """Of candidate or champion: both were measured on the pictures of `split`."""
    bounds, good = one.intervals or NONE, split.good_pictures
    overkilled = f"{round((one.overkill_rate or 0) * good)} of {good} good parts" if good else "no good parts"
    alarms = one.false_alarms / split.pictures if split.pictures else None
    return {
        "AP50": Measure(one.ap50, bounds.ap50),
        "Escape": Measure(one.escape_rate, bounds.escape_rate, f"{one.missed} of {one.instances} missed"),
        "Overkill": Measure(one.overkill_rate, bounds.overkill_rate, overkilled),
        "False alarms": Measure(alarms, bounds.false_alarms_per_picture, f"{one.false_alarms} boxes", share=False),
    }


def int8_section(case: GateCase) -> Section | None:
    """FP32 against INT8 of the same bundle, class by class; None where it has no INT8."""
    fp32, int8 = case.evidence.candidate, case.evidence.int8
    if int8 is None:
        return None
    after = {one.name: one for one in int8.classes}
    total = (*_loss(fp32.map50, int8.map50), "", "")
    return {
        "limit": f"{100 * case.policy.max_int8_loss:g}",
        "rows": [("all classes", *total), *((one.name, *_loss_of(one, after.get(one.name))) for one in fp32.classes)],
    }


def _loss_of(fp32: ClassResult, int8: ClassResult | None) -> tuple[str, ...]:
    if int8 is None:
        return (*_loss(fp32.ap50, None), share_text(fp32.escape_rate), share_text(None))
    return (*_loss(fp32.ap50, int8.ap50), share_text(fp32.escape_rate), share_text(int8.escape_rate))


def _loss(fp32: float | None, int8: float | None) -> tuple[str, str, str]:
    return share_text(fp32), share_text(int8), points_text(minus(int8, fp32))


def why_no_int8(case: GateCase) -> str:
    """What the manifest says; empty where there is an INT8 model that was measured."""
    made = case.manifest.quantisation
    if case.evidence.int8 is not None:
        return ""
    if made is None:
        return "This bundle has FP32 only: no INT8 model was asked for."
    if not made.shipped:
        return f"This bundle has FP32 only: {made.reason}."
    return "The INT8 model was not measured on the test split."


def cost_section(case: GateCase) -> Section:
    """Size of the model files, and time and memory of both per batch size."""
    return {"rows": [*_sizes(case), *_costs(case)], "measured": case.evidence.speed is not None}


def _sizes(case: GateCase) -> Iterator[tuple[str, ...]]:
    manifests = [one for one in (case.manifest, case.champion_manifest) if one]
    for file in (MODEL_FILE, INT8_MODEL_FILE):
        entries = [one.files.get(file) for one in manifests]
        if any(entries):
            sizes = [entry.size_bytes / 2**20 if entry else None for entry in (*entries, None)]
            yield _row(f"Size of {file}, MiB", sizes[0], sizes[1], 2)


def _costs(case: GateCase) -> Iterator[tuple[str, ...]]:
    for one in case.evidence.speed.batches if case.evidence.speed else ():
        times = [_ms(cost, one.batch) for cost in (one.candidate, one.champion)]
        yield _row(f"Time per picture at batch {one.batch}, ms", times[0], times[1], 2)
        yield _row(f"Peak memory at batch {one.batch}, MiB", one.candidate.peak_mib, one.champion.peak_mib, 0)


def _ms(cost: Cost, batch: int) -> float | None:
    return None if cost.seconds is None else 1000 * cost.seconds / batch


def _row(name: str, ours: float | None, theirs: float | None, digits: int) -> tuple[str, ...]:
    ratio = f"x {ours / theirs:.2f}" if ours and theirs else ""
    return name, number_text(ours, digits), number_text(theirs, digits), ratio
