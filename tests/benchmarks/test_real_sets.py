"""The benchmarks on real sets without any training: what is kept, what is concluded, which job is asked for."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.real_findings import conclude, int8_loss_points, markdown, table
from benchmarks.real_jobs import SETS, Ended, find_sets, job_for
from benchmarks.real_jobs import conclude as conclude_jobs
from benchmarks.real_measures import summary
from benchmarks.real_sets import find_set, kept, main
from benchmarks.real_trainings import BUDGET, budget
from data_contracts.detections import Verdict
from data_contracts.errors import DatasetError
from deployments.params import load_params
from tasks.evaluation.operating_point import OperatingPoint, picture_outcome
from tasks.train import train_arguments

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


def measured(map50: float = 0.4, **changes: Any) -> dict[str, Any]:
    return {
        "seconds": 100.0, "map50": map50, "map50_95": 0.2, "escape_rate": 0.5, "false_alarms_per_picture": 1.5,
        "overkill_rate": None, "pictures": 72, "true_boxes": 175, "file_mib": 11.6,
    } | changes  # fmt: skip


def int8(map50: float | None) -> dict[str, Any]:
    return {
        "seconds": 9.0, "reason": "it holds its limits", "measures": None if map50 is None else measured(map50),
    }  # fmt: skip


def test_a_part_is_measured_once(tmp_path):
    calls = []

    def measure() -> dict[str, Any]:
        calls.append(1)
        return {"calls": len(calls)}

    file = tmp_path / "plain.json"
    for again in (False, False, True):
        kept(file, measure, again=again)
    assert file.read_text() == '{"calls": 2}'


def test_a_part_that_fails_leaves_nothing_behind(tmp_path):
    def fail() -> dict[str, Any]:
        raise DatasetError("gone")

    with pytest.raises(DatasetError):
        kept(tmp_path / "plain.json", fail, again=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("found", "loss"),
    [
        pytest.param({}, None, id="nothing measured"),
        pytest.param({"int8": int8(0.4)}, None, id="nothing to compare with"),
        pytest.param({"passline": measured(0.4), "int8": int8(0.394)}, 0.6, id="a loss"),
        pytest.param({"passline": measured(0.4), "int8": int8(0.41)}, -1.0, id="a gain"),
        pytest.param({"passline": measured(0.4), "int8": int8(None)}, 0.0, id="FP32 is kept"),
    ],
)
def test_what_int8_loses(found, loss):
    assert int8_loss_points(found) == (None if loss is None else pytest.approx(loss))


@pytest.mark.parametrize(
    ("found", "decided", "holds"),
    [
        pytest.param({"passline": measured(), "int8": int8(0.394)}, True, (False, None), id="too much lost"),
        pytest.param({"passline": measured(), "int8": int8(0.396)}, True, (True, None), id="little lost"),
        pytest.param({"passline": measured(), "int8": int8(None)}, True, (True, None), id="FP32 is kept"),
        pytest.param({"passline": measured(), "int8": int8(0.396)}, False, (None, None), id="shorter trainings"),
        pytest.param({"same": {"same": True}}, False, (None, True), id="the same weights"),
        pytest.param({"same": {"same": False}}, True, (None, False), id="other weights"),
    ],
)
def test_bars_hold_only_on_what_was_measured(found, decided, holds):
    assert tuple(bar.holds for bar in conclude(found, 40, decided=decided).bars) == holds


def test_the_table_has_a_row_per_model_and_says_where_fp32_is_kept():
    shown = table({"taught": measured(0.31), "passline": measured(), "int8": int8(None), "same": {"same": True}})
    assert [row[:2] for row in shown.rows] == [
        ("Passline, yolov8n", "0.400"), ("Passline, yolov8n, INT8", "FP32 kept"),
        ("Passline, pico, taught by yolov8n", "0.310"),
    ]  # fmt: skip
    lines = markdown(shown).splitlines()
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {len(shown.head) + 1}


def test_a_row_is_counted_from_pictures():
    counts = OperatingPoint(
        outcomes=(
            picture_outcome("defects", np.array([True, False, True]), Verdict.NG, 1),
            picture_outcome("good", np.zeros(0, np.bool_), Verdict.NG, 2),
            picture_outcome("good too", np.zeros(0, np.bool_), Verdict.OK, 0),
        ),
        instances_of=np.array([[2, 1], [0, 0], [0, 0]]),
        found_of=np.array([[1, 1], [0, 0], [0, 0]]),
        false_alarms_of=np.array([[1, 0], [0, 2], [0, 0]]),
        hits=np.array([True, False, True]),
    )
    row = summary(counts, (0.5, None), 3.5)
    assert (row.escape_rate, row.false_alarms_per_picture, row.overkill_rate) == (pytest.approx(1 / 3), 1.0, 0.5)
    assert (row.map50, row.map50_95, row.pictures, row.true_boxes) == (0.5, 0.0, 3, 3)


def test_the_budget_is_that_of_plain_training_with_the_hosts_own_settings():
    job = load_params(PARAMS).job
    arguments = train_arguments(budget(job, epochs=3))
    assert {name: arguments[name] for name in ("imgsz", "batch", "lr0", "mosaic", "epochs")} == {
        "imgsz": 192, "batch": 16, "lr0": 0.002, "mosaic": 0.5, "epochs": 3,
    }  # fmt: skip
    assert arguments["device"] == job.train.device
    assert BUDGET["epochs"] == 40


@pytest.mark.parametrize("find", [find_set, find_sets])
def test_a_missing_set_is_named(find, tmp_path, monkeypatch):
    monkeypatch.delenv("PASSLINE_SHARED_DATA", raising=False)
    for given in (None, tmp_path):
        with pytest.raises(DatasetError, match="PASSLINE_SHARED_DATA"):
            find(given)


def test_without_the_set_nothing_could_be_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--data", str(tmp_path), "--part", "plain"]) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "could not measure: real set: expected a folder with data.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", SETS)
def test_a_job_on_a_real_set_is_that_of_the_file_on_other_data(name):
    job = job_for(load_params(PARAMS), name, epochs=2)
    assert (job.dataset.name, job.dataset.ref.repository, job.seal.name) == (name, name, name)
    assert (job.train.epochs, job.train.imgsz, job.promote) == (2, SETS[name], False)


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        pytest.param(["Rejected", "Registered", "Rejected"], True, id="all decided"),
        pytest.param(["Rejected", "Failed", "Rejected"], False, id="one failed"),
        pytest.param(["Rejected", "Rejected"], False, id="one set is missing"),
    ],
)
def test_every_job_must_reach_a_decision(ends, holds):
    found = {name: Ended(end, "map50: too low", 60.0, {}) for name, end in zip(SETS, ends, strict=False)}
    (bar,) = conclude_jobs(found, [], decided=True).bars
    assert (bar.name, bar.holds) == ("jobs_decided", holds)
