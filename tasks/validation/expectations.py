"""The adapter to Great Expectations: runs the suites of `data_contracts/expectations` on tables.

A suite is the catalogue of the rules: every expectation carries its severity, and in `meta` the rule's name and the
words of a finding, in which {column} and {parameter} are filled in.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from data_contracts.errors import OutsideSystemError

SUITES = ("pictures", "labels", "dataset")

Severity = Literal["error", "warning", "notice"]
_SEVERITIES: dict[str, Severity] = {"critical": "error", "warning": "warning", "info": "notice"}
_WORDS = ("expected", "got", "action")
SHOWN_IN_DOCS = 20
"""So many rows that break a rule are shown in the Data Docs; the findings have all."""
_RESULT_FORMAT = {"result_format": "COMPLETE", "include_unexpected_rows": False, "return_unexpected_index_query": False}


@dataclass(frozen=True)
class RuleOutcome:
    """What one rule found in one table: how many rows it looked at, and the positions of those that break it.

    `rows` is None where the table as a whole breaks the rule.
    """

    table: str
    rule: str
    severity: Severity
    checked: int
    rows: npt.NDArray[np.int64] | None
    meta: dict[str, str]

    @property
    def broken(self) -> int:
        """How many rows break the rule; 1 for the table as a whole."""
        return 1 if self.rows is None else len(self.rows)

    def words(
        self, table: pd.DataFrame, parameters: dict[str, object], most: int
    ) -> Iterator[tuple[dict[Any, Any], dict[str, str]]]:
        """The first `most` rows that break the rule, each with the words of its finding: expected, got, action."""
        records = [{}] if self.rows is None else table.iloc[self.rows[:most]].to_dict("records")
        for record in records:
            values = parameters | {str(column): value for column, value in record.items()}
            yield record, {key: self.meta[key].format_map(values) for key in _WORDS}


@cache
def load_suite(name: str) -> dict[str, Any]:
    """A suite as stored: name, expectations, meta."""
    suite: dict[str, Any] = json.loads(
        files("data_contracts").joinpath("expectations", f"{name}.json").read_text("utf-8")
    )
    return suite


def rule_severities(*tables: str) -> dict[str, Severity]:
    """Every rule of the suites of `tables`, of all by default, with its own severity."""
    expectations = [expectation for name in tables or SUITES for expectation in load_suite(name)["expectations"]]
    return {item["meta"]["rule"]: _SEVERITIES[item["severity"]] for item in expectations}


def whole_table_rules() -> frozenset[str]:
    """The rules that concern a table or the dataset as a whole, no single picture."""
    items = [item for name in SUITES for item in load_suite(name)["expectations"]]
    whole = {item["meta"]["rule"] for item in items if "column" not in item["kwargs"]}
    return frozenset(whole | set(rule_severities("dataset")))


class SuiteRunner:
    """Holds tables against the suites of their names, and keeps the results for a site of pages."""

    def __init__(self, parameters: dict[str, object]) -> None:
        self._parameters = parameters
        self._context = _ephemeral_context()
        self._source = self._context.data_sources.add_pandas("scan")
        self._results: dict[str, Any] = {}

    def check(self, name: str, table: pd.DataFrame) -> list[RuleOutcome]:
        """What every rule of suite `name` found. Raises OutsideSystemError when a rule could not be evaluated."""
        from great_expectations.core import ExpectationSuite

        stored = load_suite(name)
        suite = self._context.suites.add(ExpectationSuite(**_described(_filled(stored, self._parameters))))
        if len(suite.expectations) != len(stored["expectations"]):  # It logs and drops what it cannot read.
            raise OutsideSystemError(f"expectations/{name}.json: Great Expectations does not accept every entry")
        asset = self._source.add_dataframe_asset(name)
        columns = table[_columns(stored, table)].reset_index(drop=True)
        batch = asset.add_batch_definition_whole_dataframe(name).get_batch({"dataframe": columns})
        self._results[name] = batch.validate(suite, result_format=_RESULT_FORMAT)
        return [_outcome(name, item) for item in self._results[name].results]

    def write_docs(self, folder: Path, tables: dict[str, pd.DataFrame]) -> Path:
        """Write the results so far as Data Docs to `folder`; the path of the first page.

        `tables` are those that were checked: their column `place` says where a row stands.
        """
        from tasks.validation.data_docs import write_site

        for name, result in self._results.items():
            _shorten(result, tables[name]["place"])
        return write_site(self._context, self._results, folder)


def _described(suite: dict[str, Any]) -> dict[str, Any]:
    """The suite with words for people in place of the library's own."""
    items = [
        {**item, "description": f"{item['meta']['rule']} ({_SEVERITIES[item['severity']]}). {item['meta']['action']}"}
        for item in suite["expectations"]
    ]
    return {**suite, "expectations": items}


def _shorten(result: Any, places: pd.Series[Any]) -> None:
    """Keep the first rows that break a rule, by place instead of position: all of them would fill the pages."""
    for item in result.results:
        for key in ("unexpected_index_list", "partial_unexpected_index_list"):
            if found := item.result.get(key):
                item.result[key] = [str(place) for place in places.iloc[found[:SHOWN_IN_DOCS]]]
        if "unexpected_list" in item.result:
            item.result["unexpected_list"] = item.result["unexpected_list"][:SHOWN_IN_DOCS]


def _ephemeral_context() -> Any:
    # Read when the library is imported; this is the only place that imports it.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 1.24 imports sre_constants.
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        for name in ("great_expectations", "great_expectations.data_context.types.base"):
            logging.getLogger(name).setLevel(logging.WARNING)  # They tell of each temporary folder.
        context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    _remove_own_site(context)
    return context


def _remove_own_site(context: Any) -> None:
    """The context makes a temporary folder for pages of its own, and leaves it behind."""
    for name, site in list((context.variables.data_docs_sites or {}).items()):
        shutil.rmtree(site["store_backend"]["base_directory"], ignore_errors=True)
        context.delete_data_docs_site(name)


def _columns(stored: dict[str, Any], table: pd.DataFrame) -> list[str]:
    """The columns that the rules read: the library copies what it gets."""
    wanted = {item["kwargs"]["column"] for item in stored["expectations"] if "column" in item["kwargs"]}
    return [column for column in table.columns if column in wanted]


def _filled(value: Any, parameters: dict[str, object]) -> Any:
    """The suite with every {"$PARAMETER": name} replaced; the library's own way takes 0.1 s for each.

    >>> _filled({"min_value": {"$PARAMETER": "min_side_px"}}, {"min_side_px": 10})
    {'min_value': 10}
    """
    if isinstance(value, list):
        return [_filled(item, parameters) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$PARAMETER"}:
        return parameters[value["$PARAMETER"]]
    return {key: _filled(item, parameters) for key, item in value.items()}


def _outcome(table: str, item: Any) -> RuleOutcome:
    config, result = item.expectation_config, item.result
    rule, severity = config.meta["rule"], _SEVERITIES[config.severity.value]
    is_whole = "element_count" not in result
    found = result.get("unexpected_index_list") or []
    if not item.success and ("observed_value" not in result if is_whole else not found):
        raise OutsideSystemError(f"rule {rule} could not be evaluated: {item.exception_info}")
    rows = None if is_whole and not item.success else np.unique(np.array(found, np.int64))
    return RuleOutcome(table, rule, severity, result.get("element_count", 1), rows, config.meta)
