"""Step: time and memory of candidate and champion, in processes that do nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from prefect import task
from pydantic import ValidationError

from data_contracts.errors import EngineError
from serving.bundle import open_bundle
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.speed_result import BatchCost, Cost, SpeedAnswer, SpeedRequest, SpeedResult
from tasks.run_log import current_logger

MODULE = "tasks.gating.speed_process"
LIMIT_S = 300.0
Ask = Callable[[SpeedRequest], SpeedAnswer]


def ask_process(request: SpeedRequest) -> SpeedAnswer:
    """Run a request in a process of its own. Raises EngineError with the reason."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command, sent = [sys.executable, "-m", MODULE], request.to_json().encode()
    try:
        done = subprocess.run(command, input=sent, capture_output=True, timeout=LIMIT_S, env=environment, check=True)
        return SpeedAnswer.model_validate_json(done.stdout)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"the measuring process ended with status {error.returncode}: {' '.join(words)}") from error
    except (subprocess.TimeoutExpired, OSError, ValidationError) as error:
        raise EngineError(f"the measuring process gave no times: {type(error).__name__}") from error


def measure_costs(candidate: Path, champion: Path, policy: GatePolicy, ask: Ask = ask_process) -> SpeedResult:
    """Times of both in one process, the memory of each in one of its own. Raises EngineError."""
    batches = []
    for batch in policy.speed_batches:
        both = ask(SpeedRequest(bundles=(candidate, champion), batch=batch, rounds=policy.speed_rounds))
        alone = [ask(SpeedRequest(bundles=(path,), batch=batch, rounds=1)) for path in (candidate, champion)]
        ours, theirs = (
            Cost(seconds=seconds, peak_mib=one.peak_mib) for seconds, one in zip(both.seconds, alone, strict=True)
        )
        batches.append(BatchCost(batch=batch, candidate=ours, champion=theirs))
    digests = [open_bundle(path).digest for path in (candidate, champion)]
    return SpeedResult(candidate=digests[0], champion=digests[1], batches=tuple(batches))


@task(name="measure speed")
def measure_speed(candidate: Path, champion: Path, policy: GatePolicy) -> SpeedResult | None:
    """Candidate against champion; None where it could not be measured, which the gates refuse."""
    try:
        return measure_costs(candidate, champion, policy)
    except EngineError as error:
        current_logger().warning("Speed was not measured: %s", error)
        return None
