"""The programs of the local stack, and Supervisor's configuration for them."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from deployments.environment import LOOPBACK, StackSettings
from serving.settings import PREFIX, HostSettings
from tasks.service_manager import AGENT, SERVICE

PREFECT_SERVER, MLFLOW_SERVER = "prefect-server", "mlflow-server"
TRAINING_WORKER, INFERENCE_WORKER = "training-worker", "inference-worker"
MARK = "PASSLINE_STACK"
"""Environment variable of every process of a stack: which one it belongs to."""
SOCKET_PATH_LIMIT = 100
"""Bytes that the path of a Unix socket may have, with room for Supervisor's temporary name."""


@dataclass(frozen=True)
class Program:
    """One process of the stack. `answers` says whether it does its work."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    answers: Callable[[], bool]
    stop_wait_s: int = 20
    stop_as_group: bool = False


def stack_programs(settings: StackSettings, socket: Path) -> tuple[Program, ...]:
    """All programs, in the order in which they start."""
    return (
        _prefect_server(settings),
        _mlflow_server(settings),
        _serving_program(settings, AGENT, lambda: True, stop_wait_s=20),
        _serving_program(settings, SERVICE, lambda: _says_ok(f"{settings.service_url}/livez"), stop_wait_s=60),
        _worker(settings, "training", settings.training_python, settings.training_environment()),
        _worker(settings, "inference", settings.inference_python, settings.inference_environment(socket)),
    )


def _prefect_server(s: StackSettings) -> Program:
    command = (
        str(s.training_python),
        "-m",
        "prefect",
        "server",
        "start",
        "--host",
        LOOPBACK,
        "--port",
        str(s.prefect_port),
    )
    return Program(PREFECT_SERVER, command, s.control_environment(), lambda: _says_ok(f"{s.prefect_url}/api/health"))


def _mlflow_server(s: StackSettings) -> Program:
    where = ("--host", LOOPBACK, "--port", str(s.mlflow_port), "--workers", "1")
    stores = ("--backend-store-uri", f"sqlite:///{s.home}/mlflow/mlflow.db", "--serve-artifacts")
    artifacts = ("--artifacts-destination", f"{s.home}/mlflow/artifacts")
    command = (str(s.training_python), "-m", "mlflow", "server", *where, *stores, *artifacts)
    environment = {**s.training_environment(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Program(MLFLOW_SERVER, command, environment, lambda: _says_ok(f"{s.mlflow_url}/health"))


def _serving_program(s: StackSettings, name: str, answers: Callable[[], bool], stop_wait_s: int) -> Program:
    command = (str(s.serving_python), "-m", f"serving.{name}")
    return Program(name, command, s.serving_environment(), answers, stop_wait_s)


def _worker(s: StackSettings, pool: str, python: Path, environment: Mapping[str, str]) -> Program:
    command = (str(python), "-m", "deployments.worker", pool)
    return Program(f"{pool}-worker", command, environment, lambda: _worker_online(s.prefect_url, pool))


def _says_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.HTTPError:
        return False


def _worker_online(prefect_url: str, pool: str) -> bool:
    try:
        answer = httpx.post(f"{prefect_url}/api/work_pools/{pool}/workers/filter", json={}, timeout=5)
    except httpx.HTTPError:
        return False
    return answer.is_success and any(worker.get("status") == "ONLINE" for worker in answer.json())


def host_environment(settings: StackSettings, environ: Mapping[str, str]) -> str:
    """Text of the inference host's settings file: what `environ` says about the host, the rest from the stack."""
    given = {
        name: environ[name]
        for name in (PREFIX + field.upper() for field in HostSettings.model_fields)
        if name in environ
    }
    fixed = {"STORE": settings.home / "host", "SERVICE_HOST": LOOPBACK, "SERVICE_PORT": settings.service_port}
    values = given | {PREFIX + name: str(value) for name, value in fixed.items()}
    return "".join(f"{name}={values[name]}\n" for name in sorted(values))


def socket_path(folder: Path) -> Path:
    """Supervisor's socket: below the state folder, or in the temporary folder when that path is too long for one."""
    path = folder / "supervisor.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
        return path
    key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"passline-{key}" / "supervisor.sock"


def render_config(settings: StackSettings, folder: Path, socket: Path, programs: tuple[Program, ...]) -> str:
    """supervisord.conf."""
    head = f"""\
[unix_http_server]
file = {_escape(socket)}
chmod = 0700

[supervisord]
logfile = {_escape(folder / "supervisord.log")}
pidfile = {_escape(folder / "supervisord.pid")}
loglevel = info
nodaemon = false

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
    return head + "".join(_render_program(settings, program) for program in programs)


def _render_program(settings: StackSettings, program: Program) -> str:
    # Not the caller's PATH: another shell must not look like another configuration. git is what DVC needs.
    git = shutil.which("git")
    path = ":".join([str(Path(program.command[0]).parent), *([str(Path(git).parent)] if git else []), os.defpath])
    environment = {**program.environment, "PATH": path, MARK: str(settings.home)}
    return f"""
[program:{program.name}]
command = {_escape(shlex.join(program.command))}
directory = {_escape(settings.home)}
environment = {",".join(f'{name}="{_escape(value)}"' for name, value in sorted(environment.items()))}
autorestart = true
startsecs = 2
startretries = 5
stopwaitsecs = {program.stop_wait_s}
stopasgroup = {str(program.stop_as_group).lower()}
killasgroup = true
redirect_stderr = true
stdout_logfile = {_escape(settings.logs / f"{program.name}.log")}
stdout_logfile_maxbytes = 20MB
stdout_logfile_backups = 2
"""


def _escape(value: object) -> str:
    return str(value).replace("%", "%%")
