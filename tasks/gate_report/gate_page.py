"""The gate report as one HTML page that needs nothing else, not even a network or a script."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import jinja2
from markupsafe import Markup

from serving.atomic import write_atomically
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_comparison import comparison_section, slices_section
from tasks.gate_report.gate_numbers import classes_section, cost_section, int8_section, why_no_int8
from tasks.gate_report.gate_pictures import confusion_section, curves_section, faults_section, judged_pictures
from tasks.gate_report.gate_records import checks_section, head_section, origin_section, settings_section
from tasks.reporting.report_page import shorten

TEMPLATE = "gate_page.html.j2"
GATE_PAGE = "gate_report.html"


def render_gate_page(case: GateCase) -> str:
    """The page as text. Everything that comes from the dataset is escaped. Reads the pictures that it shows."""
    judged = judged_pictures(case)
    page = {
        **head_section(case),
        "comparison": comparison_section(case),
        "slices": slices_section(case),
        "classes": classes_section(case),
        "curves": curves_section(case),
        "confusion": confusion_section(case, judged),
        "faults": faults_section(case, judged),
        "int8": int8_section(case),
        "no_int8": why_no_int8(case),
        "cost": cost_section(case),
        "checks": checks_section(case),
        "settings": settings_section(case),
        "origin": origin_section(case),
        "has_champion": case.evidence.champion is not None,
    }
    return _template().render(page=SimpleNamespace(**page))


def write_gate_page(case: GateCase, folder: Path) -> Path:
    """Write gate_report.html to `folder`; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    page = render_gate_page(case).encode("utf-8", "replace")
    write_atomically(folder / GATE_PAGE, page, durable=False)
    return folder / GATE_PAGE


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["short"] = shorten
    environment.filters["svg"] = Markup
    return environment.from_string(files("tasks.gate_report").joinpath(TEMPLATE).read_text(encoding="utf-8"))
