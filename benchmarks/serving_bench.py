"""Everything that the serving benchmark measures with one model: the limit, Passline and its peers, ready and idle."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.limit import Layout, Limit, layouts, limit_process
from benchmarks.load import Loader, LoadResult, Pictures, Target
from benchmarks.pictures import make_jpegs
from benchmarks.sealed_model import THRESHOLD, SealedModel
from benchmarks.servers import Host, Server, passline, peer
from data_contracts.errors import OutsideSystemError

PICTURE_PX = 640
PICTURES = 16
AS_INSTALLED = "passline-default"
"""Passline with the engine that its tuner chose here; "passline" runs the engine of the limit."""
OPTIONAL_PEERS = {"litserve": "litserve_ort", "ray": "ray_serve_ort", "mlserver": "mlserver_ort"}


@dataclass(frozen=True)
class Size:
    """How much is measured with one model."""

    input_px: int
    rounds: int
    requests: int
    slow_requests: int
    """For servers of which no ratio near 1 is claimed."""
    lone_rounds: int
    lone_requests: int
    takt_s: float


@dataclass
class Bench:
    """All that runs while one model is measured."""

    size: Size
    pictures: Pictures
    limit: Limit
    layout: Layout
    load: Loader
    hosts: dict[str, Host] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def closed(self, name: str, clients: int, requests: int) -> LoadResult:
        """A closed loop against one server."""
        return self.load.closed(Target(self.servers[name].port), self.pictures, clients, requests)

    def in_process(self, layout: Layout, requests: int) -> LoadResult:
        """A closed loop without a server."""
        return self.limit.run(layout, self.pictures.bodies, requests)


@contextmanager
def open_bench(size: Size, model: SealedModel, place: Path, load: Loader, *, with_peers: bool) -> Iterator[Bench]:
    """Everything that is measured, ready and idle."""
    place.mkdir(parents=True)
    jpegs = make_jpegs(PICTURES, PICTURE_PX)
    with ExitStack() as stack:
        limit = stack.enter_context(limit_process(model.bundle))
        pictures = Pictures(jpegs, limit.expected(jpegs))
        layout = _best_layout(limit, jpegs, size.slow_requests)
        say(f"limit: {layout}")
        bench = Bench(size, pictures, limit, layout, load)
        _add_passline(bench, stack, model, place, "passline", provider="cpu")
        if with_peers:
            _add_passline(bench, stack, model, place, AS_INSTALLED, with_probe=True)
            for name, module, file in _peers(model):
                _add_peer(bench, stack, peer(name, module, place, str(file), "{port}", *_model_arguments(model)), name)
        yield bench


def _add_passline(
    bench: Bench,
    stack: ExitStack,
    model: SealedModel,
    place: Path,
    name: str,
    *,
    with_probe: bool = False,
    **settings: object,
) -> None:
    say(f"starting {name}")
    host = passline(name, model, place / name, with_probe=with_probe, **settings)
    bench.hosts[name], bench.servers[name] = stack.enter_context(host)


def _add_peer(bench: Bench, stack: ExitStack, started: AbstractContextManager[Server], name: str) -> None:
    """Start a peer. One that is optional and does not start is left out, with its reason in the notes."""
    say(f"starting {name}")
    try:
        bench.servers[name] = stack.enter_context(started)
    except OutsideSystemError as error:
        if name not in OPTIONAL_PEERS:
            raise
        bench.left_out.append(f"{name} did not start: {str(error)[-300:]}")


def _model_arguments(model: SealedModel) -> tuple[str, str]:
    return str(model.input_px), str(THRESHOLD)


def _peers(model: SealedModel) -> Iterator[tuple[str, str, Path]]:
    """Name, module and model file of each peer that is installed."""
    onnx = model.bundle / "model.onnx"
    yield "fastapi-ort", "benchmarks.peers.fastapi_ort", onnx
    yield "fastapi-ultralytics", "benchmarks.peers.fastapi_ultralytics", model.weights
    for package, module in OPTIONAL_PEERS.items():
        if importlib.util.find_spec(package):
            yield package, f"benchmarks.peers.{module}", onnx


def _best_layout(limit: Limit, jpegs: Sequence[bytes], total: int) -> Layout:
    """The fastest way to use the cores in process: each is tried twice, in turn, and the better run counts."""
    tried = layouts(len(os.sched_getaffinity(0)))
    rates = [[limit.run(layout, jpegs, total).throughput_per_s for layout in tried] for _ in range(2)]
    best = [max(both) for both in zip(*rates, strict=True)]
    return tried[best.index(max(best))]


def say(line: str) -> None:
    """Tell whoever waits, beside the report."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)
