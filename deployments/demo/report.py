"""The page that a demonstration ends with: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2

from data_contracts.detections import Detection, Verdict
from deployments.demo.report_model import DemoReport, PictureFacts

TEMPLATE = "report.html.j2"


class ReportPicture(NamedTuple):
    """One picture for the page: its annotated PNG, its verdict and a line about what was found."""

    name: str
    annotated_png: bytes
    verdict: Verdict
    found: str


@dataclass(frozen=True)
class StageBar:
    """One stage of the run and its place on the time line, in percent of the whole."""

    name: str
    seconds: float
    start_percent: float
    width_percent: float


def write_report(report: DemoReport, pictures: Sequence[ReportPicture], target: Path) -> Path:
    """The page at `target`, which is replaced whole; `pictures` are those of the report, in any order."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.draft")
    draft.write_text(render_report(report, pictures), encoding="utf-8")
    return draft.replace(target)


def render_report(report: DemoReport, pictures: Sequence[ReportPicture]) -> str:
    """The page as text. Everything that comes from a run is escaped."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number_text
    environment.filters["duration"] = duration_text
    template = environment.from_string(files("deployments.demo").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    facts = {picture.file: picture for picture in report.pictures}
    cards = [(picture, data_url(picture.annotated_png), facts.get(picture.name)) for picture in pictures]
    return template.render(report=report, cards=cards, stages=stage_bars(report.seconds))


def report_picture(picture: PictureFacts, annotated_png: bytes) -> ReportPicture:
    """What the page shows of one inspected picture."""
    return ReportPicture(picture.file, annotated_png, picture.verdict, found_text(picture.detections))


def found_text(detections: Sequence[Detection]) -> str:
    """One line for people: `scratch 0.91, pit 0.64`, or that there is nothing."""
    return ", ".join(f"{found.class_name} {found.score:.2f}" for found in detections) or "no defect"


def stage_bars(seconds: dict[str, float]) -> list[StageBar]:
    """Stages one after another on a line from 0 to 100 %.

    >>> [(bar.start_percent, bar.width_percent) for bar in stage_bars({"pin": 1.0, "train": 3.0})]
    [(0.0, 25.0), (25.0, 75.0)]
    """
    whole = sum(seconds.values()) or 1.0
    bars, start = [], 0.0
    for name, duration in seconds.items():
        bars.append(StageBar(name, duration, 100 * start / whole, 100 * duration / whole))
        start += duration
    return bars


def data_url(png: bytes) -> str:
    """A picture as text that a page can carry within itself."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def number_text(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"  # noqa: RUF001 - an en dash is what the table shows


def duration_text(seconds: float) -> str:
    """A duration for people.

    >>> duration_text(0.42), duration_text(9.0), duration_text(128.4)
    ('0.4 s', '9.0 s', '2 min 08 s')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
