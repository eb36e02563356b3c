"""A validation report for people: a table for the terminal, and one self-contained page."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

from tasks.findings import Finding, ValidationReport

REPORT_PAGE = "data_report.html"
REPORT_JSON = "validation.json"
SHOWN_PER_RULE = 200
"""Rows of one rule on the page; validation.json holds all of them."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1d2733; }
table { border-collapse: collapse; margin: 0 0 1.5rem; } th, td { text-align: left; padding: .3rem .8rem .3rem 0; }
th { border-bottom: 2px solid #c9d1da; } td { border-bottom: 1px solid #e6eaee; vertical-align: top; }
td.n, th.n { text-align: right; } code { font-size: 13px; overflow-wrap: anywhere; }
.error { color: #b3261e; font-weight: 600; } .warning { color: #8a5a00; } .notice { color: #48586a; }
.accepted { color: #1a6d37; } .rejected { color: #b3261e; }
"""


def render_table(report: ValidationReport, shown_per_rule: int = 10) -> str:
    """The report as plain text: counts, then the findings by rule, at most `shown_per_rule` rows of each."""
    lines = [report.summary(), ""]
    lines += _text_table([["split", *_count_names(report)], *_count_rows(report)])
    lines += ["", *_text_table([["class", *report.counts], *_class_rows(report)])]
    for rule, findings in by_rule(report.findings).items():
        lines += ["", f"{findings[0].severity}: {rule} ({len(findings)})"]
        lines += [f"  {finding}" for finding in findings[:shown_per_rule]]
        if len(findings) > shown_per_rule:
            lines.append(f"  .. and {len(findings) - shown_per_rule} more; --json lists all")
    return "\n".join(lines) + "\n"


def by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings grouped by rule, errors first."""
    order = {"error": 0, "warning": 1, "notice": 2}
    grouped: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: (order[finding.severity], finding.rule)):
        grouped.setdefault(finding.rule, []).append(finding)
    return grouped


def write_report(report: ValidationReport, folder: Path, title: str) -> Path:
    """Write data_report.html and validation.json to `folder`; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT_JSON).write_text(report.to_json(), "utf-8")
    page = folder / REPORT_PAGE
    page.write_text(render_page(report, title), "utf-8")
    return page


def render_page(report: ValidationReport, title: str) -> str:
    """The report as one HTML page without outside resources."""
    verdict = "accepted" if report.accepted else "rejected"
    parts = [
        f"<h1>{html.escape(title)}</h1><p class={verdict}>{html.escape(report.summary())}</p>",
        "<h2>Pictures</h2>", _html_table(["split", *_count_names(report)], _count_rows(report)),
        "<h2>Boxes per class</h2>", _html_table(["class", *report.counts], _class_rows(report)),
        "<h2>Findings</h2>" if report.findings else "<h2>No findings</h2>",
    ]  # fmt: skip
    for rule, findings in by_rule(report.findings).items():
        severity = findings[0].severity
        parts.append(f"<h3><span class={severity}>{severity}</span> {rule} ({len(findings)})</h3>")
        rows = [[_place(finding), finding.got, finding.expected] for finding in findings[:SHOWN_PER_RULE]]
        parts.append(f"<p>{html.escape(findings[0].action)}</p>" + _html_table(["where", "got", "expected"], rows))
        if len(findings) > SHOWN_PER_RULE:
            parts.append(f"<p>The first {SHOWN_PER_RULE}; {REPORT_JSON} lists all.</p>")
    head = f"<meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.line else finding.file


def _count_names(report: ValidationReport) -> list[str]:
    return list(next(iter(report.counts.values()), {}))


def _count_rows(report: ValidationReport) -> list[list[str]]:
    return [[split, *(str(count) for count in counts.values())] for split, counts in report.counts.items()]


def _class_rows(report: ValidationReport) -> list[list[str]]:
    return [[name, *(str(count) for count in counts.values())] for name, counts in report.class_boxes.items()]


def _text_table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(_cell(text, width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(text: str, width: int) -> str:
    return text.rjust(width) if text.isdigit() else text.ljust(width)


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _html_cell(text: str) -> str:
    return f"<td class=n>{text}</td>" if text.isdigit() else f"<td>{html.escape(text)}</td>"
