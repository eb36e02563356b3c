"""What a candidate costs beside accuracy: INT8 against FP32, time and memory against the champion."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.gating.gate_checks import GateCheck, answers_check, at_most, is_number, told, yes_or_no
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
        times = f"Times {told(one.candidate.seconds)} s and {told(one.champion.seconds)} s."
        yield at_most(
            f"time at batch {one.batch}", slower, policy.max_slowdown, f"{times} Use a smaller model or picture size."
        )
        larger = quotient(one.candidate.peak_mib, one.champion.peak_mib)
        peaks = f"Peaks {told(one.candidate.peak_mib)} MiB and {told(one.champion.peak_mib)} MiB."
        yield at_most(f"memory at batch {one.batch}", larger, policy.max_memory_growth, f"{peaks} Use a smaller model.")


def int8_checks(fp32: EvaluationResult, int8: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """INT8 against FP32 of the same bundle on the same pictures, class by class; one box of a rare class is no loss."""
    same = fp32.digest == int8.digest and fp32.pictures_sha256 == int8.pictures_sha256
    bad = "it was measured for another bundle or on other pictures. Measure it again."
    yield yes_or_no("INT8", holds=same, good="measured on the same pictures as FP32.", bad=bad)
    yield answers_check("answers of INT8", int8)
    quantised = {one.name: one.ap50 for one in int8.classes}
    yield _loss_check("map50: loss by INT8", fp32.map50, int8.map50, policy.max_int8_loss)
    for one in fp32.classes:
        if one.instances:
            limit = max(policy.max_int8_loss, 1 / one.instances)
            yield _loss_check(f"{one.name}: loss by INT8", one.ap50, quantised.get(one.name), limit)


def _loss_check(name: str, before: float | None, after: float | None, limit: float) -> GateCheck:
    loss = None if before is None or after is None else before - after
    words = f"{told(before)} becomes {told(after)}. Keep further layers in float, or ship FP32 only."
    return at_most(name, loss, limit, words)
