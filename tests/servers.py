"""Real servers for slow tests: started as a user starts them, stopped by pid, nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from data_contracts.inspection import ReleaseStatus
from data_contracts.release import Intent, IntentOutcome
from serving.status import is_live, is_ready, service_status
from serving.store import ReleaseStore, wait_for_outcome

REPOSITORY = Path(__file__).resolve().parents[1]
START_S = 90.0
T = TypeVar("T")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(check: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first true result of `check`; fails the test after `timeout_s`."""
    give_up = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < give_up, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.05)
    return found


class Process:
    """A started module of ours, in a process group of its own, with its output in a file."""

    def __init__(self, module: str, environment: dict[str, str], log: Path, python: str = sys.executable) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [python, "-m", module], cwd=REPOSITORY, env=environment, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def stop(self, timeout_s: float = 40.0) -> int:
        """Ask it to end; its exit status. Fails the test when it does not, or leaves children behind."""
        family = [] if self.popen.poll() is not None else psutil.Process(self.popen.pid).children(recursive=True)
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            status = self.popen.wait(timeout_s)
            _, left = psutil.wait_procs(family, timeout=10.0)
            assert not left, f"{[process.cmdline() for process in left]} outlived their parent"
            return status
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10.0)


class LiveHost:
    """Service and agent of one inference host on a free port, with a store below `root`."""

    def __init__(self, root: Path, *, python: str = sys.executable, **settings: object) -> None:
        self.root, self.python = root, python
        self.store = ReleaseStore(root / "store")
        self.store.prepare()
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.settings: dict[str, object] = {"store": self.store.root, "service_port": port, **settings}
        self.processes: dict[str, Process] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a host: nothing of the surrounding Passline settings gets in."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PASSLINE_", "BENTOML"))}
        own = {f"PASSLINE_{name.upper()}": str(value) for name, value in self.settings.items()}
        return {**kept, "HOME": str(self.root / "home"), **own}

    def start(self, *modules: str) -> None:
        """Start `service` and `agent`, or those named, and wait until the service is live."""
        (self.root / "home").mkdir(exist_ok=True)
        for module in modules or ("agent", "service"):
            log = self.root / f"{module}.log"
            self.processes[module] = Process(f"serving.{module}", self.environment, log, self.python)
        if "service" in self.processes:
            wait_until(self.live_or_dead, START_S, "the service is live")
            assert is_live(self.url), self.output("service")

    def live_or_dead(self) -> bool:
        return self.processes["service"].popen.poll() is not None or is_live(self.url)

    def stop(self, *modules: str) -> None:
        for module in modules or tuple(self.processes):
            self.processes.pop(module).stop()

    def kill(self) -> None:
        """For the end of a test, however it ended."""
        for process in self.processes.values():
            process.kill()

    def output(self, module: str) -> str:
        return (self.root / f"{module}.log").read_text(errors="replace")[-4000:]

    def hand_in(self, digest: str | None) -> Intent:
        """Submit a wish: to activate `digest`, or to roll back."""
        intent = Intent(
            intent_id=f"test-{uuid.uuid4().hex[:12]}",
            kind="activate" if digest else "rollback",
            digest=digest,
            reason="test",
            requested_by="test",
            deadline_s=60.0,
        )
        self.store.submit(intent)
        return intent

    def activate(self, digest: str) -> IntentOutcome:
        """Activate what is in the store, as it lies there."""
        return wait_for_outcome(self.store, self.hand_in(digest).intent_id, 90.0)

    def redeploy(self, source: Path) -> IntentOutcome:
        """Bring a bundle into the store and activate it."""
        self.store.add_bundle(source, source.name)
        return self.activate(source.name)

    def rollback(self) -> IntentOutcome:
        """Return to the previous release."""
        return wait_for_outcome(self.store, self.hand_in(None).intent_id, 90.0)

    def post(self, picture: bytes | Iterator[bytes], path: str = "/v1/inspect", **request: Any) -> httpx.Response:
        return httpx.post(self.url + path, content=picture, timeout=30, trust_env=False, **request)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=30, trust_env=False)

    def ready(self) -> bool:
        return is_ready(self.url)

    def status(self) -> ReleaseStatus:
        found = service_status(self.url)
        assert found is not None
        return found

    def sample(self, name: str) -> float:
        """Sum of a metric's samples over all labels, from /metrics."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
