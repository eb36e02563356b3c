"""What the pipeline's measurements say: bars, and tables of where the time went."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.bare_training import BareTimes
from benchmarks.report import Measured, Table, at_most
from benchmarks.retrain_times import GATES, REGISTER, STAGE_OF, RetrainTimes, uncovered_s

OVERHEAD_LIMIT = 1.35
ORCHESTRATION_LIMIT = 0.10


@dataclass(frozen=True)
class Findings:
    """One job, bare and as `retrain`; a quick run may end before it has everything."""

    bare: list[BareTimes] = field(default_factory=list)
    times: RetrainTimes | None = None
    end: str = "not reached"
    epochs: int = 0


def epochs_for(findings: Findings, seconds: float) -> int:
    """How many epochs would take so long, bare; the first, slower one makes them a few too few.

    >>> epochs_for(Findings([BareTimes(70.0, 64.0, 60.0)], epochs=20), 300.0)
    100
    """
    per_epoch_s = statistics.mean(one.train_seconds for one in findings.bare) / findings.epochs
    return max(1, round(seconds / per_epoch_s))


def conclude(usual: Findings, long: Findings | None, notes: list[str]) -> Measured:
    """Bars, tables and raw samples; a run without a long job was a quick one, and decides nothing.

    A candidate that was not registered decides nothing in favour of a full run.
    """
    quick, bare_s, times = long is None, _bare_s(usual), usual.times
    wall_s = times.wall_s(REGISTER) if times else None
    if quick and times and wall_s is None:
        wall_s = times.wall_s(GATES)
        notes = [*notes, f"measured up to the gates, for nothing was registered: {usual.end}"]
    overhead = wall_s / bare_s if wall_s and bare_s else None
    judged = long or usual
    return Measured(
        settings={"epochs": {"usual": usual.epochs, "long": long.epochs if long else None}},
        samples={"usual": _samples(usual), "long": _samples(long) if long else None},
        bars=(
            at_most("overhead_ratio", overhead, OVERHEAD_LIMIT, decided=not quick),
            at_most("orchestration_share", orchestration_share(judged), ORCHESTRATION_LIMIT, decided=not quick),
        ),
        tables=(_task_table(judged), _wall_table(usual.bare, times, wall_s)),
        notes=tuple(notes),
    )


def orchestration_share(findings: Findings) -> float | None:
    """Seconds of `retrain` outside its named stages over those of the bare training; None where one is missing."""
    bare_s, times = _bare_s(findings), findings.times
    return times.outside_s() / bare_s if bare_s and times and times.wall_s(GATES) else None


def _bare_s(findings: Findings) -> float | None:
    return statistics.mean(one.seconds for one in findings.bare) if findings.bare else None


def _samples(findings: Findings) -> dict[str, Any]:
    times = asdict(findings.times) if findings.times else {}
    return {"bare": [asdict(one) for one in findings.bare], "retrain": {"end": findings.end, **times}}


def _task_table(findings: Findings) -> Table:
    """Every task, its named stage, and its share of the time of `retrain` and of the bare training."""
    times, bare_s = findings.times, _bare_s(findings)
    if times is None:
        return Table(("task of retrain", "stage", "seconds", "of retrain", "of bare"), ())
    whole_s = times.start_delay_s + times.end_s
    between_s = uncovered_s(times.spans, times.end_s)
    rows = [(task, STAGE_OF.get(task, "(outside)"), seconds) for task, seconds in times.tasks().items()]
    rows += [("waiting, process start", "(outside)", times.start_delay_s), ("between tasks", "(outside)", between_s)]
    cells = tuple(
        (task, stage, f"{s:.1f}", f"{s / whole_s:.1%}", f"{s / bare_s:.1%}" if bare_s else "")
        for task, stage, s in rows
    )
    return Table(("task of retrain", "stage", "seconds", "of retrain", "of bare"), cells)


def _wall_table(bare: list[BareTimes], times: RetrainTimes | None, wall_s: float | None) -> Table:
    """Wall times in three ways of counting; the first is the one of the bar."""
    rows = []
    delay_s = times.start_delay_s if times else 0.0
    for words, ours, theirs in (
        ("without process start", wall_s, [one.seconds for one in bare]),
        ("with process start", wall_s and wall_s + delay_s, [one.process for one in bare]),
        ("over training alone", wall_s, [one.train_seconds for one in bare]),
    ):
        ratio = f"{ours / statistics.mean(theirs):.2f}" if ours and theirs else ""
        rows.append((words, f"{ours:.1f}" if ours else "", ", ".join(f"{s:.1f}" for s in theirs), ratio))
    return Table(("wall time", "retrain s", "bare s", "ratio"), tuple(rows))
