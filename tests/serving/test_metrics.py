from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving.metrics import forget_dead_workers

TWO_WORKERS = """
import os, sys
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from serving.metrics import Metrics, forget_dead_workers
if os.fork() == 0:  # a worker that dies without a word
    metrics = Metrics()
    metrics.requests.labels("/v1/inspect", "200", "OK").inc(2)
    metrics.release.labels("a", "n", "1").set(1)
    os._exit(0)
os.wait()
metrics = Metrics()
metrics.requests.labels("/v1/inspect", "200", "OK").inc(3)
metrics.release.labels("a", "n", "1").set(1)
forget_dead_workers()
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(registry.get_sample_value("passline_requests_total", {"route": "/v1/inspect", "status": "200", "verdict": "OK"}))
print(registry.get_sample_value("passline_release_info", {"digest": "a", "name": "n", "version": "1"}))
"""


def test_counts_of_a_dead_worker_stay_and_its_live_gauges_go(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["5.0", "1.0"], done.stderr


def test_without_a_shared_folder_there_is_nothing_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    forget_dead_workers()
