"""A flow that stands for a training in tests of the queue: it tells what it was given and waits to be let go."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from prefect import flow

LONGEST_S = 400.0


@flow(name="hold")
def hold(folder: str, name: str, job: dict[str, Any] | None = None) -> None:
    """Write `<name>.started`, then wait for `<name>.go`; a run that declares no job does not wait."""
    facts = {"cores": sorted(os.sched_getaffinity(0)), "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}
    draft = Path(folder, f"{name}.draft")
    draft.write_text(json.dumps(facts))
    draft.rename(Path(folder, f"{name}.started"))
    give_up = time.monotonic() + LONGEST_S
    while job and not Path(folder, f"{name}.go").exists():
        assert time.monotonic() < give_up
        time.sleep(0.1)
