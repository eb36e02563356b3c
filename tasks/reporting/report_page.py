"""The data report as one HTML page that needs nothing else, not even a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace

import jinja2
import pandas as pd
from markupsafe import Markup

from serving.annotate import class_colour
from tasks.reporting.drift import Drift
from tasks.reporting.report_examples import CLASS_PICTURES, Example, ExampleBook, Pair
from tasks.reporting.report_gallery import Gallery
from tasks.reporting.report_sections import (
    Section,
    boxes_section,
    classes_section,
    drift_section,
    findings_section,
    head_section,
    pictures_section,
)
from tasks.reporting.report_text import by_rule
from tasks.scan import DatasetScan
from tasks.validation.findings import ValidationReport

TEMPLATE = "report_page.html.j2"
LONGEST = 300
"""Characters of one cell; a label line may be a megabyte long."""
NO_PAIRS = pd.DataFrame({"first": [], "second": [], "distance": []}, dtype="int64")


@dataclass(frozen=True)
class _Chosen:
    """The examples of the page, by part."""

    rules: Mapping[str, Sequence[Example]]
    classes: Sequence[tuple[str, Sequence[Example]]]
    pairs: Sequence[Pair]
    pairs_total: int
    drift: Mapping[str, Sequence[Example]]

    def in_order(self) -> Iterator[Example]:
        """The most wanted first: findings, pairs, what changed, classes."""
        for examples in self.rules.values():
            yield from examples
        for pair in self.pairs:
            yield from (pair.first, pair.second)
        for examples in (*self.drift.values(), *(examples for _, examples in self.classes)):
            yield from examples


def render_page(
    report: ValidationReport,
    scan: DatasetScan,
    title: str,
    *,
    drift: Drift | None = None,
    near: pd.DataFrame = NO_PAIRS,
    about: Mapping[str, str] | None = None,
) -> str:
    """The page as text. Everything that comes from the dataset is escaped.

    `near`: positions of near duplicates in the scan's pictures, and their distance. `about`: what to say on the
    dataset's origin, such as its revision and hash.
    """
    chosen = _choose(report, scan, near, drift)
    gallery = Gallery(scan.layout.root, chosen.in_order())
    page = {
        **head_section(report, title, about or {}, chosen.pairs_total),
        **classes_section(report, scan),
        **pictures_section(scan),
        **boxes_section(scan),
        **_pictures_of(chosen, gallery, len(scan.layout.class_names)),
        "rules": _rules(report, chosen, gallery),
        "drift": _drift(drift, chosen, gallery) if drift else None,
    }
    return _template().render(page=SimpleNamespace(**page))


def _choose(report: ValidationReport, scan: DatasetScan, near: pd.DataFrame, drift: Drift | None) -> _Chosen:
    book = ExampleBook(scan)
    classes = [(name, book.of_class(number)) for number, name in enumerate(scan.layout.class_names[:CLASS_PICTURES])]
    pairs, total = book.of_pairs(near, scan.pictures)
    return _Chosen(
        rules={rule: book.of_findings(findings) for rule, findings in by_rule(report.findings).items()},
        classes=[*classes, *_if_any("Pictures without objects", book.without_objects())],
        pairs=pairs,
        pairs_total=total,
        drift=book.of_drift(drift) if drift else {},
    )


def _if_any(name: str, examples: list[Example]) -> list[tuple[str, list[Example]]]:
    return [(name, examples)] if examples else []


def _rules(report: ValidationReport, chosen: _Chosen, gallery: Gallery) -> list[Section]:
    return [
        {**rule, "examples": [gallery.show(example) for example in chosen.rules[rule["name"]]]}
        for rule in findings_section(report)
    ]


def _drift(drift: Drift, chosen: _Chosen, gallery: Gallery) -> Section:
    shown = {title: [gallery.show(example) for example in examples] for title, examples in chosen.drift.items()}
    return {**drift_section(drift), "examples": shown}


def _pictures_of(chosen: _Chosen, gallery: Gallery, classes: int) -> Section:
    return {
        "examples": [
            {"name": name, "shown": [gallery.show(example) for example in examples],
             "colour": "rgb({}, {}, {})".format(*class_colour(number)) if number < classes else ""}
            for number, (name, examples) in enumerate(chosen.classes)
        ],
        "examples_more": max(0, classes - CLASS_PICTURES),
        "pairs": [
            {"first": gallery.show(pair.first), "second": gallery.show(pair.second), "across": pair.across,
             "words": pair_words(pair)}
            for pair in chosen.pairs
        ],
        "pairs_total": chosen.pairs_total,
        "left_out": gallery.left_out,
    }  # fmt: skip


def pair_words(pair: Pair) -> str:
    """How two pictures are alike, and where they lie."""
    alike = "Exact copies" if pair.distance is None else "Near duplicates"
    place = f"{alike} in different splits" if pair.across else alike
    return place if pair.distance is None else f"{place}; {pair.distance} of 64 hash bits differ"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["short"] = shorten
    environment.filters["svg"] = Markup
    return environment.from_string(files("tasks.reporting").joinpath(TEMPLATE).read_text(encoding="utf-8"))


def shorten(text: str, longest: int = LONGEST) -> str:
    """`text` with its middle left out where it is too long, and nothing in it that is no letter to see.

    >>> shorten("a/very/long/path.png", 11), shorten("tab\\there")
    ('a/ver…h.png', 'tab here')
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[longest // 2 + 1 - longest :]}"
    return "".join(char if char.isprintable() else " " for char in text)
