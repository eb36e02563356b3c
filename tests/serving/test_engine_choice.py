"""Which engines and layouts come into question, and which is best."""

from __future__ import annotations

import pytest

from data_contracts.tuning import TunedCandidate
from serving.engine_choice import best_first, by_rule, choice, is_wanted, layouts, only_reference
from serving.settings import HostSettings

CPU, OPENVINO, CUDA = ("cpu", "fp32"), ("openvino", "bf16"), ("cuda", "fp32")

LAYOUTS = {
    "one CPU": (CPU, 1, {}, [(1, 1)]),
    "two CPUs": (CPU, 2, {}, [(2, 1), (1, 2)]),
    "three CPUs": (OPENVINO, 3, {}, [(3, 1), (1, 3)]),
    "four CPUs": (CPU, 4, {}, [(4, 1), (2, 2), (1, 4)]),
    "threads fixed": (CPU, 4, {"threads": 2}, [(2, 2)]),
    "more threads than CPUs": (CPU, 2, {"threads": 3}, [(1, 3)]),
    "streams fixed": (CPU, 4, {"streams": 1}, [(1, 4)]),
    "both fixed": (CPU, 4, {"streams": 3, "threads": 2}, [(3, 2)]),
    "an accelerator": (CUDA, 8, {}, [(1, 8)]),
    "an accelerator, threads fixed": (CUDA, 8, {"threads": 2}, [(1, 2)]),
}


@pytest.mark.parametrize(("kind", "cpus", "settings", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_share_the_cpus(kind, cpus, settings, expected):
    assert list(layouts(kind, cpus, HostSettings(**settings))) == expected


@pytest.mark.parametrize(("policy", "streams", "threads"), [("throughput", 4, 1), ("latency", 1, 4)])
def test_the_rule_follows_the_policy(policy, streams, threads):
    assert by_rule(CPU, 4, HostSettings(tune_for=policy)) == choice(CPU, streams, threads)


ONLY_REFERENCE = {
    "as shipped": ({}, False, False),
    "pinned to ONNX Runtime": ({"provider": "cpu"}, False, True),
    "pinned to ONNX Runtime, quantised model there": ({"provider": "cpu"}, True, False),
    "pinned to its FP32": ({"provider": "cpu", "precision": "fp32"}, True, True),
    "tuner off": ({"tune": False}, True, True),
    "tuner off, another engine pinned": ({"tune": False, "provider": "openvino"}, False, False),
    "any engine with FP32": ({"precision": "fp32"}, False, False),
}


@pytest.mark.parametrize(("settings", "int8", "expected"), ONLY_REFERENCE.values(), ids=ONLY_REFERENCE)
def test_when_nothing_but_the_reference_is_left(settings, int8, expected):
    assert only_reference(HostSettings(**settings), int8=int8) is expected


def test_settings_allow_by_provider_and_precision():
    assert is_wanted(OPENVINO, HostSettings())
    assert is_wanted(OPENVINO, HostSettings(provider="openvino", precision="bf16"))
    assert not is_wanted(OPENVINO, HostSettings(provider="cpu"))
    assert not is_wanted(OPENVINO, HostSettings(precision="fp32"))


def row(kind, rate, call_ms, refused="", streams=1):
    engine = choice(kind, streams, 1)
    return TunedCandidate(engine=engine, pictures_per_s=rate, call_ms=call_ms, refused=refused)


ORDERS = {
    "faster first, the reference last": ([row(CPU, 20, 50), row(OPENVINO, 40, 25)], "throughput", [40, 20]),
    "slower is not tried": ([row(CPU, 20, 50), row(OPENVINO, 15, 70)], "throughput", [20]),
    "no real gain is not tried": ([row(CPU, 20, 50), row(OPENVINO, 20.5, 49)], "throughput", [20]),
    "only the reference's best layout": ([row(CPU, 20, 50), row(CPU, 22, 90)], "throughput", [22]),
    "refused is left out": ([row(CPU, 20, 50), row(OPENVINO, 90, 1, "crashed")], "throughput", [20]),
    "latency": ([row(CPU, 22, 90), row(CPU, 20, 50), row(OPENVINO, 19, 40)], "latency", [19, 20]),
    "without the reference": ([row(OPENVINO, 4, 250), row(CUDA, 9, 111)], "throughput", [9, 4]),
}


@pytest.mark.parametrize(("rows", "policy", "rates"), ORDERS.values(), ids=ORDERS)
def test_what_is_worth_trying_comes_best_first(rows, policy, rates):
    assert [one.pictures_per_s for one in best_first(rows, policy)] == rates
