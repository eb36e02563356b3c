"""A validation report as text for a terminal: worst first, aligned, colours only where the caller wants them."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from tasks.validation.findings import Finding, ValidationReport

WIDEST_CELL = 48
SEVERITIES = ("error", "warning", "notice")
_COLOURS = {"error": "31;1", "warning": "33", "notice": "36", "accepted": "32;1", "rejected": "31;1"}


def render_table(report: ValidationReport, shown_per_rule: int = 10, *, colour: bool = False) -> str:
    """Verdict, counts, then the findings by rule, at most `shown_per_rule` rows of each.

    `colour` adds terminal colours: for terminals only, a file or a pipe gets plain text.
    """
    paint = _paint if colour else _plain
    verdict, _, rest = report.summary().partition(":")
    lines = [f"{paint(verdict, verdict)}:{rest}"]
    if report.counts:
        lines += ["", *text_table(["split", *_count_names(report)], _count_rows(report))]
        lines += ["", *text_table(["class", *report.counts], _class_rows(report))]
    grouped, totals = by_rule(report.findings), rule_totals(report)
    if grouped:
        rows = [[findings[0].severity, rule, str(totals[rule])] for rule, findings in grouped.items()]
        lines += ["", *text_table(["severity", "rule", "findings"], rows)]
    for rule, findings in grouped.items():
        lines += ["", paint(f"{findings[0].severity}: {rule} ({totals[rule]})", findings[0].severity)]
        lines += _finding_lines(findings, shown_per_rule, totals[rule])
    if report.quarantined:
        lines += ["", f"quarantined, kept out of training ({len(report.quarantined)})"]
        lines += [f"    {_printable(path)}" for path in report.quarantined[:shown_per_rule]]
        lines += _more(len(report.quarantined), shown_per_rule, len(report.quarantined))
    return "\n".join(lines) + "\n"


def by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings grouped by rule: errors first, then the rules with the most findings."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.severity, finding.rule), []).append(finding)
    ordered = sorted(grouped.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -len(item[1]), item[0][1]))
    found: dict[str, list[Finding]] = {}
    for (_, rule), rows in ordered:
        found.setdefault(rule, []).extend(rows)
    return found


def rule_totals(report: ValidationReport) -> dict[str, int]:
    """How often each rule is broken; of very many breaks not all are among the findings."""
    totals = Counter(finding.rule for finding in report.findings)
    for result in report.rules:
        totals[result.rule] = max(totals[result.rule], result.broken)
    return totals


def place_of(finding: Finding) -> str:
    """File and line of a finding, as editors understand them."""
    return f"{finding.file}:{finding.line}" if finding.line else finding.file


def _finding_lines(findings: Sequence[Finding], shown: int, total: int) -> list[str]:
    """What the rule expects and what to do, once where those shown agree; then each place with what is there."""
    expected, action = ({getattr(finding, name) for finding in findings[:shown]} for name in ("expected", "action"))
    lines = [f"  Expected: {findings[0].expected}"] if len(expected) == 1 else []
    lines += [f"  What to do: {findings[0].action}"] if len(action) == 1 else []
    width = max(_width(place_of(finding)) for finding in findings[:shown])
    for finding in findings[:shown]:
        place = _aligned(place_of(finding), min(width, WIDEST_CELL), right=False)
        more = "" if len(expected) == 1 else f" (expected {finding.expected})"
        lines.append(f"    {place}  {finding.got}{more}")
        lines += [] if len(action) == 1 else [f"        {finding.action}"]
    return [_printable(line) for line in lines] + _more(total, shown, len(findings))


def _more(count: int, shown: int, listed: int) -> list[str]:
    told = "all" if listed == count else f"the first {listed:,}"
    return [f"    .. and {count - shown:,} more; --json lists {told}"] if count > shown else []


def _count_names(report: ValidationReport) -> list[str]:
    return list(next(iter(report.counts.values()), {}))


def _count_rows(report: ValidationReport) -> list[list[str]]:
    return [[split, *(str(count) for count in counts.values())] for split, counts in report.counts.items()]


def _class_rows(report: ValidationReport) -> list[list[str]]:
    return [[name, *(str(count) for count in counts.values())] for name, counts in report.class_boxes.items()]


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "box", "boxes"), plural(1200, "picture")
    ('1 box', '1,200 pictures')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of aligned columns: numbers to the right with their heading, text to the left.

    >>> text_table(["class", "boxes"], [["pit", "7"], ["scratch", "12"]])
    ['class    boxes', 'pit          7', 'scratch     12']
    """
    body = [[_shown(cell) for cell in row] for row in rows]
    right = [bool(body) and all(_is_number(row[column]) for row in body) for column in range(len(header))]
    table = [list(header), *body]
    widths = [max(_width(row[column]) for row in table) for column in range(len(header))]
    return ["  ".join(map(_aligned, row, widths, right)).rstrip() for row in table]


def _shown(text: str) -> str:
    """Short enough for a column, and without characters that move the cursor or hide text."""
    return _printable(text if len(text) <= WIDEST_CELL else f"{text[: WIDEST_CELL - 1]}…")


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _is_number(text: str) -> bool:
    return text.strip("%-").replace(",", "").replace(".", "", 1).isdigit() or text in {"", "-"}


def _width(text: str) -> int:
    """Columns that a terminal needs: wide letters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def _aligned(text: str, width: int, right: bool) -> str:
    room = " " * (width - _width(text))
    return room + text if right else text + room


def _paint(text: str, name: str) -> str:
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"


def _plain(text: str, name: str) -> str:  # noqa: ARG001
    return text
