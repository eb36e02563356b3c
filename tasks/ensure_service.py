"""Step: the service and its agent are up and run the code and configuration that are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from prefect import get_run_logger, task
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.errors import Problem, ServiceManagerError
from serving.settings import HostSettings, load_host_settings
from serving.status import is_live, is_ready, service_status
from tasks.service_manager import AGENT, SERVICE, ServiceManager

PROBE_S = 0.02
SERVING_PYTHON = "PASSLINE_SERVING_PYTHON"


class EnsureServiceConfig(Contract):
    """How long the service may take to come up and to go down."""

    start_timeout_s: float = Field(ge=1, le=600, description="Seconds until a started service must be live.")
    drain_timeout_s: float = Field(ge=1, le=600, description="Seconds that requests in flight get before a restart.")


@dataclass(frozen=True)
class ServiceCheck:
    """What had to be done. `gap_s`: seconds without a ready service, measured by probes; 0 when it was left alone."""

    action: Literal["left running", "started", "restarted"]
    gap_s: float
    fingerprint: str


class GapProbe:
    """Asks a yes-or-no question again and again and measures the longest time between two yeses."""

    def __init__(self, answers: Callable[[], bool]) -> None:
        self._answers = answers
        self._ended, self._yes = threading.Event(), threading.Event()
        self._last_yes: float | None = None
        self._thread = threading.Thread(target=self._watch, name="gap-probe", daemon=True)
        self.longest_s = 0.0

    def __enter__(self) -> GapProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def next_yes(self, timeout_s: float) -> bool:
        """Wait for a yes from now on; False when none comes in time."""
        self._yes.clear()
        return self._yes.wait(timeout_s)

    def _watch(self) -> None:
        while not self._ended.wait(PROBE_S):
            asked = time.monotonic()
            if self._answers():
                if self._last_yes is not None:
                    self.longest_s = max(self.longest_s, asked - self._last_yes)
                self._last_yes = asked
                self._yes.set()


def installed_fingerprint(python: str) -> str:
    """Fingerprint of the serving code and configuration as they lie on this host, by the service's own interpreter."""
    done = subprocess.run([python, "-m", "serving.fingerprint"], capture_output=True, text=True, timeout=60)
    found = done.stdout.strip()
    if done.returncode != 0 or not re.fullmatch("[0-9a-f]{64}", found):
        words = done.stderr.strip()[-400:] or repr(found)
        raise ServiceManagerError(
            Problem(f"{python} -m serving.fingerprint", "a fingerprint", words, "Mend what it names.")
        )
    return found


def ensure_running(
    manager: ServiceManager, host: HostSettings, config: EnsureServiceConfig, fingerprint: str
) -> ServiceCheck:
    """Start what is down; drain and restart what runs other code or configuration than `fingerprint`."""
    url = host.url
    if not manager.state(AGENT).running:
        manager.start(AGENT)
    if not manager.state(SERVICE).running:
        manager.start(SERVICE)
        _wait_until_live(url, config.start_timeout_s)
        return ServiceCheck("started", 0.0, fingerprint)
    _wait_until_live(url, config.start_timeout_s)
    status = service_status(url)
    if status is not None and status.fingerprint == fingerprint:
        return ServiceCheck("left running", 0.0, fingerprint)
    return ServiceCheck("restarted", _restart(manager, url, config), fingerprint)


def _restart(manager: ServiceManager, url: str, config: EnsureServiceConfig) -> float:
    was_ready = is_ready(url)
    answers = is_ready if was_ready else is_live
    with GapProbe(lambda: answers(url)) as probe:
        _expect(probe.next_yes(config.start_timeout_s), url, "an answer before its restart", config.start_timeout_s)
        manager.stop(SERVICE, config.drain_timeout_s)
        manager.stop(AGENT, config.drain_timeout_s)
        manager.start(AGENT)
        manager.start(SERVICE)
        back = probe.next_yes(config.start_timeout_s) and probe.next_yes(config.start_timeout_s)
        _expect(back, url, "ready" if was_ready else "live", config.start_timeout_s)
    return probe.longest_s


def _expect(came: bool, url: str, wanted: str, timeout_s: float) -> None:
    if not came:
        raise ServiceManagerError(
            Problem(f"service at {url}", f"{wanted} within {timeout_s:g} s", "no answer", "See the service's log.")
        )


def _wait_until_live(url: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_live(url) and time.monotonic() < deadline:
        time.sleep(PROBE_S)
    _expect(is_live(url), url, "live", timeout_s)


@task(name="ensure service is running")
def ensure_service_running(config: EnsureServiceConfig) -> ServiceCheck:
    """Bring the service and agent of this host up, with today's code and configuration."""
    logger = get_run_logger()
    fingerprint = installed_fingerprint(os.environ.get(SERVING_PYTHON, sys.executable))
    check = ensure_running(ServiceManager.from_environment(), load_host_settings(), config, fingerprint)
    logger.info("service %s; %.0f ms without a ready service", check.action, check.gap_s * 1000)
    return check
