"""Loading a release for real: the chosen engine, warm-up, golden check, queue (field cases A20, A22, A32)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import builders
import serving.host
from data_contracts.bundle import MODEL_FILE
from data_contracts.errors import BundleError, EngineError
from data_contracts.release import DesiredState, WorkerReport, now
from data_contracts.tuning import EngineChoice, EngineVerdict, Tuning
from fakes import FakeEngine, counted, fresh_metrics
from serving import cpus, resident
from serving.bundle import open_bundle
from serving.detector import Detector
from serving.host import InspectionHost
from serving.http import make_app
from serving.latency import measure_latencies
from serving.releases import ReleaseManager
from serving.resident import Resident, is_answering, load_resident
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.warm_up import warm_sizes, warm_up

RED = builders.encode(builders.plate((64, 48), ((0, 0, 32, 24), builders.RED)))


class Stage:
    """A store with one bundle and its probe set."""

    def __init__(self, root: Path, bundle: Path, probe: Path) -> None:
        self.store, self.metrics = ReleaseStore(root / "store"), fresh_metrics()
        self.store.prepare()
        self.bundle, self.digest, self.probe = bundle, bundle.name, probe
        self.store.add_bundle(bundle, self.digest)

    def settings(self, **changes: Any) -> HostSettings:
        return HostSettings.model_validate({"store": self.store.root, **changes})

    def load(self, of_cpus: int = 2, **changes: Any) -> Resident:
        return load_resident(self.store, self.settings(**changes), of_cpus, self.metrics, self.digest)

    def manager(self, load: Callable[[str], Resident]) -> ReleaseManager:
        made = ReleaseManager(
            self.store, self.settings(), self.metrics, load, worker_id="w1", fingerprint="f", threads=2
        )
        self.store.write_desired(DesiredState(generation=1, active=self.digest))
        made.converge()
        return made


@pytest.fixture(autouse=True)
def _short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short calls are timed as often as long ones: here it matters that sizes are timed, not how exactly."""
    monkeypatch.setattr("serving.warm_up.measure_latencies", partial(measure_latencies, enough_s=0.0))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return builders.probed_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def stage(tmp_path: Path, sources: tuple[Path, Path]) -> Stage:
    return Stage(tmp_path, *sources)


def test_a_good_one_is_warm_and_names_its_engine(stage: Stage) -> None:
    found = stage.load()
    record = found.record
    assert (record.provider, record.precision, record.threads, record.streams) == ("cpu", "fp32", 1, 2)
    assert record.warm
    assert found.ref.version == "1"
    assert 1 <= found.max_batch <= 8


def test_a_wrong_byte_is_named(stage: Stage) -> None:
    file = stage.store.releases / stage.digest / MODEL_FILE
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match=MODEL_FILE):
        stage.load()


def test_the_release_page_shows_the_engine_and_why_it_was_chosen(stage: Stage) -> None:
    status = stage.manager(lambda _: stage.load()).status()
    assert (status.provider, status.precision, status.threads, status.streams) == ("cpu", "fp32", 1, 2)
    assert status.tuning is not None
    assert "not there on this host" in status.tuning.how
    assert type(status).model_validate_json(status.to_json()) == status


