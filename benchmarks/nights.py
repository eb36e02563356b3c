"""Whether the gates promote what is better and nothing else: simulated nights with candidates of known worth.

`false_promotions`: share of nights in which an equally good candidate is promoted. `promoted_if_better`: the same for
one that is 2 points of mAP50 better, on as many pictures as the sample has. The table says what other sizes give.

The per-picture results of two trainings of the sample detector, seeds 0 and 1, on 300 plates lie in
`benchmarks/night_results`; further pairs NAME-0.npz and NAME-1.npz (each an `evaluation-scores.npz` of a run) are taken
from `<PASSLINE_HOME or var>/bench/nights`. Other gates than the comparison of mAP50 can only refuse: they are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.night_simulation import Pool, lean_for, make_pool, simulate
from benchmarks.report import Bar, Benchmark, Measured, Table, at_least, at_most, run_benchmark
from deployments.params import load_params
from tasks.evaluation.picture_scores import load_scores
from tasks.gating.gate_policy import GatePolicy

FALSE_PROMOTIONS, PROMOTED_IF_BETTER, GAIN = 0.03, 0.80, 0.02
NIGHTS, QUICK_NIGHTS = 500, 20
ROUNDS = 400
SIZES = (1, 2, 4, 8)
SEED = 1
PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"
STORED = Path(__file__).resolve().parent / "night_results"


@dataclass(frozen=True)
class Cell:
    """Nights of one kind: `gain` is the true distance to the champion."""

    pair: str
    gain: float
    pictures: int
    nights: int
    promoted: float
    admitted: float


def measure(quick: bool) -> Measured:
    """The whole benchmark."""
    policy = load_params(PARAMS).job.gates
    nights = QUICK_NIGHTS if quick else NIGHTS
    further = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench" / "nights"
    cells = []
    for name, pool in pools(STORED, *([] if quick else [further])):
        cells += measure_pool(name, pool, policy, nights, SIZES[:1] if quick else SIZES)
    return Measured(
        settings={"nights": nights, "rounds": ROUNDS, "gain": GAIN, "seed": SEED, "gates": policy.model_dump()},
        samples={"cells": [asdict(cell) for cell in cells]},
        bars=bars(cells, decided=not quick),
        tables=(table(cells),),
        notes=(
            "Nights with more pictures than the sample has draw from the same ones: they stand for pictures like it.",
        ),
    )


def pools(*folders: Path) -> Iterator[tuple[str, Pool]]:
    """Each pair of results in the folders; a missing folder has none."""
    for folder in folders:
        for first in sorted(folder.glob("*-0.npz")):
            name = first.stem.removesuffix("-0")
            yield name, make_pool(load_scores(first), load_scores(folder / f"{name}-1.npz"))


def measure_pool(name: str, pool: Pool, policy: GatePolicy, nights: int, sizes: tuple[int, ...]) -> list[Cell]:
    """Equal candidates at the sample's size; better ones at each size until enough of them are promoted."""
    cells = [_cell(name, pool, 0.0, 0.0, pool.pictures, policy, nights)]
    lean = lean_for(pool, GAIN)
    for size in () if lean is None else sizes:
        cells.append(_cell(name, pool, lean or 0.0, GAIN, pool.pictures * size, policy, nights))
        if cells[-1].promoted >= PROMOTED_IF_BETTER:
            break
    return cells


def _cell(name: str, pool: Pool, lean: float, gain: float, pictures: int, policy: GatePolicy, nights: int) -> Cell:
    decided = list(simulate(pool, lean, pictures, nights, policy, ROUNDS, SEED))
    promoted, admitted = (
        sum(values) / nights for values in zip(*((n.promoted, n.admitted) for n in decided), strict=True)
    )
    print(f"{name}, gain {gain:g}, {pictures} pictures: promoted {promoted:.3f}", file=sys.stderr, flush=True)
    return Cell(name, gain, pictures, nights, promoted, admitted)


def bars(cells: list[Cell], *, decided: bool) -> tuple[Bar, ...]:
    """The worst pair counts; a better candidate is judged at the sample's own size."""
    equal = [cell.promoted for cell in cells if cell.gain == 0]
    first: dict[str, float] = {}
    for cell in cells:
        if cell.gain:
            first.setdefault(cell.pair, cell.promoted)
    return (
        at_most("false_promotions", max(equal, default=None), FALSE_PROMOTIONS, decided=decided),
        at_least("promoted_if_better", min(first.values(), default=None), PROMOTED_IF_BETTER, decided=decided),
    )


def table(cells: list[Cell]) -> Table:
    """One row per cell."""
    return Table(
        ("results", "truly better by", "test pictures", "promoted", "registered"),
        tuple(
            (
                cell.pair,
                f"{100 * cell.gain:g} points",
                str(cell.pictures),
                f"{cell.promoted:.1%}",
                f"{cell.admitted:.1%}",
            )
            for cell in cells
        ),
    )


BENCHMARK = Benchmark("nights", measure, packages=("numpy",))

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK))
