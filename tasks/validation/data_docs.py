"""Great Expectations' own pages of a validation, made to work where nothing outside can be reached."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SITE = "data_docs"
_OUTSIDE = re.compile(
    r"<script\b[^>]*\bsrc=[\"']https?://[^>]*>\s*</script>|<(?:link|img)\b[^>]*\b(?:href|src)=[\"']https?://[^>]*>"
    r"|<footer\b.*?</footer>",
    re.DOTALL,
)
_STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem 2rem; color: #1d232a }
table { border-collapse: collapse; margin: .5rem 0 1rem } td, th { border: 1px solid #d5dae0; padding: .3rem .6rem;
text-align: left; vertical-align: top } a { color: #0b5cad } ul { padding-left: 1.2rem }
.modal, .btn, .cloud-footer, #show-to-all { display: none } .fas { font-style: normal }
.fa-check-circle::before { content: "holds"; color: #1a7f37 } .fa-times::before { content: "broken"; color: #b3261e }
.fa-exclamation-triangle::before { content: "could not run"; color: #8a5a00 }
</style></head>"""


def write_site(context: Any, results: dict[str, Any], folder: Path) -> Path:
    """Write the pages of `results`, by suite, to `folder`; the path of the first page."""
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    for name, result in results.items():
        key = ValidationResultIdentifier(
            ExpectationSuiteIdentifier(name), RunIdentifier("scan", datetime.now(UTC)), name
        )
        context.validation_results_store.set(key, result)
    context.add_data_docs_site(_SITE, _site_config(folder))
    context.build_data_docs(site_names=[_SITE])
    without_outside_parts(folder)
    return _write_index(folder, results)


def _site_config(folder: Path) -> dict[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def without_outside_parts(folder: Path) -> None:
    """Take scripts, styles and pictures of other hosts out of the pages, and give them a plain style instead.

    A browser on a line without the internet waits for each of them; one with it would tell others who looks.
    """
    for page in folder.rglob("*.html"):
        text = _OUTSIDE.sub("", page.read_text("utf-8"))
        page.write_text(text.replace("</head>", _STYLE, 1), "utf-8")


def _write_index(folder: Path, results: dict[str, Any]) -> Path:
    """A first page that works without scripts: the library's own is empty without them."""
    rows = []
    for name, result in results.items():
        (page,) = (folder / "validations" / name).rglob("*.html")
        counted = result.statistics
        rows.append(
            f"<tr><td><a href='{html.escape(page.relative_to(folder).as_posix())}'>{name}</a></td>"
            f"<td>{counted['evaluated_expectations']}</td><td>{counted['unsuccessful_expectations']}</td></tr>"
        )
    head = f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Data contracts</title>{_STYLE}"
    table = f"<table><tr><th>suite</th><th>rules</th><th>broken</th></tr>{''.join(rows)}</table>"
    index = folder / "index.html"
    index.write_text(f"{head}<body><h1>Data contracts</h1>{table}</body></html>", "utf-8")
    return index