@pytest.mark.parametrize(("quota", "each"), [("100000 100000", 1), ("400000 100000", 2)], ids=["one CPU", "four CPUs"])
def test_engine_threads_come_from_the_quota(
    quota: str, each: int, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A22: two workers share the quota, whatever the host has."""
    (tmp_path / "cpu.max").write_text(quota)
    (tmp_path / "self").write_text("0::/\n")
    of_worker = cpus.threads_from_quota(2, cpus=64, cgroup_root=tmp_path, own_cgroups=tmp_path / "self")
    opened: list[tuple[int, int]] = []
    real = resident.open_detector
    monkeypatch.setattr(
        resident,
        "open_detector",
        lambda bundle, options: (opened.append((options.streams, options.threads)), real(bundle, options))[1],
    )
    stage.load(of_worker)
    stage.load(of_worker, tune_for="latency")
    assert opened == [(each, 1), (1, each)]


class TestWishedEngine:
    """A32, on a machine without a GPU."""

    def test_a_missing_provider_makes_the_worker_not_ready_with_the_reason(self, stage: Stage) -> None:
        manager = stage.manager(lambda _: stage.load(provider="tensorrt"))
        assert not manager.status().ready
        assert "TensorrtExecutionProvider" in manager.reason or "NVIDIA" in manager.reason
        assert "PASSLINE_ALLOW_FALLBACK" in manager.reason
        assert counted(stage.metrics, "passline_release_refused_total") == 1

    def test_an_allowed_fallback_answers_and_is_degraded_and_counted(self, stage: Stage) -> None:
        manager = stage.manager(lambda _: stage.load(provider="tensorrt", allow_fallback=True))
        status = manager.status()
        assert (status.ready, status.provider) == (True, "cpu")
        assert status.degraded[0].startswith("wanted tensorrt, running on cpu fp32: ")
        assert counted(stage.metrics, "passline_degraded_workers") == 1

    def test_a_pinned_engine_without_a_judge_is_refused(self, stage: Stage) -> None:
        with pytest.raises(EngineError, match=r"expected openvino bf16.*no other engine can be judged"):
            stage.load(provider="openvino", precision="bf16")


def played_choice(monkeypatch: pytest.MonkeyPatch, tuning: Tuning) -> None:
    monkeypatch.setattr(resident.Tuner, "choose", lambda self, bundle: tuning)


class TestWhenTheChosenEngineFails:
    """A choice was kept, and the engine does not hold what it promised then."""

    CHOSEN = Tuning(
        chosen=EngineChoice(provider="cuda", precision="fp32", threads=2, streams=1), policy="throughput", how="kept"
    )

    def test_the_tuners_own_choice_gives_way_degraded(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        played_choice(monkeypatch, self.CHOSEN)
        found = stage.load()
        assert found.record.provider == "cpu"
        assert found.degraded[0].startswith("running on cpu fp32: ")

    def test_it_is_remembered_for_the_next_start(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        played_choice(monkeypatch, self.CHOSEN)
        stage.load()
        (file,) = stage.store.engines.glob(f"judged-{stage.digest}-*.json")
        kept = EngineVerdict.model_validate_json(file.read_text())
        assert kept.outcome == "failed"
        assert kept.words.startswith("it failed in service: ")

    def test_a_pinned_one_is_refused(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        played_choice(monkeypatch, self.CHOSEN)
        with pytest.raises(EngineError, match="cuda"):
            stage.load(provider="cuda")

    def test_the_reference_itself_has_no_other_to_give_way_to(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[object] = []

        def differs(*_: object) -> None:
            calls.append(1)
            raise BundleError("golden differs")

        monkeypatch.setattr(resident, "check_golden", differs)
        with pytest.raises(BundleError, match="golden differs"):
            stage.load(allow_fallback=True)
        assert len(calls) == 1


GONE = 2**22 + 1  # beyond the largest process id that Linux gives


@pytest.mark.parametrize(
    ("active", "pid", "expected"),
    [("a" * 64, os.getpid(), True), (None, os.getpid(), False), ("a" * 64, GONE, False)],
    ids=["answers", "answers with nothing", "was killed"],
)
def test_what_answers_on_this_host_decides_how_a_release_is_tuned(
    active: str | None, pid: int, expected: bool, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.store.write_worker(worker_report(active, pid))
    assert is_answering(stage.store) is expected
    told: list[bool] = []
    real = resident.Tuner.choose
    monkeypatch.setattr(
        resident.Tuner, "choose", lambda self, bundle: (told.append(self.beside), real(self, bundle))[1]
    )
    stage.load()
    assert told == [expected]


def worker_report(active: str | None, pid: int) -> WorkerReport:
    return WorkerReport(
        worker_id="other", pid=pid, started_at=now(), generation=1, active=active, loaded=(), refused={}, rss_bytes=1,
        threads=1, fingerprint="f",
    )  # fmt: skip


def test_a_worker_that_answers_counts_as_answering_for_its_own_next_release(stage: Stage) -> None:
    stage.manager(lambda _: stage.load())
    assert is_answering(stage.store)


class Sized(FakeEngine):
    """An engine on which a picture costs the same in every batch, or the batch the same with every size."""

    def __init__(self, *, batching_pays: bool) -> None:
        super().__init__()
        self.pays = batching_pays

    def run(self, batch: np.ndarray) -> np.ndarray:
        self.delay_s = 0.03 if self.pays else 0.03 * len(batch)
        return super().run(batch)


@pytest.mark.parametrize(("pays", "largest"), [(True, 8), (False, 2)], ids=["pays", "does not pay"])
def test_warm_up_grows_the_batch_while_that_pays(pays: bool, largest: int, sources: tuple[Path, Path]) -> None:
    engine = Sized(batching_pays=pays)
    table = warm_up(Detector(open_bundle(sources[0]).manifest.model, engine), 8)
    assert max(engine.sizes) == largest
    assert [size for size, _ in table.points] == [size for size in (1, 2, 4, 8) if size <= largest]


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(1, (1,)), (2, (1, 2)), (8, (1, 2, 3, 4, 5, 6, 7, 8)), (64, (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64))],
)
def test_batch_sizes_that_are_warmed(largest: int, sizes: tuple[int, ...]) -> None:
    assert warm_sizes(largest) == sizes


def test_every_batch_size_in_use_is_a_warm_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Sized(batching_pays=True)
    real = resident.open_detector

    def played(bundle: Any, options: Any) -> Detector:
        engine.inner = real(bundle, options).engine
        return Detector(bundle.manifest.model, engine)

    monkeypatch.setattr(resident, "open_detector", played)
    found = stage.load(max_batch=6)
    assert found.max_batch == 6
    assert set(range(1, 7)) <= set(engine.sizes)


def test_beside_live_traffic_call_times_are_those_of_a_quiet_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured beside other work, a size of batch would seem to pay, or not, by chance."""
    first = stage.load(max_batch=8)
    (kept,) = stage.store.engines.glob("latency-*.json")
    monkeypatch.setattr(resident, "is_answering", lambda _: True)
    monkeypatch.setattr(resident, "warm_up", lambda *_: pytest.fail("measured beside live traffic"))
    engine = FakeEngine()
    real = resident.open_detector

    def watched(bundle: Any, options: Any) -> Detector:
        engine.inner = real(bundle, options).engine
        engine.streams = options.streams
        return Detector(bundle.manifest.model, engine)

    monkeypatch.setattr(resident, "open_detector", watched)
    assert stage.load(max_batch=8).max_batch == first.max_batch
    assert set(warm_sizes(first.max_batch)) <= set(engine.sizes), "all sizes in use are warm all the same"
    kept.write_text("{}")
    monkeypatch.setattr(resident, "warm_up", warm_up)
    assert stage.load(max_batch=8).max_batch >= 1


def test_live_at_once_ready_only_when_it_can_answer_and_a_broken_candidate_changes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A20: a slow load, then a corrupt file."""
    loading, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Resident:
        loading.set()
        assert go_on.wait(20)
        return load_resident(*arguments)

    monkeypatch.setattr(serving.host, "load_resident", slow)
    stage.store.write_desired(DesiredState(generation=1, active=stage.digest))
    host = InspectionHost()
    app = make_app(host)
    host.start(stage.settings(), stage.metrics, "w1")

    async def poll(client: httpx.AsyncClient, path: str, until: int) -> httpx.Response:
        for _ in range(400):
            answer = await client.get(path)
            if answer.status_code == until:
                return answer
            await asyncio.sleep(0.025)
        raise AssertionError(f"{path} never answered {until}")

    async def story() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://host") as client:
            assert await asyncio.to_thread(loading.wait, 10)
            for _ in range(5):
                assert (await client.get("/livez")).status_code == 200
                refused = await client.get("/readyz")
                assert refused.status_code == 503
                assert "is being loaded" in refused.json()["detail"]
                assert (await client.post("/v1/inspect", content=RED)).status_code == 503
            go_on.set()
            await poll(client, "/readyz", 200)
            assert (await client.post("/v1/inspect", content=RED)).json()["verdict"] == "NG"
            broken = stage.store.releases / ("a" * 64)
            broken.mkdir()
            (broken / MODEL_FILE).write_bytes(b"rot")
            stage.store.write_desired(DesiredState(generation=2, active="a" * 64, previous=stage.digest))
            for _ in range(400):
                assert (await client.get("/readyz")).status_code == 200
                if (status := (await client.get("/v1/release")).json())["refused"]:
                    break
                await asyncio.sleep(0.025)
            assert status["active"]["digest"] == stage.digest
            assert (await client.get("/readyz")).status_code == 200
            assert counted(stage.metrics, "passline_release_refused_total") == 1

    try:
        asyncio.run(story())
    finally:
        go_on.set()
        host.stop()
