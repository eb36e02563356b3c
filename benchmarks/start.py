"""How long a service needs until it can answer, and what it holds in memory: YOLOv8n at 640 px, one worker.

Time counts from the start of `python -m serving.service` to the first 200 of `/readyz`, on a host whose desired release
is in its store. The first start finds no tuning of this host and measures; the others find what it left behind.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import Loader, Pictures, Target, loader
from benchmarks.pictures import make_jpegs
from benchmarks.report import Benchmark, Measured, Table, at_most, run_benchmark
from benchmarks.sealed_model import SealedModel, sealed_model
from benchmarks.servers import Host, Server

READY_S = 4.0
PSS_MB = 350.0
INPUT_PX, QUICK_INPUT_PX = 640, 160
REQUESTS, CLIENTS = 200, 16
SETTLE_S = 1.0


@dataclass(frozen=True)
class Start:
    """One start: wall and CPU seconds until ready, and memory then, all processes of the service together."""

    ready_s: float
    cpu_s: float
    pss_mb: float


@dataclass(frozen=True)
class Kind:
    """Starts of one kind of host. `first` is with an empty engine cache; `loaded_pss_mb` is after load."""

    name: str
    first: Start
    cached: tuple[Start, ...]
    loaded_pss_mb: float
    processes_mb: dict[str, float]

    @property
    def ready_s(self) -> float:
        """Median of the starts with a tuned host."""
        return statistics.median(start.ready_s for start in self.cached)


def measure(quick: bool) -> Measured:
    """The whole benchmark."""
    folder = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench"
    model = sealed_model(QUICK_INPUT_PX if quick else INPUT_PX, folder)
    starts = 2 if quick else 7
    with tempfile.TemporaryDirectory(prefix="passline-start-") as place, loader() as load:
        kinds = [_kind("ort", model, Path(place) / "ort", load, starts, with_probe=False, provider="cpu")]
        if not quick:
            kinds.append(_kind("default", model, Path(place) / "default", load, starts, with_probe=True))
    return conclude(kinds, model.input_px, quick=quick)


def _kind(
    name: str, model: SealedModel, place: Path, load: Loader, starts: int, *, with_probe: bool, **settings: object
) -> Kind:
    place.mkdir()
    host = Host(name, place, settings)
    host.bring(model, with_probe=with_probe)
    with _running(host) as server:
        agent = host.start_agent()
        server.helpers.append(agent)
        server.wait(lambda: bool(host.store.workers()), "a worker reports")
        host.activate(model)
    shutil.rmtree(host.store.root / "engines", ignore_errors=True)
    with _running(host) as server:
        first = _start(server)
    cached = []
    for _ in range(starts):
        with _running(host) as server:
            cached.append(_start(server))
    with _running(host) as server:
        _start(server)
        load.closed(Target(host.port), Pictures(make_jpegs(16, 640)), CLIENTS, REQUESTS)
        time.sleep(SETTLE_S)
        processes = {f"{number} {_role(one)}": one.memory_full_info().pss / 1e6 for number, one in _numbered(server)}
    return Kind(name, first, tuple(cached), sum(processes.values()), processes)


@contextmanager
def _running(host: Host) -> Iterator[Server]:
    server = host.start_service()
    try:
        yield server
    finally:
        server.stop()


def _start(server: Server) -> Start:
    """Wait until it is ready. The clock began when the process was made, next to nothing before this call."""
    server.wait(server.ready, "ready")
    return Start(time.monotonic() - server.started_at_s, server.cpu_s(), server.pss_mb())


def _numbered(server: Server) -> list[tuple[int, Any]]:
    return list(enumerate(server.family()))


def _role(process: Any) -> str:
    """What a process of the service does, from its command line."""
    return "worker" if "_bentoml_impl.worker.service" in process.cmdline() else "arbiter or helper"


def conclude(kinds: list[Kind], input_px: int, *, quick: bool) -> Measured:
    """Bars of the ORT engine; the default engine for information."""
    ort = kinds[0]
    rows = [
        (kind.name, f"{kind.first.ready_s:.2f}", f"{kind.ready_s:.2f}", *_middle(kind), f"{kind.loaded_pss_mb:.0f}")
        for kind in kinds
    ]
    head = ("host", "first start s", "start s", "CPU s", "PSS MB when ready", f"after {REQUESTS} pictures")
    return Measured(
        settings={"input_px": input_px, "requests": REQUESTS, "clients": CLIENTS, "workers": 1},
        samples={kind.name: {**asdict(kind), "ready_s": kind.ready_s} for kind in kinds},
        bars=(
            at_most("start_to_ready_s", ort.ready_s, READY_S, decided=not quick),
            at_most("pss_mb", ort.loaded_pss_mb, PSS_MB, decided=not quick),
        ),
        tables=(Table(head, tuple(rows)),),
        notes=(
            "the first start measures the engines of the host; later ones read what it found",
            "ort: PASSLINE_PROVIDER=cpu; default: the tuner may choose any engine that the probe set allows",
        ),
    )


def _middle(kind: Kind) -> tuple[str, str]:
    cpu_s = statistics.median(start.cpu_s for start in kind.cached)
    pss_mb = statistics.median(start.pss_mb for start in kind.cached)
    return f"{cpu_s:.2f}", f"{pss_mb:.0f}"


if __name__ == "__main__":
    sys.exit(run_benchmark(Benchmark("start", measure, ("bentoml", "onnxruntime-gpu", "opencv-python-headless"))))
