"""Try an engine in a process of its own: one that crashes, hangs or takes much memory does not touch the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from data_contracts.base import Contract
from data_contracts.bundle import Precision
from data_contracts.errors import EngineError, PasslineError
from data_contracts.tuning import EngineChoice, Policy
from serving.engine_types import Provider

MODULE = "serving.tune_process"
IDLE = "serving.idle"


class TrialRequest(Contract):
    """What to try. Read from the standard input of the trial process."""

    what: Literal["list", "measure", "judge"]
    bundle: Path
    providers: tuple[Provider, ...] = Field(default=(), description="To list: whose engines.")
    engines: tuple[EngineChoice, ...] = Field(default=(), description="To try: one engine, in one or more layouts.")
    policy: Policy = "throughput"
    measure_s: float = Field(default=1.0, gt=0, description="Seconds per layout.")
    probe_set: Path | None = None
    engine_cache: Path | None = None
    max_batch: int = Field(default=8, ge=1)
    workspace_bytes: int | None = None
    idle: bool = Field(default=False, description="At the lowest priority: something is being served meanwhile.")


class Measured(Contract):
    """What one layout reached."""

    engine: EngineChoice
    pictures_per_s: float
    call_ms: float


class Listed(Contract):
    """An engine that a bundle could have; `reason` says why not on this host, and is empty where it could."""

    provider: Provider
    precision: Precision
    reason: str


class TrialReport(Contract):
    """What came out. Written to the standard output of the trial process."""

    listed: tuple[Listed, ...] = ()
    measured: tuple[Measured, ...] = ()
    passed: bool = True
    words: str = ""
    failure: str = Field(default="", description="Why nothing came out: the engine refused, in its words.")


class TrialTimeout(EngineError):
    """A trial did not end in time; on a busy host that need not be the engine's fault."""


Try = Callable[[TrialRequest, float], TrialReport]
"""Runs a request within seconds; raises EngineError with the reason: a crash, a refusal or, as TrialTimeout, a hang."""


def run_trial(request: TrialRequest, limit_s: float) -> TrialReport:
    """Run `request` in a process that is killed after `limit_s`. Raises EngineError with the reason."""
    # The child must find this package wherever it lies, also where the working directory is not on the path.
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ORT_DISABLE_TELEMETRY": "1"}
    modules = [IDLE, MODULE] if request.idle else [MODULE]
    command = [sys.executable, "-m", *modules]
    try:
        done = subprocess.run(
            command,
            input=request.to_json().encode(),
            capture_output=True,
            timeout=limit_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TrialTimeout(f"no result within {round(limit_s, 1):g} s") from None
    except OSError as error:
        raise EngineError(f"no process for the trial: {error}") from error
    if done.returncode:
        raise EngineError(f"the trial process {_end(done.returncode)}: {_last_words(done.stderr)}")
    try:
        report = TrialReport.model_validate_json(done.stdout)
    except ValidationError:
        raise EngineError(f"the trial process gave no report: {_last_words(done.stderr)}") from None
    if report.failure:
        raise EngineError(report.failure)
    return report


def first_problem(error: PasslineError) -> str:
    """The first of an error's problems and how many more there are: a wrong engine differs in every box."""
    more = len(error.problems) - 1
    return f"{error.problems[0]} (and {more} more)" if more > 0 else str(error)


def _end(code: int) -> str:
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _last_words(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"
