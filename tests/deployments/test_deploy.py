"""prefect.yaml deploys what it names, and nothing when anything is wrong (style no. 27, field case A25)."""

from pathlib import Path

import pytest
from prefect.flows import load_flow_from_entrypoint

from data_contracts.errors import JobError
from deployments.deploy import check, deployments_of, entrypoint_problems, parameter_problems, pools_of
from deployments.steps import read_params

ROOT = Path(__file__).parents[2]
FLOWS = ["validate_dataset", "retrain", "promote", "reconcile", "attend", "ensure_service", "redeploy", "rollback"]


def test_every_flow_is_deployed_from_a_module_entrypoint_that_loads() -> None:
    deployments = deployments_of(ROOT)
    assert [d["name"] for d in deployments] == FLOWS
    for deployment in deployments:
        assert ".py:" not in deployment["entrypoint"]
        assert (
            load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False).name == deployment["name"]
        )


def test_pools_and_queues_are_those_of_the_architecture() -> None:
    assert pools_of(deployments_of(ROOT)) == {"training": {"train", "control"}, "inference": {"deploy", "urgent"}}


def test_what_stands_there_is_right() -> None:
    assert len(check(ROOT)) == len(FLOWS)


def test_every_schedule_has_a_slug_and_a_time_zone() -> None:
    schedules = [s for d in deployments_of(ROOT) for s in d.get("schedules", [])]
    assert schedules
    assert all(s["slug"] and s["timezone"] for s in schedules)


def test_an_entrypoint_that_cannot_be_imported_is_named() -> None:
    (problem,) = entrypoint_problems([{"name": "x", "entrypoint": "flows.nothing.nothing"}])
    assert "flows.nothing" in str(problem)


@pytest.mark.parametrize(
    ("case", "parameters", "words"),
    [
        ("unknown parameter", {"confg": {}}, "one of"),
        ("wrong value", {"config": {"host_timeout_s": 1}}, "host_timeout_s"),
        ("unknown field", {"config": {"host_timeout_s": 60, "extra": 1}}, "extra"),
    ],
)
def test_a_wrong_default_is_named(case: str, parameters: dict[str, object], words: str) -> None:
    deployment = {"name": "reconcile", "entrypoint": "flows.reconcile.reconcile", "parameters": parameters}
    problems = list(parameter_problems([deployment], {}))
    assert problems
    assert words in str(problems[0])


def test_a_wrong_params_file_stops_the_build_step(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text().replace("epochs: ", "epochs: ten # ", 1)
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(JobError, match=r"job\.\w+\.epochs"):
        read_params(str(tmp_path / "params.yaml"))
