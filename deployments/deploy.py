"""`passline deploy`: everything in prefect.yaml, onto the Prefect server; nothing changes when anything is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_contracts.errors import JobError, OutsideSystemError, Problem, raise_if_any
from deployments.automations import apply_automations
from deployments.environment import alert_webhook
from deployments.field_problems import field_problem
from deployments.params import load_params
from deployments.steps import read_params
from deployments.yaml_files import read_yaml

if TYPE_CHECKING:
    from prefect import Flow

LEASES = {"passline-promotion": 1}
"""Prefect global concurrency limits: name to slots. One promotion at a time."""


def deployments_of(project: Path) -> list[dict[str, Any]]:
    """The deployments of prefect.yaml, as written."""
    return list(read_yaml(project / "prefect.yaml").get("deployments", []))


def pools_of(deployments: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Work pool to its queues."""
    pools: dict[str, set[str]] = {}
    for deployment in deployments:
        pool = deployment["work_pool"]
        pools.setdefault(pool["name"], set()).add(pool["work_queue_name"])
    return pools


def entrypoint_problems(deployments: list[dict[str, Any]]) -> Iterator[Problem]:
    """Entrypoints that cannot be imported. Prefect itself would deploy a placeholder in their place."""
    from prefect.flows import load_flow_from_entrypoint

    for deployment in deployments:
        entrypoint = deployment["entrypoint"]
        try:
            load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
        except Exception as error:  # noqa: BLE001 - importing a flow may fail in any way; the person gets the reason
            yield Problem(
                f"prefect.yaml: {deployment['name']}", f"flow {entrypoint}", repr(error), "Mend the entrypoint."
            )


def parameter_problems(deployments: list[dict[str, Any]], params: dict[str, Any]) -> Iterator[Problem | str]:
    """Parameters of prefect.yaml that no flow takes or that its models refuse."""
    from prefect.flows import load_flow_from_entrypoint

    for deployment in deployments:
        flow: Flow[Any, Any] = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
        for name, value in (deployment.get("parameters") or {}).items():
            subject = f"prefect.yaml: {deployment['name']}.parameters.{name}"
            if name not in flow.parameters.properties:
                yield Problem(subject, f"one of {sorted(flow.parameters.properties)}", name, "Check its spelling.")
                continue
            yield from _value_problems(flow.fn, name, _filled(value, params), subject)


def _filled(value: Any, params: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("{{ params.") and value.endswith(" }}"):
        return params.get(value.removeprefix("{{ params.").removesuffix(" }}"), value)
    return value


def _value_problems(function: Any, name: str, value: Any, subject: str) -> Iterator[Problem | str]:
    from typing import get_type_hints

    from pydantic import TypeAdapter, ValidationError

    wanted = get_type_hints(function, include_extras=True)[name]
    try:
        TypeAdapter(wanted).validate_python(value)
    except ValidationError as error:
        yield from (field_problem(wanted, subject, item) for item in error.errors())


def check(project: Path) -> list[dict[str, Any]]:
    """Everything that can be known to be wrong before the server is asked. Raises JobError with all of it."""
    deployments = deployments_of(project)
    raise_if_any(JobError, entrypoint_problems(deployments))
    raise_if_any(JobError, parameter_problems(deployments, read_params(str(project / "params.yaml"))))
    return deployments


def deploy(project: Path) -> dict[str, str]:
    """Check, make pools, queues and leases, apply prefect.yaml and the automations; returns deployment name to its id.

    Raises JobError for what is wrong in the files, OutsideSystemError when the server refuses.
    """
    deployments, webhook = check(project), alert_webhook()
    make_pools(pools_of(deployments))
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=project, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise OutsideSystemError(Problem("prefect deploy --all", "to be accepted", words, "Mend what it names."))
    deployed = deployed_ids(deployments)
    apply_automations(deployed, load_params(project / "params.yaml").alerts, webhook)
    return deployed


def make_pools(pools: dict[str, set[str]]) -> None:
    """Process work pools with their queues, and the leases; what is there stays as it is."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        for pool, queues in pools.items():
            try:
                client.read_work_pool(pool)
            except ObjectNotFound:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process", base_job_template=template))
            for queue in sorted(queues):
                _ignoring(ObjectAlreadyExists, client.create_work_queue, name=queue, work_pool_name=pool)
        for name, slots in LEASES.items():
            try:
                client.read_global_concurrency_limit_by_name(name)
            except ObjectNotFound:
                client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=slots))


def _ignoring(error: type[Exception], call: Any, **arguments: Any) -> None:
    try:
        call(**arguments)
    except error:
        return


def deployed_ids(deployments: list[dict[str, Any]]) -> dict[str, str]:
    """Deployment name to its id on the server."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return {d["name"]: str(_deployment_id(client, d["name"])) for d in deployments}


def _deployment_id(client: Any, name: str) -> UUID:
    return UUID(str(client.read_deployment_by_name(f"{name}/{name}").id))
