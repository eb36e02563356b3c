"""Steps: write the gate report of a candidate, and put it to the training's records, linked from the run."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from tasks.artifacts import leave_link
from tasks.gate_report.gate_case import MeasuredBundle, read_case
from tasks.gate_report.gate_page import write_gate_page
from tasks.gates import GATES_FILE, Evidence, GateReport
from tasks.gating.gate_policy import GatePolicy
from tasks.registry import Registry

GATES_FOLDER = "gates"
"""Where a run keeps its gate report, in the run folder and in MLflow."""
EVIDENCE_FILE = "evidence.json"
GATES_TAG = "passline.gates"


@task(name="write the gate report")
def write_gate_report(
    report: GateReport,
    evidence: Evidence,
    policy: GatePolicy,
    working_copy: Path,
    candidate: MeasuredBundle,
    champion: MeasuredBundle | None,
    folder: Path,
) -> Path:
    """Write the page for people, and decision and evidence for programs, below the run's `folder`; the page's path."""
    about = {"Flow run": folder.name}
    case = read_case(report, evidence, policy, working_copy, candidate, champion, about)
    page = write_gate_page(case, folder / GATES_FOLDER)
    page.with_name(GATES_FILE).write_text(report.to_json(), encoding="utf-8")
    page.with_name(EVIDENCE_FILE).write_text(evidence.to_json(), encoding="utf-8")
    return page


@task(name="publish the gate report", retries=2, retry_delay_seconds=2)
def leave_gate_report(
    mlflow_url: str, public_url: str, run_id: str, page: Path, evaluation: Path, report: GateReport
) -> str:
    """Put the page, and the measurement behind it, to the training's records; link it and return its address."""
    registry = Registry(mlflow_url)
    registry.log_folder(run_id, page.parent, GATES_FOLDER)
    registry.log_folder(run_id, evaluation, f"{GATES_FOLDER}/evaluation")
    state = "rejected" if not report.accepted else "promotable" if report.promotable else "accepted"
    registry.set_run_tags(run_id, {GATES_TAG: state})
    url = f"{registry.run_url(run_id, public_url)}/artifacts/{GATES_FOLDER}/{page.name}"
    leave_link("gate-report", url, "Gate report")
    return url
