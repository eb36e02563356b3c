"""What a candidate costs beside accuracy: INT8 against FP32, time and memory against the champion."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.gating.gate_checks import GateCheck, at_most, is_number, yes_or_no
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.speed_result import SpeedResult


def quotient(value: float | None, base: float | None) -> float | None:
    """value / base; None where either is missing, not finite or not positive."""
    if value is None or base is None or not (is_number(value) and is_number(base)) or base <= 0 or value <= 0:
        return None
    return value / base


def speed_checks(speed: SpeedResult | None, candidate: str, champion: str, policy: GatePolicy) -> Iterable[GateCheck]:
    """Time and memory of each batch size, as multiples of the champion's."""
    if speed is None:
        yield yes_or_no("speed", holds=False, bad="it was not measured. The log of the run says why.")
        return
    same = (speed.candidate, speed.champion) == (candidate, champion)
    bad = "it is that of other bundles. Measure both again."
    yield yes_or_no("speed", holds=same, good="both were measured in one run.", bad=bad)
    for one in speed.batches:
        slower = quotient(one.candidate.seconds, one.champion.seconds)
        action = f"Times {one.candidate.seconds} s and {one.champion.seconds} s. Use a smaller model or picture size."
        yield at_most(f"time at batch {one.batch}", slower, policy.max_slowdown, action)
        larger = quotient(one.candidate.peak_mib, one.champion.peak_mib)
        action = f"Peaks {one.candidate.peak_mib} MiB and {one.champion.peak_mib} MiB. Use a smaller model."
        yield at_most(f"memory at batch {one.batch}", larger, policy.max_memory_growth, action)


def int8_checks(fp32: EvaluationResult, int8: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """INT8 against FP32 of the same bundle on the same pictures, class by class."""
    same = fp32.digest == int8.digest and fp32.pictures_sha256 == int8.pictures_sha256
    bad = "it was measured for another bundle or on other pictures. Measure it again."
    yield yes_or_no("INT8", holds=same, good="measured on the same pictures as FP32.", bad=bad)
    quantised = {one.name: one.ap50 for one in int8.classes}
    for one in fp32.classes:
        if one.instances:
            after = quantised.get(one.name)
            loss = None if one.ap50 is None or after is None else one.ap50 - after
            action = f"AP50 {one.ap50} becomes {after}. Keep further layers in float, or ship FP32 only."
            yield at_most(f"{one.name}: loss by INT8", loss, policy.max_int8_loss, action)
