"""The service is started when down, left alone when current, drained and restarted when not."""

import threading
import time
from types import SimpleNamespace

import pytest

from data_contracts.errors import ServiceManagerError
from serving.settings import HostSettings
from tasks import ensure_service
from tasks.ensure_service import EnsureServiceConfig, GapProbe, ensure_running
from tasks.service_manager import AGENT, SERVICE, ProcessState

CONFIG = EnsureServiceConfig(start_timeout_s=1, drain_timeout_s=1)


class FakeHost:
    """A process manager and the service under it: starting the service makes it run the installed code."""

    def __init__(self, *running: str, fingerprint: str = "old", comes_up: bool = True) -> None:
        self.up, self.fingerprint, self.comes_up, self.calls = set(running), fingerprint, comes_up, []

    def state(self, name: str) -> ProcessState:
        return ProcessState(name, "RUNNING" if name in self.up else "STOPPED", 1, "")

    def start(self, name: str) -> None:
        self.calls.append(f"start {name}")
        if self.comes_up:
            self.up.add(name)
        if name == SERVICE:
            self.fingerprint = "new"

    def stop(self, name: str, timeout_s: float) -> None:
        self.calls.append(f"stop {name}")
        self.up.discard(name)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch):
    def use(host: FakeHost) -> FakeHost:
        for question in ("is_live", "is_ready"):
            monkeypatch.setattr(ensure_service, question, lambda url: SERVICE in host.up)
        monkeypatch.setattr(ensure_service, "service_status", lambda url: SimpleNamespace(fingerprint=host.fingerprint))
        return host

    return use


@pytest.mark.parametrize(
    ("case", "host", "action", "calls"),
    [
        ("all down", FakeHost(), "started", [f"start {AGENT}", f"start {SERVICE}"]),
        ("current", FakeHost(AGENT, SERVICE, fingerprint="new"), "left running", []),
        ("agent down", FakeHost(SERVICE, fingerprint="new"), "left running", [f"start {AGENT}"]),
        (
            "out of date",
            FakeHost(AGENT, SERVICE),
            "restarted",
            [f"stop {SERVICE}", f"stop {AGENT}", f"start {AGENT}", f"start {SERVICE}"],
        ),
    ],
)
def test_what_is_done(case: str, host: FakeHost, action: str, calls: list[str], answer) -> None:
    check = ensure_running(answer(host), HostSettings(), CONFIG, "new")  # type: ignore[arg-type]
    assert (check.action, host.calls) == (action, calls)
    assert (check.gap_s > 0) == (action == "restarted")


def test_a_service_that_does_not_come_up_is_named(answer) -> None:
    with pytest.raises(ServiceManagerError, match=r"http://127.0.0.1:3000.*live within 1 s"):
        ensure_running(answer(FakeHost(AGENT, comes_up=False)), HostSettings(), CONFIG, "new")  # type: ignore[arg-type]


def test_the_probe_measures_the_longest_time_without_a_yes() -> None:
    silent = threading.Event()
    with GapProbe(lambda: not silent.is_set()) as probe:
        time.sleep(0.1)
        silent.set()
        time.sleep(0.3)
        silent.clear()
        time.sleep(0.1)
    assert probe.longest_s >= 0.25
