"""Which engines and layouts come into question on a host, and which is best: rules without measurements."""

from __future__ import annotations

from collections.abc import Iterable

from data_contracts.bundle import Precision
from data_contracts.tuning import EngineChoice, Policy, TunedCandidate
from serving.settings import HostSettings

Kind = tuple[str, Precision]
"""A provider and a precision."""

REFERENCE: Kind = ("cpu", "fp32")
"""FP32 ONNX Runtime on the CPU: what the gates measured, and what every host has."""

ACCELERATED = ("cuda", "tensorrt")
MUST_GAIN = 1.15
"""Another engine must be this many times as good as the reference: less is within what two short measurements on a busy
host differ by, and would be paid with memory (OpenVINO takes 300 MB more for YOLOv8n at 640 px)."""


def is_wanted(kind: Kind, settings: HostSettings) -> bool:
    """Whether the settings allow this engine."""
    return settings.provider in ("auto", kind[0]) and settings.precision in ("auto", kind[1])


def only_reference(settings: HostSettings, *, int8: bool) -> bool:
    """Whether the settings leave nothing but FP32 ONNX Runtime; `int8`: the bundle has a quantised model."""
    if not settings.tune:
        return is_wanted(REFERENCE, settings)
    return settings.provider == "cpu" and (settings.precision == "fp32" or (settings.precision == "auto" and not int8))


def wish_words(settings: HostSettings) -> str:
    """What the settings pin, for messages: `openvino bf16`, `openvino`, `bf16`."""
    return " ".join(word for word in (settings.provider, settings.precision) if word != "auto")


def needs_no_judgement(kind: Kind) -> bool:
    """FP32 ONNX Runtime, on the CPU or, without TF32, by CUDA, is what the probe set was recorded with."""
    return kind in (REFERENCE, ("cuda", "fp32"))


def layouts(kind: Kind, cpus: int, settings: HostSettings) -> tuple[tuple[int, int], ...]:
    """(streams, threads per call) that share `cpus` CPUs without a CPU more; what the settings fix stays fixed.

    Worked example: 4 CPUs give 4 x 1, 2 x 2 and 1 x 4. An accelerator works through one stream, in batches.
    """
    threads, streams = settings.threads, settings.streams
    if kind[0] in ACCELERATED:
        return ((streams or 1, threads or cpus),)
    if threads and streams:
        return ((streams, threads),)
    if threads:
        return ((max(1, cpus // threads), threads),)
    if streams:
        return ((streams, max(1, cpus // streams)),)
    return tuple((cpus // each, each) for each in sorted({1, min(2, cpus), cpus}) if cpus % each == 0)


def by_rule(kind: Kind, cpus: int, settings: HostSettings) -> EngineChoice:
    """The layout without a measurement: one single-threaded call per CPU for throughput, one call with all for latency.

    On two CPUs ONNX Runtime answers 21.6 pictures/s with two calls of one thread and 17.5 with one call of two (YOLOv8n
    at 640 px): the order of layouts is known, so a start need not pay for measuring it.
    """
    possible = layouts(kind, cpus, settings)
    streams, threads = possible[0] if settings.tune_for == "throughput" else possible[-1]
    return choice(kind, streams, threads)


def choice(kind: Kind, streams: int, threads: int) -> EngineChoice:
    """An engine and its layout as one value."""
    return EngineChoice(provider=kind[0], precision=kind[1], threads=threads, streams=streams)


def kind_of(engine: EngineChoice) -> Kind:
    """Its provider and precision."""
    return engine.provider, engine.precision


def best_first(measured: Iterable[TunedCandidate], policy: Policy) -> list[TunedCandidate]:
    """What is worth trying, best first: those that gain over the reference, then the best of the reference itself.

    Without a measured reference all are worth trying.
    """
    usable = sorted((one for one in measured if not one.refused), key=lambda one: _worth(one, policy), reverse=True)
    reference = next((one for one in usable if kind_of(one.engine) == REFERENCE), None)
    if reference is None:
        return usable
    needed = _worth(reference, policy) * MUST_GAIN
    others = [one for one in usable if kind_of(one.engine) != REFERENCE and _worth(one, policy) >= needed]
    return [*others, reference]


def _worth(one: TunedCandidate, policy: Policy) -> float:
    """Larger is better."""
    if policy == "throughput":
        return one.pictures_per_s or 0.0
    return 1.0 / one.call_ms if one.call_ms else 0.0
