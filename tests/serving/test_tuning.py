"""The tuner: measured, judged, kept, overridable, and never an engine that was not judged."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

import builders
from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from data_contracts.errors import EngineError
from data_contracts.release import now
from data_contracts.tuning import Tuning
from serving.bundle import Bundle, open_bundle
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.trial import Listed, Measured, TrialReport, TrialRequest, TrialTimeout
from serving.tuning import NOT_MEASURED, Tuner
from serving.tuning_cache import KEEP_SPEEDS

ALL = {("cpu", "fp32"): "", ("openvino", "fp32"): "", ("openvino", "bf16"): "", ("tensorrt", "fp16"): "no GPU here"}
RATES = {("cpu", "fp32"): 20.0, ("openvino", "fp32"): 26.0, ("openvino", "bf16"): 40.0}


@dataclass
class PlayedTrials:
    """Stands for the trial processes. `rates` by engine; `verdicts`: what the probe set says, else it passes."""

    engines: dict[tuple[str, str], str] = field(default_factory=lambda: dict(ALL))
    rates: dict[tuple[str, str], float] = field(default_factory=lambda: dict(RATES))
    verdicts: dict[tuple[str, str], str] = field(default_factory=dict)
    broken: dict[tuple[str, str], str] = field(default_factory=dict)
    too_slow: set[tuple[str, str]] = field(default_factory=set)
    idle: set[bool] = field(default_factory=set)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    on_measure: Callable[[], None] = lambda: None

    def __call__(self, request: TrialRequest, limit_s: float) -> TrialReport:
        self.limits_s.append(limit_s)
        self.idle.add(request.idle)
        if request.what == "list":
            self.asked.append(("list", "", ""))
            found = [Listed(provider=p, precision=q, reason=why) for (p, q), why in self.engines.items()]
            return TrialReport(listed=tuple(one for one in found if one.provider in request.providers))
        engine = request.engines[0]
        kind = (engine.provider, engine.precision)
        self.asked.append((request.what, *kind))
        if kind in self.broken:
            raise EngineError(self.broken[kind])
        if kind in self.too_slow:
            raise TrialTimeout(f"no result within {limit_s:g} s")
        if request.what == "judge":
            assert request.probe_set is not None
            words = self.verdicts.get(kind, "")
            return TrialReport(passed=not words, words=words or "0 of 3 verdicts flipped, allowed 0")
        self.on_measure()
        # More streams give a little more throughput here, and the slower call.
        measured = [
            Measured(
                engine=one, pictures_per_s=self.rates[kind] + one.streams, call_ms=one.streams * 1000 / self.rates[kind]
            )
            for one in request.engines
        ]
        return TrialReport(measured=tuple(measured))

    @property
    def judged(self) -> list[tuple[str, str]]:
        return [(provider, precision) for what, provider, precision in self.asked if what == "judge"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    bundle, probe = builders.probed_bundle(tmp_path_factory.mktemp("bundle"))
    return open_bundle(bundle), probe


class Stage:
    def __init__(self, root: Path, sources: tuple[Bundle, Path]) -> None:
        self.store = ReleaseStore(root / "store")
        self.store.prepare()
        self.bundle, self.probe = sources
        self.store.add_probe_set(self.probe, self.probe.name)
        self.trials = PlayedTrials()

    def choose(
        self, cpus: int = 2, bundle: Bundle | None = None, *, beside: bool = False, **settings: object
    ) -> Tuning:
        return self.tuner(cpus, beside=beside, **settings).choose(bundle or self.bundle)

    def tuner(self, cpus: int = 2, *, beside: bool = False, **settings: object) -> Tuner:
        wanted = HostSettings.model_validate({"store": self.store.root, **settings})
        return Tuner(self.store, wanted, cpus, self.trials, beside)

    def another(self, folder: Path, **changes: object) -> Bundle:
        """A retrained model (`first_colour` changes weights alone) or, with `gain`, one of another structure."""
        model = builders.colour_stub(**changes)  # type: ignore[arg-type]
        probe = builders.make_probe_set(folder / "probes", model=model)
        self.store.add_probe_set(probe, probe.name)
        made, _ = builders.probed_bundle(folder / "bundles", model=model, probe_set=probe.name)
        return open_bundle(made)

    @property
    def kept(self) -> list[str]:
        return sorted(path.name.split("-")[0] for path in self.store.engines.iterdir())


@pytest.fixture
def stage(tmp_path: Path, sources: tuple[Bundle, Path]) -> Stage:
    return Stage(tmp_path, sources)


def layout(tuning: Tuning) -> tuple[str, str, int, int]:
    chosen = tuning.chosen
    return chosen.provider, chosen.precision, chosen.streams, chosen.threads


def test_the_fastest_that_passes_the_probe_set_is_taken_and_all_is_shown(stage: Stage) -> None:
    tuning = stage.choose()
    assert layout(tuning) == ("openvino", "bf16", 2, 1)
    assert stage.trials.judged == [("openvino", "bf16")]
    shown = {(one.engine.provider, one.engine.precision, one.engine.streams): one for one in tuning.candidates}
    assert shown["openvino", "bf16", 1].judgement == "0 of 3 verdicts flipped, allowed 0"
    assert shown["cpu", "fp32", 2].pictures_per_s == 22.0
    assert shown["tensorrt", "fp16", 1].refused == "no GPU here"
    assert (tuning.cached, tuning.degraded) == (False, "")


def test_for_latency_the_shortest_call_is_taken(stage: Stage) -> None:
    assert layout(stage.choose(tune_for="latency")) == ("openvino", "bf16", 1, 2)


def test_one_that_the_probe_set_refuses_gives_way_and_the_reason_is_shown(stage: Stage) -> None:
    stage.trials.verdicts = {("openvino", "bf16"): "3 of 200 verdicts flipped, allowed 1"}
    tuning = stage.choose()
    assert layout(tuning) == ("openvino", "fp32", 2, 1)
    refused = {one.refused for one in tuning.candidates if one.engine.precision == "bf16"}
    assert refused == {"3 of 200 verdicts flipped, allowed 1"}
    assert tuning.degraded == ""


@pytest.mark.parametrize("reason", ["the trial process died of SIGSEGV: no message", "no result within 66 s"])
def test_one_that_crashes_or_hangs_is_a_refused_candidate(stage: Stage, reason: str) -> None:
    stage.trials.broken = {("openvino", "bf16"): reason, ("openvino", "fp32"): reason}
    tuning = stage.choose()
    assert layout(tuning) == ("cpu", "fp32", 2, 1)
    assert [one.refused for one in tuning.candidates if one.engine.provider == "openvino"] == [reason] * 4


def test_when_engines_cannot_even_be_listed_the_reference_serves(stage: Stage) -> None:
    def crash(request: TrialRequest, limit_s: float) -> TrialReport:
        raise EngineError("the trial process died of SIGILL: no message")

    stage.trials = crash  # type: ignore[assignment]
    tuning = stage.choose()
    assert (layout(tuning), tuning.degraded) == (("cpu", "fp32", 2, 1), "")
    assert {one.refused for one in tuning.candidates} == {"the trial process died of SIGILL: no message"}
    assert "SIGILL" in stage.choose(provider="openvino").degraded


def test_when_nothing_can_be_measured_the_reference_serves(stage: Stage) -> None:
    stage.trials.broken = dict.fromkeys(RATES, "no process")
    tuning = stage.choose()
    assert layout(tuning) == ("cpu", "fp32", 2, 1)
    assert "nothing could be measured" in tuning.how


def test_a_gain_within_the_noise_is_no_reason_to_change(stage: Stage) -> None:
    stage.trials.rates = {("cpu", "fp32"): 20.0, ("openvino", "fp32"): 20.5, ("openvino", "bf16"): 15.0}
    assert layout(stage.choose()) == ("cpu", "fp32", 2, 1)
    assert stage.trials.judged == []


def test_the_budget_is_shared_by_all_layouts(stage: Stage) -> None:
    seconds: list[float] = []
    trials = stage.trials
    stage.trials = lambda request, limit: (seconds.append(request.measure_s), trials(request, limit))[1]  # type: ignore[assignment]
    stage.choose(tune_budget_s=3.0)
    assert seconds[1:4] == [0.5, 0.5, 0.5]  # three engines with two layouts each


class TestKeeping:
    def test_the_next_start_reads_and_tries_nothing(self, stage: Stage) -> None:
        first = stage.choose()
        asked = len(stage.trials.asked)
        second = stage.choose()
        assert len(stage.trials.asked) == asked
        assert second == first.model_copy(update={"cached": True})
        assert stage.kept == ["judged", "speeds"]

    @pytest.mark.parametrize(
        ("cpus", "settings"),
        [
            (4, {}),
            (2, {"tune_for": "latency"}),
            (2, {"precision": "bf16"}),
            (2, {"threads": 1}),
            (2, {"provider": "openvino"}),
        ],
        ids=["CPU quota", "policy", "precision", "threads", "provider"],
    )
    def test_what_decides_is_part_of_the_key(self, stage: Stage, cpus: int, settings: dict[str, object]) -> None:
        stage.choose()
        assert not stage.choose(cpus, **settings).cached

    def test_a_retrained_model_is_judged_and_not_measured(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        stage.trials.asked.clear()
        tuning = stage.choose(bundle=stage.another(tmp_path, first_colour=1))
        assert tuning.cached
        assert stage.trials.asked == [("judge", "openvino", "bf16")]
        assert layout(tuning) == ("openvino", "bf16", 2, 1)

    def test_a_retrained_model_may_fail_where_the_last_one_passed(self, stage: Stage, tmp_path: Path) -> None:
        stage.store.add_bundle(stage.bundle.path, stage.bundle.digest)
        stage.choose()
        stage.trials.verdicts = {("openvino", "bf16"): "3 of 200 verdicts flipped, allowed 1"}
        assert layout(stage.choose(bundle=stage.another(tmp_path, first_colour=1))) == ("openvino", "fp32", 2, 1)
        assert layout(stage.choose()) == ("openvino", "bf16", 2, 1)

    def test_another_structure_is_measured(self, stage: Stage, tmp_path: Path) -> None:
        """One scalar that multiplies may be a scale factor of pictures."""
        stage.choose()
        assert not stage.choose(bundle=stage.another(tmp_path, gain=0.9)).cached

    def test_other_libraries_or_another_host_are_measured_and_judged(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for change in ("99", "100"):
            facts = {"libraries": change}
            monkeypatch.setattr("serving.tuning_cache.host_facts", lambda facts=facts: facts)
            stage.trials.asked.clear()
            assert not stage.choose().cached
            assert [what for what, *_ in stage.trials.asked] == ["list", "measure", "measure", "measure", "judge"]
            assert stage.choose().cached

    def test_an_unreadable_file_is_found_out_again(self, stage: Stage) -> None:
        stage.choose()
        for file in stage.store.engines.iterdir():
            file.write_text("{")
        stage.trials.asked.clear()
        assert not stage.choose().cached
        assert ("judge", "openvino", "bf16") in stage.trials.asked
        assert stage.choose().cached

    def test_one_that_failed_in_service_is_left_out_for_a_while(self, stage: Stage) -> None:
        tuning = stage.choose()
        stage.tuner().failed(stage.bundle, tuning, "out of memory")
        again = stage.choose()
        assert layout(again) == ("openvino", "fp32", 2, 1)
        assert {one.refused for one in again.candidates if one.engine.precision == "bf16"} == {
            "it failed in service: out of memory"
        }

    @pytest.mark.parametrize(("hours", "tried"), [(23, False), (25, True), (-1, True)], ids=["soon", "later", "future"])
    @pytest.mark.parametrize("at", ["measure", "judge"])
    def test_a_crash_is_not_kept_for_ever(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, at: str, hours: int, tried: bool
    ) -> None:
        kind = ("openvino", "bf16")
        broken, whole = stage.trials, PlayedTrials()
        broken.broken = {kind: "the trial process died of SIGSEGV: no message"}

        def trials(request: TrialRequest, limit_s: float) -> TrialReport:
            return (broken if request.what == at else whole)(request, limit_s)

        stage.trials = trials  # type: ignore[assignment]
        assert layout(stage.choose()) == ("openvino", "fp32", 2, 1)
        later = now() + timedelta(hours=hours)
        monkeypatch.setattr("serving.tuning_cache.now", lambda: later)
        broken.broken = {}
        broken.asked.clear()
        whole.asked.clear()
        tuning = stage.choose()
        assert layout(tuning)[1] == ("bf16" if tried else "fp32")
        assert broken.asked == ([(at, *kind)] if tried else [])
        assert "measure" not in {what for what, *_ in whole.asked}  # what did not fail is not measured again

    def test_a_refusal_by_the_probe_set_is_for_good(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        stage.trials.verdicts = {("openvino", "bf16"): "3 of 200 verdicts flipped, allowed 1"}
        stage.choose()
        later = now() + timedelta(days=400)
        monkeypatch.setattr("serving.tuning_cache.now", lambda: later)
        stage.trials.asked.clear()
        stage.choose()
        assert stage.trials.asked == []

    def test_verdicts_go_with_their_bundles_and_old_speeds_with_new_ones(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        stage.store.add_bundle(stage.bundle.path, stage.bundle.digest)
        stage.choose(bundle=stage.another(tmp_path / "1", first_colour=1))
        assert stage.kept == ["judged", "judged", "speeds"]
        shutil.rmtree(stage.store.releases / stage.bundle.digest)
        stage.choose(bundle=stage.another(tmp_path / "2", first_colour=2))
        assert stage.kept == ["judged", "speeds"]
        (first,) = stage.store.engines.glob("speeds-*")
        os.utime(first, (1, 1))
        for cpus in range(3, KEEP_SPEEDS + 3):
            stage.choose(cpus)
        assert len(list(stage.store.engines.glob("speeds-*"))) == KEEP_SPEEDS
        assert not first.exists()

    def test_workers_that_start_together_measure_once(self, stage: Stage) -> None:
        found: list[Tuning] = []
        inside = threading.Event()

        def slow() -> None:
            inside.set()
            second.start()
            second.join(0.3)
            assert second.is_alive(), "the second worker did not wait"
            stage.trials.on_measure = lambda: None

        stage.trials.on_measure = slow
        first, second = (threading.Thread(target=lambda: found.append(stage.choose())) for _ in range(2))
        first.start()
        assert inside.wait(10)
        first.join(10)
        second.join(10)
        assert [tuning.cached for tuning in found] == [False, True]
        assert stage.trials.asked.count(("measure", "cpu", "fp32")) == 1


class TestBesideLiveTraffic:
    """A release is answering while another one is loaded."""

    def test_known_speeds_are_used_and_judging_steps_back(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        assert stage.trials.idle == {False}
        stage.trials.idle.clear()
        tuning = stage.choose(bundle=stage.another(tmp_path, first_colour=1), beside=True)
        assert layout(tuning) == ("openvino", "bf16", 2, 1)
        assert stage.trials.idle == {True}
        assert tuning.deferred == ""

    def test_an_unknown_structure_is_left_to_the_next_start(self, stage: Stage) -> None:
        tuning = stage.choose(beside=True)
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert (tuning.deferred, tuning.degraded) == (NOT_MEASURED, "")
        assert stage.trials.asked == []
        assert stage.kept == []
        started = stage.choose()
        assert layout(started) == ("openvino", "bf16", 2, 1)
        assert started.deferred == ""

    def test_a_pinned_engine_of_an_unknown_structure_is_judged_and_laid_out_by_rule(self, stage: Stage) -> None:
        tuning = stage.choose(beside=True, provider="openvino", precision="bf16")
        assert layout(tuning) == ("openvino", "bf16", 2, 1)
        assert stage.trials.asked == [("judge", "openvino", "bf16")]
        assert (tuning.deferred, tuning.degraded) == (NOT_MEASURED, "")
        assert "by rule" in tuning.how

    def test_where_the_layout_is_fixed_nothing_is_put_off(self, stage: Stage) -> None:
        tuning = stage.choose(beside=True, provider="openvino", precision="bf16", threads=1, streams=1)
        assert (layout(tuning), tuning.deferred) == (("openvino", "bf16", 1, 1), "")

    def test_one_that_cannot_be_judged_in_time_waits_for_the_next_start(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        bundle = stage.another(tmp_path, first_colour=1)
        stage.trials.too_slow = {("openvino", "bf16")}
        stage.trials.limits_s.clear()
        tuning = stage.choose(bundle=bundle, beside=True, probe_budget_s=30)
        assert layout(tuning) == ("openvino", "fp32", 2, 1)
        assert tuning.deferred.startswith("not judged beside live traffic: no result within")
        assert all(limit <= 30 for limit in stage.trials.limits_s)
        asked = len(stage.trials.asked)
        assert layout(stage.choose(bundle=bundle, beside=True)) == ("openvino", "fp32", 2, 1)
        assert len(stage.trials.asked) == asked, "the next worker does not wait again"
        stage.trials.too_slow = set()
        assert layout(stage.choose(bundle=bundle)) == ("openvino", "bf16", 2, 1)

    def test_all_judgements_together_have_the_budget(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        tuning = stage.choose(bundle=stage.another(tmp_path, first_colour=1), beside=True, probe_budget_s=0.5)
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert tuning.deferred == "not judged beside live traffic: other engines took the time"

    def test_a_crash_counts_there_too(self, stage: Stage, tmp_path: Path) -> None:
        stage.choose()
        stage.trials.broken = {("openvino", "bf16"): "the trial process died of SIGSEGV: no message"}
        tuning = stage.choose(bundle=stage.another(tmp_path, first_colour=1), beside=True)
        assert (layout(tuning)[:2], tuning.deferred) == (("openvino", "fp32"), "")


class TestWithoutAProbeSet:
    def bundle(self, folder: Path) -> Bundle:
        return open_bundle(builders.make_bundle(folder))

    def test_only_fp32_onnx_runtime_serves_and_the_reason_is_shown(self, stage: Stage, tmp_path: Path) -> None:
        tuning = stage.choose(bundle=self.bundle(tmp_path))
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert "the bundle names no probe set" in tuning.how
        assert stage.trials.asked == []
        assert tuning.degraded == ""

    def test_one_that_is_not_on_the_host_is_named(self, stage: Stage) -> None:
        (stage.store.probes / stage.probe.name).rename(stage.store.probes / "elsewhere")
        tuning = stage.choose()
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert f"probe set {stage.probe.name[:12]} is not there" in tuning.how

    def test_a_broken_one_counts_as_none(self, stage: Stage) -> None:
        picture = stage.store.probes / stage.probe.name / "pictures" / "000.png"
        picture.write_bytes(picture.read_bytes() + b"x")
        assert "is broken on this host" in stage.choose().how
        assert stage.trials.judged == []

    def test_one_of_another_model_counts_as_none(self, stage: Stage, tmp_path: Path) -> None:
        other = builders.make_bundle(tmp_path, gain=0.5, probe_set=stage.probe.name)
        assert "recorded with another model" in stage.choose(bundle=open_bundle(other)).how

    def test_a_pinned_engine_cannot_be_judged_so_the_reference_is_offered(self, stage: Stage, tmp_path: Path) -> None:
        tuning = stage.choose(bundle=self.bundle(tmp_path), provider="openvino", precision="bf16")
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert tuning.degraded.startswith("wanted openvino bf16, running on cpu fp32: no other engine can be judged")


class TestPinned:
    def test_onnx_runtime_alone_is_not_measured(self, stage: Stage) -> None:
        assert layout(stage.choose(provider="cpu")) == ("cpu", "fp32", 2, 1)
        assert layout(stage.choose(provider="cpu", tune_for="latency")) == ("cpu", "fp32", 1, 2)
        assert stage.trials.asked == []

    def test_without_the_tuner_the_rule_decides(self, stage: Stage) -> None:
        assert layout(stage.choose(4, tune=False)) == ("cpu", "fp32", 4, 1)
        assert layout(stage.choose(4, tune=False, tune_for="latency")) == ("cpu", "fp32", 1, 4)
        assert stage.trials.asked == []

    @pytest.mark.parametrize(
        "settings", [{"tune": False}, {"threads": 1, "streams": 2}], ids=["tuner off", "all fixed"]
    )
    def test_what_is_fully_determined_is_judged_and_not_measured(
        self, stage: Stage, settings: dict[str, object]
    ) -> None:
        tuning = stage.choose(provider="openvino", precision="bf16", **settings)
        assert layout(tuning) == ("openvino", "bf16", 2, 1)
        assert [what for what, *_ in stage.trials.asked] == ["list", "judge"]
        assert tuning.how == "as the settings wish"

    def test_one_that_the_probe_set_refuses_is_told_with_the_reason(self, stage: Stage) -> None:
        stage.trials.verdicts = {("openvino", "bf16"): "3 of 200 verdicts flipped, allowed 1"}
        for _ in range(2):  # measured, then kept
            tuning = stage.choose(provider="openvino", precision="bf16")
            assert layout(tuning) == ("cpu", "fp32", 2, 1)
            words = "wanted openvino bf16, running on cpu fp32: 3 of 200 verdicts flipped, allowed 1"
            assert tuning.degraded == words

    def test_one_that_this_host_lacks_is_told_with_the_reason_and_looked_for_again(self, stage: Stage) -> None:
        tuning = stage.choose(provider="tensorrt")
        assert tuning.degraded == "wanted tensorrt, running on cpu fp32: no GPU here"
        stage.trials.engines["tensorrt", "fp16"] = ""
        stage.trials.rates["tensorrt", "fp16"] = 500.0
        assert layout(stage.choose(provider="tensorrt")) == ("tensorrt", "fp16", 1, 2)

    def test_a_precision_that_no_engine_offers_is_told(self, stage: Stage) -> None:
        assert "wanted int8, running on cpu fp32: no engine offers that" in stage.choose(precision="int8").degraded

    def test_a_quantised_model_makes_onnx_runtime_a_choice(self, stage: Stage, tmp_path: Path) -> None:
        stage.trials.rates["cpu", "int8"] = 30.0
        assert layout(stage.choose(bundle=self.with_int8(stage.bundle, tmp_path), provider="cpu")) == (
            "cpu",
            "int8",
            2,
            1,
        )
        assert stage.trials.judged == [("cpu", "int8")]

    @staticmethod
    def with_int8(bundle: Bundle, folder: Path) -> Bundle:
        """The bundle as if it had a quantised model; the trials are played, so nobody reads it."""
        shutil.copytree(bundle.path, folder / "quantised")
        (folder / "quantised" / INT8_MODEL_FILE).write_bytes(b"played")
        files = bundle.manifest.files | {INT8_MODEL_FILE: bundle.manifest.files[MODEL_FILE]}
        manifest = bundle.manifest.model_copy(update={"files": files})
        return Bundle(folder / "quantised", manifest, bundle.digest, bundle.golden)

    def test_a_host_with_nothing_else_follows_the_rule_and_remembers_it(self, stage: Stage) -> None:
        stage.trials.engines = {("cpu", "fp32"): "", ("openvino", "fp32"): "not installed"}
        tuning = stage.choose()
        assert layout(tuning) == ("cpu", "fp32", 2, 1)
        assert [one.refused for one in tuning.candidates] == ["not installed"]
        assert stage.choose().cached
        assert stage.trials.asked == [("list", "", "")]
