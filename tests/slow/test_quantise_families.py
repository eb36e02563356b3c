"""YOLOv8, YOLO11 and YOLO26, with and without suppression in the model: exported, quantised, sealed, measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def part(name: str) -> int:
    """The part of the network that an operator belongs to, as the exporter numbers them; -1 for none."""
    found = re.match(r"/model\.(\d+)/", name)
    return int(found[1]) if found else -1


@pytest.mark.parametrize(
    ("architecture", "layout"),
    [
        pytest.param("yolov8n.yaml", "raw", id="YOLOv8"),
        pytest.param("yolo11n.yaml", "raw", id="YOLO11"),
        pytest.param("yolo26n.yaml", "raw", id="YOLO26, raw"),
        pytest.param("yolo26n.yaml", "end_to_end", id="YOLO26, end to end"),
    ],
)
def test_every_family_is_quantised_with_its_head_in_float(tmp_path: Path, architecture: str, layout: str):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, str(ROOT / "tests" / "quantise_driver.py"), str(tmp_path), architecture, layout]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.split("RESULT ")[1])
    assert result["layout"] == layout
    assert result["int8"], result["reason"]
    # The exporter's names, which the search for the head must not use, tell whether it found the right part.
    last = max(map(part, result["head"]))
    assert {part(name) for name in result["head"]} <= {last, -1}
    assert {part(name) for name in result["quantisable"]} <= set(range(last))
    fp32, int8 = (np.array(one) for one in result["best"])
    assert np.abs(fp32 - int8).max() < 0.1
