"""What was found out about engines, as bars and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from benchmarks.engine_accuracy import Accuracy
from benchmarks.engine_models import Subject
from benchmarks.engine_speed import REFERENCE, Kind, Speed, Way, fastest, gain
from benchmarks.report import Measured, Table, at_least, at_most
from data_contracts.tuning import Tuning
from serving.engines import Provider

GAIN_LIMIT = 1.5
LOSS_LIMIT_POINTS = 0.5
ALLOWED: tuple[Provider, ...] = ("cpu", "openvino")


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    input_px: int
    rounds: int
    seconds: float
    tunes_all: bool


@dataclass(frozen=True)
class Findings:
    """What was measured. `speeds` by the model's name; `tuned` is the tuner's choice for it, where it could choose."""

    speeds: Mapping[str, Mapping[Way, Speed]] = field(default_factory=dict)
    tuned: Mapping[str, Tuning] = field(default_factory=dict)
    accuracy: Mapping[Kind, Accuracy] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def conclude(findings: Findings, subjects: Sequence[Subject], size: Size, *, quick: bool) -> Measured:
    """Bars, tables and raw samples: the gain of the chosen engine on the first model, its loss on the trained one.

    On a CPU without BF16 or VNNI nothing is claimed, so nothing is decided.
    """
    speed_name, trained_name = (subject.name for subject in subjects)
    chosen, how = choose(findings, trained_name)
    fast = fastest(findings.speeds[speed_name], [chosen])
    decided = not quick and bool(findings.flags)
    loss = findings.accuracy[chosen].loss_points if chosen in findings.accuracy else None
    return Measured(
        settings=asdict(size),
        samples={
            "speeds": {
                name: {str(way): asdict(speed) for way, speed in measured.items()}
                for name, measured in findings.speeds.items()
            },
            "accuracy": {" ".join(kind): asdict(one) for kind, one in findings.accuracy.items()},
            "tuned": {name: one.model_dump(mode="json") for name, one in findings.tuned.items()},
            "impossible": dict(findings.impossible),
            "cpu_flags": list(findings.flags),
        },
        bars=(
            at_least("engine_gain", gain(findings.speeds[speed_name], fast), GAIN_LIMIT, decided=decided),
            at_most("map_loss", loss, LOSS_LIMIT_POINTS, decided=decided),
        ),
        tables=(
            *(_speed_table(name, measured) for name, measured in findings.speeds.items()),
            _accuracy_table(trained_name, findings.accuracy),
        ),
        notes=_notes(findings, chosen, how, trained_name, quick=quick),
    )


def choose(findings: Findings, trained_name: str) -> tuple[Kind, str]:
    """The engine that the bars are about, and how it was chosen: by the tuner, or by these measurements."""
    tuned = findings.tuned.get(trained_name)
    if tuned is not None:
        kind = next(
            (kind for kind in findings.accuracy if kind == (tuned.chosen.provider, tuned.chosen.precision)), None
        )
        if kind is not None:
            return kind, f"the tuner's choice for {trained_name}: {tuned.how}"
    harmless = [
        kind for kind, one in findings.accuracy.items()
        if kind == REFERENCE or (one.loss_points is not None and one.loss_points <= LOSS_LIMIT_POINTS)
    ]  # fmt: skip
    best = fastest(findings.speeds[trained_name], harmless)
    return (best.kind if best else REFERENCE), "the fastest with a loss within the limit; the tuner could not choose"


def _notes(findings: Findings, chosen: Kind, how: str, trained_name: str, *, quick: bool) -> tuple[str, ...]:
    notes = [f"chosen: {' '.join(chosen)}, {how}"]
    trained = findings.speeds[trained_name]
    if (trained_gain := gain(trained, fastest(trained, [chosen]))) is not None:
        notes.append(f"its gain on {trained_name}: {trained_gain:.2f}")
    notes += [
        f"the tuner's choice for {name}: {one.chosen.provider} {one.chosen.precision}, "
        f"{one.chosen.threads} x {one.chosen.streams}; {one.how}"
        for name, one in findings.tuned.items()
    ]
    refused = {
        f"the tuner refused {row.engine.provider} {row.engine.precision} for {name}: {row.refused}": None
        for name, one in findings.tuned.items()
        for row in one.candidates
        if row.refused and row.engine.provider in ALLOWED
    }
    notes += list(refused)
    notes += [f"not possible here: {name}: {reason}" for name, reason in findings.impossible.items()]
    words = ", ".join(findings.flags) or "none: no gain is claimed on this CPU, and nothing is decided"
    notes.append(f"instructions of this CPU for BF16 and INT8: {words}")
    notes.append("INT8 files are made here; the tuner sees only what the bundle brings")
    if quick:
        notes.append("quick: small inputs, two short rounds, one epoch of training; nothing is decided")
    return tuple(notes)


def _speed_table(name: str, measured: Mapping[Way, Speed]) -> Table:
    rows = []
    for way, speed in measured.items():
        ratio = gain(measured, way)
        rows.append(
            (
                " ".join(way.kind),
                f"{way.threads} x {way.streams}",
                f"{speed.rate:.1f}",
                f"{min(speed.rates):.1f} - {max(speed.rates):.1f}",
                f"{np.median(speed.lone_ms):.1f}",
                "" if ratio is None else f"{ratio:.2f}",
            )
        )
    return Table((name, "threads x streams", "pictures/s", "from - to", "ms alone", "of the best fp32"), tuple(rows))


def _accuracy_table(name: str, accuracy: Mapping[Kind, Accuracy]) -> Table:
    rows = tuple(
        (
            " ".join(kind),
            _number(one.map50_95, "{:.4f}"),
            _number(one.loss_points, "{:+.2f}"),
            f"{one.flips} of {one.pictures}",
            str(one.boxes),
            _number(one.box_px, "{:.2f}"),
            _number(one.score, "{:.3f}"),
        )
        for kind, one in accuracy.items()
    )
    head = (name, "mAP50-95", "loss, points", "verdict flips", "boxes", "moved, px (95 %)", "score by at most")
    return Table(head, rows)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
