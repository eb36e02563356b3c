"""The queue on a real Prefect server with a real worker: what is declared is kept, in order of priority.

The runs hold what they were given until the test lets them go. The host has two cores and two GPUs, which a stand-in
for `nvidia-smi` shows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from deployments.environment import StackSettings
from deployments.jobs import read_board
from deployments.own_stack import own_settings, own_stack
from deployments.programs import PREFECT_SERVER
from servers import REPOSITORY, wait_until

POOL = "training"
PATIENCE_S = 120.0
CORES = sorted(os.sched_getaffinity(0))[:2]
NVIDIA_SMI = "#!/bin/sh\necho '0, 8000, 7900'\necho '1, 16000, 15900'\n"


class Worker:
    """`python -m deployments.worker`, as Supervisor starts it."""

    def __init__(self, settings: StackSettings, folder: Path) -> None:
        self.log = folder / "worker.log"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "nvidia-smi").write_text(NVIDIA_SMI)
        (bin_folder / "nvidia-smi").chmod(0o755)
        self.environment = {
            **os.environ,
            **settings.training_environment(),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}",
            "PASSLINE_JOB_CPUS": "2",
            "PASSLINE_JOB_MEMORY_MIB": "1000",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "deployments.worker", POOL]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def kill_and_restart(self) -> None:
        """The worker dies without a word; its runs go on."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def settings() -> Iterator[StackSettings]:
    with own_settings() as found, own_stack(found, frozenset({PREFECT_SERVER}), print):
        yield found


@pytest.fixture(scope="module")
def worker(settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    from deployments.deploy import make_pools

    make_pools({POOL: {"train", "control"}})
    running = Worker(settings, tmp_path_factory.mktemp("worker"))
    yield running
    running.stop()


class Queue:
    """Submits runs of the flow `hold` and looks at them."""

    def __init__(self, folder: Path) -> None:
        from prefect.client.orchestration import get_client

        from job_flows import hold

        self.folder = folder
        with get_client(sync_client=True) as client:
            flow_id = client.create_flow(hold)
            self.deployments = {
                queue: client.create_deployment(
                    flow_id=flow_id, name=queue, entrypoint="job_flows.hold", work_pool_name=POOL, work_queue_name=queue
                )
                for queue in ("train", "control")
            }

    def submit(self, name: str, queue: str = "train", **job: Any) -> UUID:
        from prefect.client.orchestration import get_client

        parameters = {
            "folder": str(self.folder),
            "name": name,
            "job": declared(name, **job) if queue == "train" else None,
        }
        with get_client(sync_client=True) as client:
            run = client.create_flow_run_from_deployment(self.deployments[queue], parameters=parameters, name=name)
        return UUID(str(run.id))

    def started(self, *names: str) -> list[str]:
        """Those that have started."""
        return [name for name in names if (self.folder / f"{name}.started").exists()]

    def facts(self, name: str) -> Any:
        """What the run saw of the host; waits for its start."""
        wait_until(lambda: self.started(name), PATIENCE_S, f"{name} has started")
        return json.loads((self.folder / f"{name}.started").read_text())

    def let_go(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.go").touch()

    def run(self, run_id: UUID) -> Any:
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            return client.read_flow_run(run_id)

    def waits(self, run_id: UUID, words: str) -> None:
        wait_until(lambda: words in self.run(run_id).labels.get("passline.waits", ""), PATIENCE_S, f"it waits: {words}")

    def ended(self, run_id: UUID) -> Any:
        def over() -> Any:
            state = self.run(run_id).state
            return state if state.is_final() else None

        return wait_until(over, PATIENCE_S, "the run has ended")


def declared(name: str, priority: int = 50, output: str | None = None, image: str | None = None, **needs: int) -> Any:
    resources = {"cpus": 1, "memory_mib": 100, "devices": 0, "device_memory_mib": 0} | needs
    return {"resources": resources, "priority": priority, "seal": {"name": output or name}, "image": image}


def board() -> tuple[list[str], list[str]]:
    """Who waits, in order, and who runs, as `passline jobs` shows it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        found = read_board(client, None)
    assert found.workers == 1
    return [one.name for one in found.waiting], [one.name for one in found.running]


@pytest.fixture
def queue(worker: Worker, tmp_path: Path) -> Queue:
    return Queue(tmp_path)


def test_a_job_waits_for_what_it_declares_by_priority_also_after_the_worker_was_killed(
    queue: Queue, worker: Worker
) -> None:
    first = queue.submit("first", cpus=2)
    assert queue.facts("first") == {"cores": CORES, "devices": ""}
    low, high = queue.submit("low", cpus=2, priority=10), queue.submit("high", cpus=2, priority=90)
    queue.waits(low, "behind first, high")
    queue.waits(high, "needs 2 cores, 0 of 2 are free; behind first")
    assert board() == (["high", "low"], ["first"])
    control = queue.submit("control", "control")
    assert queue.ended(control).is_completed()

    worker.kill_and_restart()
    later = queue.submit("later", cpus=1, priority=99)
    queue.waits(later, "behind first")
    assert queue.started("low", "high", "later") == []
    queue.let_go("first", "later")
    assert queue.ended(first).is_completed()
    assert queue.ended(later).is_completed()
    queue.facts("high")
    assert queue.started("low") == []
    queue.let_go("high", "low")
    assert queue.ended(high).is_completed()
    assert queue.ended(low).is_completed()


def test_each_job_sees_its_own_device_only_and_no_output_is_made_twice_at_a_time(queue: Queue) -> None:
    small = queue.submit("small", devices=1)
    assert queue.facts("small")["devices"] == "0"
    large = queue.submit("large", devices=1, device_memory_mib=10_000)
    assert queue.facts("large")["devices"] == "1"
    third = queue.submit("third", devices=1)
    queue.let_go("large")
    assert queue.facts("third")["devices"] == "1"
    again = queue.submit("again", output="small")
    queue.waits(again, "'small' of the same output 'small' comes first")
    queue.let_go("small", "third", "again")
    assert all(queue.ended(run).is_completed() for run in (small, large, third, again))


@pytest.mark.parametrize(
    ("case", "job", "field"),
    [
        ("more cores", {"cpus": 64}, "job.resources.cpus: expected at most 2 on this host, got 64"),
        ("more memory", {"memory_mib": 2000}, "job.resources.memory_mib: expected at most 1000"),
        ("more devices", {"devices": 3}, "job.resources.devices: expected at most 2"),
        ("larger devices", {"devices": 2, "device_memory_mib": 9000}, "device_memory_mib: expected at most 8000"),
        ("a container", {"image": "trainer:1"}, "job.image: expected none in a pool of type process"),
    ],
)
def test_what_this_host_can_never_run_is_refused_by_field(
    case: str, job: dict[str, Any], field: str, queue: Queue
) -> None:
    state = queue.ended(queue.submit("refused", **job))
    assert (state.type.value, state.name) == ("FAILED", "Refused")
    assert field in state.message
    assert queue.started("refused") == []
