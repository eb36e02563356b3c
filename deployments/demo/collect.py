"""What the demonstration reads back after the run: from the run's folder, the registry, the service and the host."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from data_contracts.errors import OutsideSystemError, Problem, RegistryError
from data_contracts.inspection import Inspection
from deployments.demo.plates import read_held_out
from deployments.demo.report_model import (
    ClassMetrics,
    GateFacts,
    Interpreters,
    ModelFacts,
    PictureFacts,
    Promotion,
    TestMetrics,
)
from deployments.environment import StackSettings
from deployments.follow import RunEnd
from serving.bundle import open_bundle
from tasks.evaluate import RESULT_FILE
from tasks.evaluation.evaluation_result import ClassResult, EvaluationResult
from tasks.gates import GATES_FILE, GateReport
from tasks.registry import Registry
from tasks.settings import SiteSettings

REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """`facts` are fields of the demo report."""

    facts: dict[str, Any]
    data_report: str | None


def read_outcome(site: SiteSettings, run_id: str, end: RunEnd) -> Outcome:
    """What the run measured and decided, and who is champion after it."""
    folder = site.runs / run_id
    evaluation = EvaluationResult.model_validate_json((folder / "evaluation" / RESULT_FILE).read_bytes())
    gates = GateReport.model_validate_json((folder / GATES_FILE).read_bytes())
    manifest = open_bundle(folder / "bundles" / evaluation.digest, evaluation.digest).manifest
    mlflow_run = manifest.provenance.mlflow_run_id
    registry = Registry(site.mlflow_url)
    page = registry.run_url(mlflow_run, site.mlflow_public_url)
    facts = {
        "mlflow_run_id": mlflow_run,
        "mlflow_url": page,
        "model": _champion(registry, manifest.name),
        "metrics_test": TestMetrics(
            map50=evaluation.map50 or 0.0,
            map50_95=evaluation.map50_95 or 0.0,
            images=evaluation.pictures,
            per_class=tuple(map(_class_metrics, evaluation.classes)),
        ),
        "gates": tuple(
            GateFacts(name=c.name, holds=c.holds, value=c.value, limit=c.limit, words=c.words)
            for c in [*gates.checks, gates.promotion]
        ),
        "promotion": Promotion(promoted=end.name == "Promoted", reason=end.message),
    }
    return Outcome(facts, f"{page}/artifacts/data/data_report.html")


def _champion(registry: Registry, name: str) -> ModelFacts:
    champion = registry.champion(name)
    if champion is None:
        raise RegistryError(
            Problem(f"model {name}", "a champion", "none", "See the gate table of the retrain run in the Prefect UI.")
        )
    return ModelFacts(
        name=name,
        registry_version=str(champion.number),
        bundle_digest=champion.digest,
        bundle_version=champion.label,
    )


def _class_metrics(one: ClassResult) -> ClassMetrics:
    recall = None if one.escape_rate is None else 1.0 - one.escape_rate
    return ClassMetrics(
        class_name=one.name,
        instances=one.instances,
        ap50=one.ap50,
        ap50_95=one.ap50_95,
        precision=one.precision,
        recall=recall,
    )


def inspect_held_out(url: str, held_out: Path, annotated: Path) -> tuple[PictureFacts, ...]:
    """Send each unseen picture to the endpoint, once for the answer and once for the drawing in `annotated`."""
    annotated.mkdir(parents=True, exist_ok=True)
    with httpx.Client(base_url=url, timeout=REQUEST_TIMEOUT_S, trust_env=False) as client:
        return tuple(
            _inspect(client, plate.picture, plate.expected.value, annotated) for plate in read_held_out(held_out)
        )


def _inspect(client: httpx.Client, picture: Path, expected: str, annotated: Path) -> PictureFacts:
    data = picture.read_bytes()
    started = time.perf_counter()
    answer = _post(client, "/v1/inspect", data)
    milliseconds = (time.perf_counter() - started) * 1000
    inspection = Inspection.model_validate_json(answer.content)
    drawing = annotated / f"{picture.stem}.png"
    drawing.write_bytes(_post(client, "/v1/inspect/annotated", data).content)
    return PictureFacts.model_validate(
        {
            "file": picture.name,
            "verdict": inspection.verdict,
            "expected_verdict": expected,
            "detections": [d.model_dump() for d in inspection.detections],
            "image_wh": inspection.image_wh,
            "annotated": f"{annotated.name}/{drawing.name}",
            "milliseconds": milliseconds,
        }
    )


def _post(client: httpx.Client, path: str, data: bytes) -> httpx.Response:
    answer = client.post(path, content=data, headers={"Content-Type": "application/octet-stream"})
    if not answer.is_success:
        raise OutsideSystemError(
            Problem(
                f"{client.base_url}{path}", "an answer", f"{answer.status_code}: {answer.text[:200]}", "See its log."
            )
        )
    return answer


def interpreters(settings: StackSettings) -> Interpreters:
    """The interpreter of each side, as it names itself."""
    return Interpreters(
        training=_prefix_of(settings.training_python),
        inference_worker=_prefix_of(settings.inference_python),
        service=_prefix_of(settings.serving_python),
    )


def _prefix_of(python: Path) -> str:
    words = "import sys; print(sys.prefix, 'Python', sys.version.split()[0])"
    done = subprocess.run([python, "-c", words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
