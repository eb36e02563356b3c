"""The gate report as a step: written from what the steps before have left, put to the records, tagged and linked."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import make_bundle
from made_case import made_case, store_truth
from made_results import NAMES
from tasks import report_gates
from tasks.evaluation.found_boxes import BOXES_FILE, save_boxes
from tasks.evaluation.picture_scores import SCORES_FILE, save_scores
from tasks.gate_report.gate_case import MeasuredBundle
from tasks.gates import Evidence, GateReport, decide
from tasks.showcase import gate_markdown
from training_fakes import comparison, evaluation, gate_policy, parity, speed


class Records:
    """Stands for MLflow; remembers what was uploaded."""

    logged: list[tuple[str, str, str]]
    tags: dict[str, str]

    def __init__(self, url: str) -> None:
        self.url = url

    def log_folder(self, run_id: str, source: Path, folder: str) -> None:
        files = sorted(path for path in source.rglob("*") if path.is_file())
        Records.logged += [(run_id, str(path.relative_to(source)), folder) for path in files]

    def set_run_tags(self, run_id: str, tags: dict[str, str]) -> None:
        Records.tags = tags

    def run_url(self, run_id: str, public_url: str) -> str:
        return f"{public_url}/runs/{run_id}"


def report_of(map50: float = 0.9, difference: float = 0.03) -> GateReport:
    evidence = Evidence(
        candidate=evaluation(map50=map50),
        parity=parity(),
        champion=evaluation(digest="d" * 64),
        comparison=comparison(difference, difference),
        speed=speed(),
    )
    return decide(evidence, gate_policy())


@pytest.mark.parametrize(
    ("report", "heading", "state"),
    [
        pytest.param(report_of(), "Accepted, and may replace the champion.", "promotable", id="better"),
        pytest.param(report_of(difference=0.0), "it does not replace the champion.", "accepted", id="equal"),
        pytest.param(report_of(map50=0.5), "Rejected: 1 check does not hold.", "rejected", id="below the floor"),
    ],
)
def test_a_decision_is_told_tagged_and_linked(report: GateReport, heading: str, state: str, tmp_path, monkeypatch):
    links: dict[str, str] = {}
    Records.logged, Records.tags = [], {}
    monkeypatch.setattr(report_gates, "Registry", Records)
    monkeypatch.setattr(report_gates, "leave_link", lambda key, url, text: links.update({key: url}))
    for name in ("gates/gate_report.html", "gates/gates.json", "evaluation/evaluation.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    page, measured = tmp_path / "gates/gate_report.html", tmp_path / "evaluation"
    url = report_gates.leave_gate_report.fn("http://a", "http://public", "run1", page, measured, report)
    assert url == links["gate-report"] == "http://public/runs/run1/artifacts/gates/gate_report.html"
    assert Records.tags == {"passline.gates": state}
    assert Records.logged == [
        ("run1", "gate_report.html", "gates"),
        ("run1", "gates.json", "gates"),
        ("run1", "evaluation.json", "gates/evaluation"),
    ]
    told = gate_markdown(report, url)
    assert heading in told.splitlines()[0]
    assert f"[Gate report]({url})" in told
    assert all(f"- {check.words}" in told for check in report.refusals)
    assert report.promotion.words in told


def test_the_report_is_written_from_what_the_steps_before_have_left(tmp_path):
    case = made_case(tmp_path, pictures=16, with_champion=False, with_int8=False)
    store_truth(tmp_path, case.truth)
    ours = MeasuredBundle(make_bundle(tmp_path / "sealed", class_names=NAMES, threshold=0.4), tmp_path / "evaluation")
    ours.evaluation.mkdir()
    save_scores(case.scores, ours.evaluation / SCORES_FILE)
    save_boxes(case.found, ours.evaluation / BOXES_FILE)
    page = report_gates.write_gate_report.fn(
        case.report, case.evidence, case.policy, tmp_path, ours, None, tmp_path / "run"
    )
    assert page == tmp_path / "run" / "gates" / "gate_report.html"
    assert Evidence.model_validate_json((page.parent / "evidence.json").read_bytes()) == case.evidence
    assert GateReport.model_validate_json((page.parent / "gates.json").read_bytes()) == case.report
    assert page.read_text().count("data:image/jpeg") > 0
