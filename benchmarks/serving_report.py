"""Bars, tables and notes of the serving benchmark, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.limit import Layout
from benchmarks.load import LoadResult
from benchmarks.report import Bar, Measured, Table, at_least, at_most
from benchmarks.rounds import Rounds
from benchmarks.sealed_model import CANDIDATES
from benchmarks.serving_bench import AS_INSTALLED

SHARES = {640: 0.95, 160: 0.88}
EXTRA_P50_MS = 1.5
P99_OVER_P50 = 1.2
TAKT_P99_MS = 200.0
LIGHT_PX = 160
TAKT_PX = 640
VS_FASTAPI_ORT = 1.0
VS_ULTRALYTICS = 3.0
SHARE_HEAD = ("pictures/s", "share", "p50 ms", "p99 ms", "p99/p50", "CPU ms", "requests", "")


@dataclass(frozen=True, eq=False)
class Open:
    """Open loops at one rate."""

    rate_per_s: float
    takt: LoadResult
    poisson: LoadResult

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        loops = {"takt": self.takt, "poisson": self.poisson}
        return {"rate_per_s": self.rate_per_s, **{name: _facts(one) for name, one in loops.items()}}


@dataclass
class Findings:
    """What was measured, by input size of the model; a part that was left out is missing."""

    shares: dict[int, Rounds] = field(default_factory=dict)
    lone: dict[int, Rounds] = field(default_factory=dict)
    open: dict[int, Open] = field(default_factory=dict)
    layouts: dict[int, Layout] = field(default_factory=dict)
    releases: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """What each service said about its engine."""
    left_out: list[str] = field(default_factory=list)
    picture_bytes: int = 0

    def worst(self, of: Iterable[float | None], choose: Callable[[list[float]], float]) -> float | None:
        """The worst of some numbers, None where there is none."""
        numbers = [number for number in of if number is not None]
        return choose(numbers) if numbers else None


def conclude(found: Findings, *, quick: bool) -> Measured:
    """Everything that is reported."""
    return Measured(
        settings={
            "clients": 16,
            "picture": "640x640 JPEG",
            "picture_bytes": found.picture_bytes,
            "limit_layouts": {str(size): str(layout) for size, layout in found.layouts.items()},
        },
        samples={
            "shares": {str(size): rounds.facts() for size, rounds in found.shares.items()},
            "lone": {str(size): rounds.facts() for size, rounds in found.lone.items()},
            "open": {str(size): one.facts() for size, one in found.open.items()},
            "releases": {name: dict(release) for name, release in found.releases.items()},
        },
        bars=_bars(found, quick=quick),
        tables=tuple(_tables(found)),
        notes=tuple(_notes(found)),
    )


def _bars(found: Findings, *, quick: bool) -> tuple[Bar, ...]:
    """A bar over both models takes the worse of them, and is decided when both were measured.

    What is compared with peers is Passline as it is installed, with the engine that its tuner chose here: choosing it
    is part of what a user gets. The rows of the table say how the two compare with the same engine.
    """
    shares, lone, open_ = found.shares, found.lone, found.open
    both = not quick and all(size in shares for size in SHARES)
    fair = both and all(_fair(rounds) for rounds in shares.values())
    tails = [_tail(rounds) for rounds in shares.values()]
    extra = [rounds.extra_p50_ms("passline", "limit") for rounds in lone.values()]
    takt_p99_ms = open_[TAKT_PX].takt.percentile_ms(99) if TAKT_PX in open_ else None
    failed = sum(rounds.failed("passline") for rounds in (*shares.values(), *lone.values()))
    failed += sum(one.takt.failed + one.poisson.failed for one in open_.values())
    return (
        *(_share_bar(shares.get(size), size, limit, quick=quick) for size, limit in SHARES.items()),
        at_most("extra_p50_c1_ms", found.worst(extra, max), EXTRA_P50_MS, decided=not quick and len(lone) > 1),
        at_most("p99_over_p50_c16", found.worst(tails, max), P99_OVER_P50, decided=fair),
        at_most("takt_p99_ms", takt_p99_ms, TAKT_P99_MS, decided=not quick and takt_p99_ms is not None),
        *_peer_bars(shares.get(LIGHT_PX), "", quick=quick),
        *_peer_bars(shares.get(TAKT_PX), f"_{TAKT_PX}", quick=quick),
        at_most("failed", float(failed), 0.0, decided=bool(shares or lone or open_)),
    )


def _fair(rounds: Rounds) -> bool:
    return rounds.enough("passline", AS_INSTALLED, "fastapi-ort")


def _peer_bars(rounds: Rounds | None, suffix: str, *, quick: bool) -> Iterable[Bar]:
    ort = rounds.ratio(AS_INSTALLED, "fastapi-ort") if rounds else None
    ultralytics = rounds.ratio(AS_INSTALLED, "fastapi-ultralytics") if rounds else None
    measured = not quick and rounds is not None
    fair = measured and rounds is not None and _fair(rounds)
    yield at_least(f"vs_fastapi_ort{suffix}", ort, VS_FASTAPI_ORT, decided=fair)
    yield at_least(f"vs_ultralytics{suffix}", ultralytics, VS_ULTRALYTICS, decided=measured)


def _share_bar(rounds: Rounds | None, size: int, limit: float, *, quick: bool) -> Bar:
    value = rounds.ratio("passline", "limit") if rounds else None
    decided = not quick and rounds is not None and rounds.enough("passline", "limit")
    return at_least(f"share_{size}_c16", value, limit, decided=decided)


def _tail(rounds: Rounds) -> float:
    return rounds.percentile_ms("passline", 99) / rounds.percentile_ms("passline", 50)


def _tables(found: Findings) -> Iterable[Table]:
    for size, rounds in found.shares.items():
        rows = [_share_row(rounds, name) for name in rounds.cells]
        yield Table((f"{size} px, 16 clients", *SHARE_HEAD), tuple(rows))
    if found.lone:
        rows = [_lone_row(size, rounds) for size, rounds in found.lone.items()]
        yield Table(("one client, model px", "in process p50 ms", "Passline p50 ms", "extra p50 ms"), tuple(rows))
    for size, one in found.open.items():
        rows = [_open_row(name, loop) for name, loop in (("4 lines, takt", one.takt), ("Poisson", one.poisson))]
        yield Table((f"{size} px, {one.rate_per_s:.1f} pictures/s", "p50 ms", "p99 ms", "pictures", ""), tuple(rows))


def _share_row(rounds: Rounds, name: str) -> tuple[str, ...]:
    p50, p99 = rounds.percentile_ms(name, 50), rounds.percentile_ms(name, 99)
    cpu_ms = rounds.cpu_ms(name)
    return (
        name,
        f"{rounds.throughput_per_s(name):.1f}",
        f"{rounds.ratio(name, 'limit') or float('nan'):.3f}",
        f"{p50:.1f}",
        f"{p99:.1f}",
        f"{p99 / p50:.2f}",
        f"{cpu_ms:.2f}" if cpu_ms else "",
        str(rounds.requests(name)),
        _failures(rounds.failed(name)),
    )


def _lone_row(size: int, rounds: Rounds) -> tuple[str, ...]:
    extra = rounds.extra_p50_ms("passline", "limit")
    medians = (f"{rounds.percentile_ms(name, 50):.2f}" for name in ("limit", "passline"))
    return (str(size), *medians, "" if extra is None else f"{extra:.2f}")


def _open_row(name: str, loop: LoadResult) -> tuple[str, ...]:
    numbers = (f"{loop.percentile_ms(50):.1f}", f"{loop.percentile_ms(99):.1f}", str(loop.count))
    return (name, *numbers, _failures(loop.failed))


def _failures(count: int) -> str:
    return f"{count} FAILED OR WRONG" if count else ""


def _facts(loop: LoadResult) -> dict[str, Any]:
    return {
        "p50_ms": loop.percentile_ms(50),
        "p99_ms": loop.percentile_ms(99),
        "max_ms": loop.percentile_ms(100),
        "count": loop.count,
        "failed": loop.failed,
        "statuses": {str(status): count for status, count in sorted(loop.statuses.items())},
        "sender_share": loop.sender_share,
    }


def _notes(found: Findings) -> Iterable[str]:
    yield f"made-up weights, shifted so that about {CANDIDATES} anchors of a picture pass the threshold"
    yield "every answer is compared with the boxes found in process; in an open loop latency counts from the due time"
    yield f"passline runs ONNX Runtime FP32, as the limit does; {AS_INSTALLED} is what its tuner chose (vs_*)"
    for size, rounds in found.shares.items():
        same = rounds.ratio("passline", "fastapi-ort")
        if same is not None:
            yield f"with the same engine at {size} px Passline has {same:.3f} of FastAPI and ONNX Runtime"
    for size, layout in found.layouts.items():
        yield f"limit at {size} px: {layout}, the best of those tried"
    yield from found.left_out
    shares = [rounds.sender_share for rounds in (*found.shares.values(), *found.lone.values())]
    yield f"the sender took at most {max(shares, default=0.0):.1%} of a core, of the same cores"
