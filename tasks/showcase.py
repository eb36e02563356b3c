"""Step: what a person wants to look at after a retraining: gates, numbers, pictures, links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
from prefect import task

from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from serving.annotate import draw_detections, encode_image
from serving.bundle import open_bundle
from serving.detector import open_detector
from serving.images import Image
from serving.verdict import judge, score_floor
from tasks.artifacts import leave_link, leave_markdown, markdown_pictures, markdown_table
from tasks.evaluation.evaluation_result import ClassResult, EvaluationResult, Interval
from tasks.gate_report.gate_records import RULES, verdict_words
from tasks.gates import GateReport
from tasks.pictures import cpu_options, read_picture
from tasks.registry import Registry
from tasks.working_copy import GroundTruth, read_ground_truth

PICTURE_COUNT = 6
WIDEST_PX = 480
SPLIT_NUMBERS = {
    "mAP50": "map50",
    "mAP50-95": "map50_95",
    "good parts judged NG": "overkill_rate",
    "false alarms per picture": "false_alarms_per_picture",
}


def gate_markdown(report: GateReport, page_url: str) -> str:
    """The verdict, its reasons, and every check with its value and limit."""
    checks = [*report.checks, report.promotion]
    rows = [("yes" if c.holds else "**no**", c.name, _number(c.value), _number(c.limit), c.words) for c in checks]
    reasons = [f"- {check.words}" for check in report.refusals]
    against = f"Compared with champion `{report.champion[:12]}`. " if report.champion else ""
    parts = [
        f"## {verdict_words(report)}",
        f"[Gate report]({page_url})",
        *(["\n".join(reasons)] if reasons else []),
        f"{against}{RULES[report.rule]} {report.promotion.words}",
        markdown_table(["holds", "check", "value", "limit", "meaning"], rows),
    ]
    return "\n\n".join(parts)


def metrics_markdown(candidate: EvaluationResult, champion: EvaluationResult | None) -> str:
    """Overall and per-class numbers on the test split, next to the champion's."""
    before = {one.name: one for one in champion.classes} if champion else {}
    overall = [
        (name, _with_range(candidate, field), _with_range(champion, field) if champion else "")
        for name, field in SPLIT_NUMBERS.items()
    ]
    rows = [
        (
            one.name,
            one.instances,
            _with_range(one, "ap50"),
            _number(one.precision),
            _with_range(one, "escape_rate"),
            _number(before[one.name].escape_rate) if one.name in before else "",
        )
        for one in candidate.classes
    ]
    columns = ["class", "true boxes", "AP50", "precision", "escape rate", "champion's escape rate"]
    return (
        f"{markdown_table(['on the test split', 'candidate', 'champion'], overall)}\n\n{markdown_table(columns, rows)}"
    )


def _with_range(result: EvaluationResult | ClassResult, field: str) -> str:
    bounds: Interval | None = getattr(result.intervals, field, None)
    told = _number(getattr(result, field))
    return f"{told} ({bounds.low:.3f} to {bounds.high:.3f})" if bounds else told


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def choose_pictures(truth: Sequence[GroundTruth], count: int) -> list[GroundTruth]:
    """Evenly spread over the split, the pictures with defects first."""
    ordered = [*(t for t in truth if len(t.class_ids)), *(t for t in truth if not len(t.class_ids))]
    step = max(1, len(ordered) // count)
    return ordered[::step][:count]


def annotate_samples(bundle_path: Path, truth: Sequence[GroundTruth], count: int) -> list[tuple[str, bytes]]:
    """(caption, JPEG) of pictures with what the bundle finds in them."""
    bundle = open_bundle(bundle_path)
    detector = open_detector(bundle, cpu_options())
    rule, names = bundle.manifest.verdict, bundle.manifest.model.class_names
    chosen = choose_pictures(truth, count)
    images = [read_picture(one.picture) for one in chosen]
    found = detector.detect(images, score_floor(rule))
    return [_annotated(one, image, boxes, rule, names) for one, image, boxes in zip(chosen, images, found, strict=True)]


def _annotated(
    one: GroundTruth, image: Image, boxes: Detections, rule: VerdictRule, names: tuple[str, ...]
) -> tuple[str, bytes]:
    verdict, shown = judge(boxes, rule)
    drawn = draw_detections(image, shown.records(names), verdict)
    scale = min(1.0, WIDEST_PX / drawn.shape[1])
    small = cv2.resize(drawn, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    true = len(one.class_ids)
    return f"{one.picture.name}: {verdict.value}, {len(shown)} found, {true} true", encode_image(small, "jpeg")


@task(name="show results")
def leave_results(
    bundle_path: Path,
    working_copy: Path,
    candidate: EvaluationResult,
    champion: EvaluationResult | None,
    report: GateReport,
    page_url: str,
) -> None:
    """Attach gates, metrics and annotated pictures to the run."""
    leave_markdown("gates", gate_markdown(report, page_url), verdict_words(report))
    leave_markdown("metrics", metrics_markdown(candidate, champion), "Metrics on the test split, with their ranges")
    samples = annotate_samples(bundle_path, read_ground_truth(working_copy, Split.TEST), PICTURE_COUNT)
    leave_markdown("pictures", markdown_pictures(samples), "Test pictures with what was found")


@task(name="link the records", retries=2, retry_delay_seconds=2)
def leave_links(mlflow_url: str, public_url: str, run_id: str, data_report: Path) -> None:
    """Put the data report, and what lies beside it, to the training's records and link both."""
    registry = Registry(mlflow_url)
    registry.log_folder(run_id, data_report.parent, "data")
    url = registry.run_url(run_id, public_url)
    leave_link("mlflow-run", url, "Training run in MLflow")
    leave_link("data-report", f"{url}/artifacts/data/{data_report.name}", "Data report")
