"""The worker of a pool: Prefect's process worker, which starts a job only into what is free for it on this host.

What a run was given stands in its labels on the server, so that a worker that was restarted knows it. Runs that declare
nothing start at once. Written against the worker of the pinned Prefect version: it replaces how a batch of due runs is
submitted and how one is run.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import psutil
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType, WorkerStatus
from prefect.states import Failed
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from data_contracts.errors import Problem
from deployments.jobs_plan import Grant, HostResources, Plan, RunningJob, WaitingJob, plan_jobs
from deployments.jobs_runs import WAITS, grant_labels, image_problem, running_jobs, waiting_jobs
from tasks.alerts import REFUSED
from tasks.flow_runs import AT_ONCE

if TYPE_CHECKING:
    import anyio.abc
    from prefect.client.schemas.responses import WorkerFlowRunResponse

UNDER_WAY = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def run_environment(grant: Grant) -> dict[str, str]:
    """Variables that show a run its own GPUs only, numbered as the driver does."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, grant.devices))}


class _Pinned:
    """Keeps a run's process on its cores as soon as its number is known."""

    def __init__(self, status: Any, cores: tuple[int, ...]) -> None:
        self._status, self._cores = status, cores

    def started(self, pid: int) -> None:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                os.sched_setaffinity(one.pid, self._cores)
        self._status.started(pid)


class JobsWorker(ProcessWorker, abc.ABC):  # ABC: keeps Prefect from registering a second worker of type "process"
    """A process worker that keeps what jobs declare. `resources` says what the host has at this moment."""

    def __init__(self, *arguments: Any, resources: Callable[[], HostResources], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._resources = resources
        self._starting: dict[UUID, RunningJob] = {}

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Run it on the cores and GPUs that it was given."""
        mine = self._starting.get(flow_run.id)
        if mine is None:
            return await super().run(flow_run, configuration, task_status)
        configuration.env.update(run_environment(mine.grant))
        pinned: Any = _Pinned(task_status or anyio.TASK_STATUS_IGNORED, mine.grant.cores)
        return await super().run(flow_run, configuration, pinned)

    async def _submit_scheduled_flow_runs(self, flow_run_response: list[WorkerFlowRunResponse]) -> list[FlowRun]:
        held_back = await self._hold_back([entry.flow_run for entry in flow_run_response])
        return await super()._submit_scheduled_flow_runs(
            [entry for entry in flow_run_response if entry.flow_run.id not in held_back]
        )

    async def _hold_back(self, due: list[FlowRun]) -> set[UUID]:
        """Which of the due runs do not start now; those that do have their share in their labels."""
        waiting = [one for one in waiting_jobs(due) if one.run_id not in self._submitting_flow_run_ids]
        if not waiting:
            return set()
        running = await self._running()
        under_way = {one.run_id for one in running}  # the list of due runs may be a moment older
        fresh = [one for one in waiting if one.run_id not in under_way]
        plan = plan_jobs(self._resources(), running, [one for one in fresh if one.job.image is None])
        await self._carry_out(plan, fresh, {run.id: run for run in due})
        return {one.run_id for one in waiting} - plan.start.keys()

    async def _running(self) -> list[RunningJob]:
        """Jobs under way in the pool, those that are just being started here among them."""
        starting = {run_id: one for run_id, one in self._starting.items() if run_id in self._submitting_flow_run_ids}
        found: list[FlowRun] = []
        pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[self._work_pool_name]))
        wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=UNDER_WAY)))
        while page := await self.client.read_flow_runs(
            flow_run_filter=wanted, work_pool_filter=pool, limit=AT_ONCE, offset=len(found)
        ):
            found += page
        self._starting = starting
        running = {one.run_id: one for one in running_jobs(found, self.name)}
        return list((starting | running).values())

    async def _carry_out(self, plan: Plan, waiting: list[WaitingJob], runs: dict[UUID, FlowRun]) -> None:
        for one in waiting:
            run = runs[one.run_id]
            if (grant := plan.start.get(run.id)) is not None:
                self._starting[run.id] = RunningJob(run.id, run.name, one.job.output, grant)
                await self.client.update_flow_run_labels(run.id, grant_labels(self.name, grant))
            elif run.id in plan.waits:
                await self._tell(run, plan.waits[run.id])
            elif one.job.image is not None:
                await self._refuse(run, str(image_problem(one.job.image, self.type)))
            elif await self._has_fellows():
                await self._tell(run, f"too large for {self.name}: {_words(plan.refused[run.id])}")
            else:
                await self._refuse(run, _words(plan.refused[run.id]))

    async def _tell(self, run: FlowRun, words: str) -> None:
        """Say once in the log of the run, and in its labels, why it waits."""
        if run.labels.get(WAITS) == words:
            return
        self.get_flow_run_logger(run).info(f"waits: {words}")
        await self.client.update_flow_run_labels(run.id, {WAITS: words})

    async def _refuse(self, run: FlowRun, words: str) -> None:
        """End a run that can never start here."""
        await self.client.set_flow_run_state(run.id, Failed(name=REFUSED, message=words), force=True)

    async def _has_fellows(self) -> bool:
        """Whether the pool has other workers, whose hosts may be larger."""
        workers = await self.client.read_workers_for_work_pool(self._work_pool_name)
        return any(one.name != self.name and one.status == WorkerStatus.ONLINE for one in workers)


def _words(problems: tuple[Problem, ...]) -> str:
    return "; ".join(map(str, problems))
