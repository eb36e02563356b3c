"""Servers under measurement: Passline as its users run it, and its peers. Each in processes of its own, on the same
cores, on a free port, stopped by process id whatever happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.sealed_model import SealedModel
from data_contracts.errors import OutsideSystemError, Problem
from data_contracts.inspection import ReleaseStatus
from data_contracts.release import Intent
from deployments.own_stack import free_ports
from serving.settings import PREFIX
from serving.status import service_status
from serving.store import ReleaseStore, wait_for_outcome

REPOSITORY = Path(__file__).resolve().parents[1]
SERVING_PYTHON = REPOSITORY / ".venv-serving" / "bin" / "python"
START_S = 120.0
READY_PATHS = {"mlserver": "/v2/health/ready"}


@dataclass
class Server:
    """A running server and all processes that belong to it."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    ready_path: str = "/readyz"
    stop_s: float = 30.0
    started_at_s: float = field(default_factory=time.monotonic)
    helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def family(self) -> list[psutil.Process]:
        """The server's processes, without its helpers."""
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """CPU seconds of its processes so far."""
        return sum(sum(one.cpu_times()[:2]) for one in self.family())

    def pss_mb(self) -> float:
        """Memory of its processes in MB (10^6 bytes), shared pages counted once."""
        return sum(one.memory_full_info().pss for one in self.family()) / 1e6

    def ready(self) -> bool:
        """Whether it says so itself."""
        return _answers(f"http://127.0.0.1:{self.port}{self.ready_path}")

    def wait(self, check: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
        """Wait until `check` holds. Raises OutsideSystemError with the end of the server's log."""
        give_up_s = time.monotonic() + timeout_s
        while not check():
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                end = self.log.read_text(errors="replace")[-1500:] if self.log.is_file() else ""
                raise OutsideSystemError(
                    Problem(f"server {self.name}", f"{what}, within {timeout_s:g} s", f"not so: {end}", "See its log.")
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """End all of it."""
        for process in (*self.helpers, self.process):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (*self.helpers, self.process):
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.stop_s)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start(
    python: Path | str, module: str, *arguments: str, log: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a module in a process group of its own, its output in `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(python), "-m", module, *arguments],
            cwd=REPOSITORY, env=dict(environ), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


@contextmanager
def peer(name: str, module: str, folder: Path, *arguments: str) -> Iterator[Server]:
    """A peer server, ready; `{port}` in the arguments is its port."""
    (port,) = free_ports(1)
    log = folder / f"{name}.log"
    filled = [argument.format(port=port) for argument in arguments]
    process = start(sys.executable, module, *filled, log=log, environ=_clean_environment(folder))
    server = Server(name, port, process, log, READY_PATHS.get(name, "/readyz"), stop_s=5.0)
    try:
        server.wait(server.ready, "ready")
        yield server
    finally:
        server.stop()


class Host:
    """An inference host: release store, service and agent. `settings` are HostSettings, by field name."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, object]) -> None:
        self.name, self.folder = name, folder
        self.store = ReleaseStore(folder / "store")
        self.store.prepare()
        (self.port,) = free_ports(1)
        self.settings = {"store": self.store.root, "service_port": self.port, **settings}
        self.python = SERVING_PYTHON if SERVING_PYTHON.is_file() else Path(sys.executable)

    @property
    def url(self) -> str:
        """Where the service answers."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Nothing of the surrounding Passline settings gets in."""
        own = {PREFIX + name.upper(): str(value) for name, value in self.settings.items()}
        return {**_clean_environment(self.folder), **own}

    def start_service(self) -> Server:
        """Start the service, alone; not waited for."""
        log, began_s = self.folder / "service.log", time.monotonic()
        process = start(self.python, "serving.service", log=log, environ=self.environment())
        return Server(self.name, self.port, process, log, started_at_s=began_s)

    def start_agent(self) -> subprocess.Popen[bytes]:
        """Start the agent."""
        return start(self.python, "serving.agent", log=self.folder / "agent.log", environ=self.environment())

    def bring(self, model: SealedModel, *, with_probe: bool) -> None:
        """Put the bundle into the store, and its probe set where other engines may be considered."""
        self.store.add_bundle(model.bundle, model.digest)
        if with_probe:
            shutil.copytree(model.probe, self.store.root / "probes" / model.probe.name, dirs_exist_ok=True)

    def activate(self, model: SealedModel) -> None:
        """Have the agent activate the bundle. Raises OutsideSystemError when the service does not converge."""
        wish = Intent(
            intent_id=f"bench-{uuid.uuid4().hex[:12]}",
            kind="activate",
            digest=model.digest,
            reason="benchmark",
            requested_by="benchmark",
            deadline_s=START_S,
        )
        self.store.submit(wish)
        outcome = wait_for_outcome(self.store, wish.intent_id, START_S)
        if outcome.status != "converged":
            raise OutsideSystemError(
                Problem(f"release on {self.name}", "converged", f"{outcome.status}: {outcome.message}", "See its log.")
            )

    def status(self) -> ReleaseStatus | None:
        """What the service says about its release."""
        return service_status(self.url)


@contextmanager
def passline(
    name: str, model: SealedModel, folder: Path, *, with_probe: bool = False, **settings: object
) -> Iterator[tuple[Host, Server]]:
    """Service and agent of a host of its own, with the bundle active and ready."""
    folder.mkdir(parents=True, exist_ok=True)
    host = Host(name, folder, settings)
    host.bring(model, with_probe=with_probe)
    server = host.start_service()
    try:
        server.helpers.append(host.start_agent())
        server.wait(lambda: bool(host.store.workers()), "a worker reports")
        host.activate(model)
        server.wait(server.ready, "ready")
        yield host, server
    finally:
        server.stop()


def _clean_environment(home: Path) -> dict[str, str]:
    """This process's environment without Passline's and BentoML's settings; what is written goes below `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "BENTOML"))}
    return {**kept, "HOME": str(home), "YOLO_OFFLINE": "true"}
