from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import REGISTRY, Counter

from serving.metrics_page import exposition

COUNT = """
from prometheus_client import Counter, Gauge
Counter("seen", "Pictures.").inc({count})
Gauge("waiting", "Pictures.", multiprocess_mode="livesum").set({count})
"""


def test_counts_of_all_workers_are_summed(tmp_path: Path) -> None:
    """Two processes that share the folder, as BentoML's workers do."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for count in (3, 4):
        subprocess.run([sys.executable, "-c", COUNT.format(count=count)], env=environment, check=True)
    lines = exposition(str(tmp_path)).decode().splitlines()
    assert "seen_total 7.0" in lines
    assert "waiting 7.0" in lines


def test_without_a_shared_folder_it_is_this_process() -> None:
    counter = Counter("passline_test_page", "For this test.")
    try:
        counter.inc(2)
        assert b"\npassline_test_page_total 2.0\n" in exposition(None)
    finally:
        REGISTRY.unregister(counter)
