"""The lines that the demonstration ends with on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.demo.report_model import DemoReport


def summary_table(report: DemoReport) -> Iterator[str]:
    """A table of what happened, then where to look."""
    yield ""
    for name, value in _rows(report):
        yield f"  {name:<22} {value}"
    yield ""
    yield f"  {'Prefect UI':<22} {report.urls.prefect}"
    yield f"  {'MLflow UI':<22} {report.urls.mlflow}"
    yield f"  {'API page':<22} {report.urls.service}"
    yield ""


def _rows(report: DemoReport) -> Iterator[tuple[str, str]]:
    metrics, model = report.metrics_test, report.model
    yield "dataset", f"{report.dataset.name} {report.dataset.revision[:12]} ({report.dataset.hash})"
    yield "test split", f"mAP50 {metrics.map50:.3f}, mAP50-95 {metrics.map50_95:.3f} on {metrics.images} pictures"
    held = sum(gate.holds for gate in report.gates)
    yield "gates", f"{held} of {len(report.gates)} hold"
    yield "promotion", ("yes: " if report.promotion.promoted else "no: ") + report.promotion.reason
    yield "champion", f"{model.name} version {model.registry_version}, bundle {model.bundle_digest[:12]}"
    same = "the champion" if report.serves_the_champion else "NOT the champion"
    yield "service", f"answers with {report.service.digest[:12]}, {same}"
    yield "held-out pictures", f"{report.right_verdicts} of {len(report.pictures)} verdicts right"
    yield "seconds", f"{sum(report.seconds.values()):.0f} in all"
