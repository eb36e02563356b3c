"""The local stack: every process of both sides on one machine, under Supervisor.

Service and agent run from the serving environment, the inference worker from its own, the rest from the training one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import httpx
import psutil

from data_contracts.errors import InvalidInput, OutsideSystemError, Problem, ServiceManagerError, raise_if_any
from data_contracts.release import now
from deployments.environment import StackSettings
from deployments.ports import port_problem
from deployments.programs import MARK, Program, host_environment, render_config, socket_path, stack_programs
from serving.settings import PREFIX
from tasks.service_manager import ProcessState, ServiceManager

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
OTHERS = ("PREFECT_", "MLFLOW_", "BENTOML_", "DVC_", "PYTHON", "VIRTUAL_ENV")
"""Beginnings of variables of the user's shell that must not leak into the stack."""


class Stack:
    """The local stack as a whole."""

    def __init__(self, settings: StackSettings) -> None:
        self.settings = settings
        self.folder = settings.home / "supervisor"
        self.socket = socket_path(self.folder)
        self.manager = ServiceManager(self.socket)
        self.config_file = self.folder / "supervisord.conf"

    def programs(self) -> tuple[Program, ...]:
        """All programs, in the order in which they start."""
        return stack_programs(self.settings, self.socket)

    def running(self) -> bool:
        """Whether Supervisor answers."""
        try:
            self.manager.states()
        except ServiceManagerError:
            return False
        return True

    def up(self, say: Callable[[str], None]) -> None:
        """Start everything and wait until it answers; what runs already is left alone.

        Raises an error that names the port, the tool or the process that is in the way; what this call started does
        not stay running then.
        """
        self._check_interpreters()
        config = render_config(self.settings, self.folder, self.socket, self.programs())
        if self.running() and self.config_file.read_text() != config:
            say("the stack runs with other settings: restarting it")
            self.down(say)
        self.settings.home.mkdir(parents=True, exist_ok=True)
        self.settings.host_env_file.write_text(host_environment(self.settings, os.environ))
        if self.running():
            self._revive()
            self._wait(say)
            return
        started_at = now()
        try:
            self._start(config)
            self._wait(say)
            end_orphans(self.settings.prefect_url, started_at, say)
        except BaseException:
            self.down(lambda _: None)
            raise

    def _revive(self) -> None:
        """Start what is not running, also what Supervisor gave up on."""
        for state in self.manager.states():
            if state.state in ("STOPPED", "EXITED", "FATAL"):
                self.manager.start(state.name)

    def down(self, say: Callable[[str], None]) -> None:
        """Stop everything, and make sure of it."""
        if self.running():
            say("stopping the stack")
            self.manager.shut_down()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self.running() and time.monotonic() < deadline:
                time.sleep(0.2)
        self._sweep()
        self.socket.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """End what carries this stack's mark but has no Supervisor any more."""
        left = list(self._processes())
        for process in left:
            _quietly(process.terminate)
        _, alive = psutil.wait_procs(left, timeout=10)
        for process in alive:
            _quietly(process.kill)
        psutil.wait_procs(alive, timeout=10)

    def _processes(self) -> Iterator[psutil.Process]:
        """Processes that carry this stack's mark, ours not among them."""
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(MARK) == str(self.settings.home):
                    yield process
            except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
                continue

    def _check_interpreters(self) -> None:
        s = self.settings
        missing = [p for p in (s.training_python, s.inference_python, s.serving_python) if not p.is_file()]
        raise_if_any(
            InvalidInput,
            [Problem(str(python), "a Python interpreter", "no such file", "Run `make setup`.") for python in missing],
        )

    def _start(self, config: str) -> None:
        self._sweep()
        s = self.settings
        ports = {"PREFECT": s.prefect_port, "MLFLOW": s.mlflow_port, "SERVICE": s.service_port}
        raise_if_any(InvalidInput, [problem for name, port in ports.items() if (problem := port_problem(name, port))])
        for folder in (self.folder, s.logs, s.home / "mlflow", s.home / "prefect", s.home / "channel", s.home / "host"):
            folder.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text(config)
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(self.config_file)]
        done = subprocess.run(command, cwd=s.home, env=_clean_environment(s.home), capture_output=True, text=True)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()[-500:]
            raise ServiceManagerError(Problem("supervisord", "to start", words, f"See {self.folder}/supervisord.log."))

    def _wait(self, say: Callable[[str], None]) -> None:
        """Wait for every program, telling when each is up."""
        started = time.monotonic()
        waiting = {program.name: program for program in self.programs()}
        while waiting:
            states = {state.name: state for state in self._states_or_none()}
            for name, program in list(waiting.items()):
                state = states.get(name)
                if state is not None and state.state == "FATAL":
                    raise OutsideSystemError(self._dead(name, state.detail))
                if state is not None and state.running and program.answers():
                    say(f"{name:<17} up after {time.monotonic() - started:.0f} s")
                    del waiting[name]
            if time.monotonic() - started > START_TIMEOUT_S:
                raise OutsideSystemError(*(self._dead(name, "no answer") for name in waiting))
            time.sleep(0.25)

    def _states_or_none(self) -> tuple[ProcessState, ...]:
        try:
            return self.manager.states()
        except ServiceManagerError:
            return ()

    def _dead(self, name: str, detail: str) -> Problem:
        log = self.settings.logs / f"{name}.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.is_file() else "(no log)"
        return Problem(
            f"process {name}",
            f"up within {START_TIMEOUT_S:g} s",
            detail or "ended",
            f"Its log {log} ends with:\n{tail}\n",
        )


def _clean_environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, *OTHERS))}
    return {**kept, MARK: str(home), "PYTHONUNBUFFERED": "1"}


def _quietly(action: Callable[[], object]) -> None:
    with suppress(psutil.NoSuchProcess):
        action()


def end_orphans(prefect_url: str, started_at: datetime, say: Callable[[str], None]) -> None:
    """Say of runs from before this start that they crashed: nobody is left to, and they would hold their slots."""
    api = f"{prefect_url}/api/flow_runs"
    under_way = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
    wanted = {"state": under_way, "expected_start_time": {"before_": started_at.isoformat()}}
    for run in httpx.post(f"{api}/filter", json={"flow_runs": wanted}, timeout=30).raise_for_status().json():
        state = {"type": "CRASHED", "name": "Crashed", "message": "the stack was stopped while this run was under way"}
        httpx.post(f"{api}/{run['id']}/set_state", json={"state": state}, timeout=30).raise_for_status()
        say(f"run {run['name']} was cut off by an earlier stop: marked as crashed")


def check_tools() -> None:
    """What must be on the PATH. Raises InvalidInput naming what is missing."""
    missing = [tool for tool in ("git",) if shutil.which(tool) is None]
    hint = "Install it (Debian: apt-get install {})."
    raise_if_any(InvalidInput, [Problem(tool, "on the PATH", "not found", hint.format(tool)) for tool in missing])
