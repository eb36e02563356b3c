"""The demo's page: whole, self-contained, honest about failures, and nothing from a run escapes its place."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from data_contracts.detections import Detection, Verdict
from deployments.demo.report import (
    ReportPicture,
    duration_text,
    found_text,
    number_text,
    render_report,
    report_picture,
    stage_bars,
    write_report,
)
from deployments.demo.report_model import DemoReport, PictureFacts

DIGEST = "9f2c4b7d" * 8
OTHER_DIGEST = "0a1b2c3d" * 8
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def class_row(name: str, instances: int, ap50: float | None) -> dict[str, Any]:
    ap50_95 = None if ap50 is None else ap50 * 0.55
    return {
        "class_name": name, "instances": instances, "ap50": ap50, "ap50_95": ap50_95, "precision": 0.91, "recall": 0.87,
    }  # fmt: skip


def gate(name: str, value: float | None, limit: float, words: str, *, holds: bool = True) -> dict[str, Any]:
    return {"name": name, "holds": holds, "value": value, "limit": limit, "words": words}


def picture_facts(file: str, *found: tuple[str, float], expected: str = "NG") -> dict[str, Any]:
    names = ("scratch", "pit", "stain")
    boxes = [
        {"class_id": names.index(name), "class_name": name, "score": score, "box_xyxy_px": (12.0, 20.5, 88.0, 61.0)}
        for name, score in found
    ]
    return {
        "file": file, "verdict": "NG" if found else "OK", "expected_verdict": expected, "detections": boxes,
        "image_wh": (256, 256), "annotated": f"annotated/{file}.png", "milliseconds": 9.4,
    }  # fmt: skip


def report_of(**changes: Any) -> DemoReport:
    facts: dict[str, Any] = {
        "created_at": "2026-03-02T02:14:51+01:00",
        "dataset": {"name": "plates", "revision": "4e1f" * 10, "hash": "7c" * 16 + ".dir"},
        "mlflow_run_id": "b0c4" * 8,
        "mlflow_url": "http://127.0.0.1:5000/#/experiments/1/runs/" + "b0c4" * 8,
        "model": {"name": "plates", "registry_version": "3", "bundle_digest": DIGEST, "bundle_version": "20260302.3"},
        "metrics_test": {
            "map50": 0.894, "map50_95": 0.512, "images": 72,
            "per_class": [class_row("scratch", 61, 0.862), class_row("pit", 58, 0.881), class_row("stain", 55, 0.939)],
        },
        "gates": [
            gate("map50_floor", 0.894, 0.8, "mAP50 on the test split reaches the floor"),
            gate("champion_map50", 0.894, 0.871, "not worse than today's champion on the same pictures"),
            gate("parity", 0.9987, 0.99, "the bundle finds what the trainer's own predictor finds"),
        ],
        "promotion": {"promoted": True, "reason": "All gates held and the host converged in 4.1 s."},
        "service": {"digest": DIGEST, "version": "20260302.3", "url": "http://127.0.0.1:3000"},
        "pictures": [
            picture_facts("plate-0000.jpg", ("scratch", 0.91), ("pit", 0.64)),
            picture_facts("plate-0004.jpg", expected="OK"),
        ],
        "seconds": {
            "pin": 1.2, "validate": 6.4,
            "train": 128.4, "export": 5.1, "evaluate": 3.3, "register": 2.2, "promote": 14.8,
        },
        "interpreters": {
            "training": ".venv/bin/python", "inference_worker": "var/env/inference/bin/python",
            "service": "var/env/serving/bin/python",
        },
        "urls": {
            "prefect": "http://127.0.0.1:4200", "mlflow": "http://127.0.0.1:5000", "service": "http://127.0.0.1:3000/",
            "data_report": "../data/index.html",
        },
    }  # fmt: skip
    return DemoReport.model_validate(facts | changes)


def pictures_of(report: DemoReport) -> list[ReportPicture]:
    return [report_picture(picture, PNG) for picture in report.pictures]


def page_of(**changes: Any) -> str:
    report = report_of(**changes)
    return render_report(report, pictures_of(report))


def test_the_page_is_written_whole(tmp_path: Path) -> None:
    report = report_of()
    target = write_report(report, pictures_of(report), tmp_path / "demo/report.html")
    assert target == tmp_path / "demo/report.html"
    assert target.read_text(encoding="utf-8") == render_report(report, pictures_of(report))
    assert [file.name for file in target.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param("Promoted and serving", id="headline"),
        pytest.param("plates, version 3, is the champion", id="champion"),
        pytest.param("<strong>0.894</strong>", id="score"),
        pytest.param(DIGEST, id="digest"),
        pytest.param("champion_map50", id="gate"),
        pytest.param("0.862", id="AP of a class"),
        pytest.param("2 min 08 s", id="seconds of training"),
        pytest.param("scratch 0.91, pit 0.64", id="detections"),
        pytest.param("4e1f" * 10, id="dataset revision"),
        pytest.param("var/env/serving/bin/python", id="interpreter"),
        pytest.param('href="http://127.0.0.1:4200"', id="link to Prefect"),
        pytest.param('href="../data/index.html"', id="link to the data report"),
    ],
)
def test_the_page_shows(shown: str) -> None:
    assert shown in page_of()


def test_the_page_loads_nothing() -> None:
    page = page_of()
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page
    sources = re.findall(r'(?:src|<link[^>]*href)="([^"]*)"', page)
    assert len(sources) == 3
    assert all(source.startswith("data:") for source in sources)
    assert base64.b64encode(PNG).decode() in page


def test_what_comes_from_a_run_is_escaped() -> None:
    page = page_of(promotion={"promoted": False, "reason": "<script>alert(1)</script>"})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_another_digest_at_the_service_is_the_headline() -> None:
    page = page_of(service={"digest": OTHER_DIGEST, "version": "20260228.1", "url": "http://127.0.0.1:3000"})
    assert "Not serving the champion" in page
    assert "Promoted and serving" not in page
    assert "differs" in page


def test_a_kept_champion_and_a_failed_gate_are_said() -> None:
    failed = gate("map50_floor", None, 0.8, "mAP50 could not be computed", holds=False)
    page = page_of(promotion={"promoted": False, "reason": "The candidate is no better."}, gates=[failed])
    assert "Champion kept and serving" in page
    assert "fails" in page
    assert "0 of 1" in page


def test_a_wrong_verdict_is_said() -> None:
    wrong = picture_facts("plate-0009.png", ("stain", 0.55), expected="OK")
    page = page_of(pictures=[wrong])
    assert "Expected OK." in page
    assert "0 of 1" in page
    assert "Expected" not in page_of()


def test_a_report_survives_the_way_to_its_file() -> None:
    report = report_of()
    assert DemoReport.model_validate_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("service", {"digest": "abc", "version": "1", "url": "http://127.0.0.1"}, id="digest that is none"),
        pytest.param("metrics_test", {"map50": 1.2, "map50_95": 0.5, "images": 1, "per_class": []}, id="mAP50 over 1"),
        pytest.param("gates", [gate("g", float("nan"), 0.8, "")], id="a gate's value is not a number"),
        pytest.param("seconds", {"train": -1.0}, id="negative time"),
        pytest.param("unheard_of", 1, id="unknown field"),
    ],
)
def test_a_wrong_report_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        report_of(**{field: value})


def test_bars_share_the_line_in_order() -> None:
    assert [(b.name, b.start_percent, b.width_percent) for b in stage_bars({"pin": 1.0, "train": 3.0})] == [
        ("pin", 0.0, 25.0),
        ("train", 25.0, 75.0),
    ]
    assert [bar.width_percent for bar in stage_bars({"pin": 0.0})] == [0.0]
    assert stage_bars({}) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.42, "0.4 s"), (99.9, "99.9 s"), (128.4, "2 min 08 s"), (119.7, "2 min 00 s")]
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


def test_a_missing_number_is_a_dash() -> None:
    assert number_text(None) == "\u2013"
    assert number_text(0.8766) == "0.877"


def test_a_picture_is_summed_up_in_one_line() -> None:
    picture = PictureFacts.model_validate(picture_facts("a.jpg", ("pit", 0.7)))
    assert report_picture(picture, PNG) == ReportPicture("a.jpg", PNG, Verdict.NG, "pit 0.70")
    nothing: tuple[Detection, ...] = ()
    assert found_text(nothing) == "no defect"
