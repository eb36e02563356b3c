from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import builders
from data_contracts.errors import BundleError, NotReady
from data_contracts.release import CandidateMode, DesiredState
from fakes import FakeEngine, counted, fake_resident, fresh_metrics
from serving.bundle import Bundle, open_bundle
from serving.metrics import Metrics
from serving.releases import ReleaseManager
from serving.resident import Resident
from serving.settings import HostSettings
from serving.store import ReleaseStore

WARM = CandidateMode.WARM


class Stage:
    """A store with three bundles and a worker whose loading is played: it counts, and fails where told to."""

    def __init__(self, root: Path, bundles: dict[str, Bundle]) -> None:
        self.store = ReleaseStore(root / "store")
        self.store.prepare()
        self.metrics: Metrics = fresh_metrics()
        self.bundles = bundles
        self.v1, self.v2, self.v3 = self.bundles
        self.loads: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.settings = HostSettings(store=root / "store")
        self.manager = self.new_manager()

    def new_manager(self, load: Callable[[str], Resident] | None = None) -> ReleaseManager:
        return ReleaseManager(
            self.store, self.settings, self.metrics, load or self.load, worker_id="w1", fingerprint="f", threads=1
        )

    def load(self, digest: str) -> Resident:
        self.loads.append(digest)
        if digest in self.broken:
            raise self.broken[digest]
        return fake_resident(self.bundles[digest], FakeEngine())

    def wish(self, generation: int, active: str | None, **changes: Any) -> None:
        self.store.write_desired(DesiredState(generation=generation, active=active, **changes))
        self.manager.converge()

    @property
    def serving(self) -> str:
        return self.manager.serving().digest

    @property
    def held(self) -> set[str]:
        return set(self.manager.status().loaded)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder = tmp_path_factory.mktemp("bundles")
    paths = [builders.make_bundle(folder, version=version) for version in ("1", "2", "3")]
    return {path.name: open_bundle(path) for path in paths}


@pytest.fixture
def stage(tmp_path: Path, bundles: dict[str, Bundle]) -> Stage:
    return Stage(tmp_path, bundles)


def test_without_a_release_it_is_not_ready_and_says_what_to_do(stage: Stage) -> None:
    stage.manager.converge()
    with pytest.raises(NotReady, match="redeploy"):
        stage.manager.serving()
    assert stage.store.workers()[0].generation == 0


def test_activation_loads_switches_and_reports(stage: Stage) -> None:
    stage.wish(1, stage.v1)
    assert stage.serving == stage.v1
    (report,) = stage.store.workers()
    assert (report.generation, report.active, [held.digest for held in report.loaded]) == (1, stage.v1, [stage.v1])
    assert report.loaded[0].warm
    assert report.rss_bytes > 0
    assert counted(stage.metrics, "passline_release_info", digest=stage.v1, name="plates", version="1") == 1


def test_a_candidate_is_loaded_beside_and_only_the_switch_changes_what_answers(stage: Stage) -> None:
    stage.wish(1, stage.v1)
    stage.wish(2, stage.v1, candidate=stage.v2, candidate_mode=WARM)
    assert (stage.serving, stage.held) == (stage.v1, {stage.v1, stage.v2})
    stage.wish(3, stage.v2, previous=stage.v1)
    assert (stage.serving, stage.held) == (stage.v2, {stage.v1, stage.v2})
    assert stage.loads == [stage.v1, stage.v2]
    assert counted(stage.metrics, "passline_release_info", digest=stage.v1, name="plates", version="1") == 0


def test_the_way_back_needs_no_loading(stage: Stage) -> None:
    stage.wish(1, stage.v1)
    stage.wish(2, stage.v2, previous=stage.v1)
    stage.wish(3, stage.v1)
    assert stage.serving == stage.v1
    assert stage.loads == [stage.v1, stage.v2]


def test_two_releases_at_most_are_held_and_a_dropped_one_is_really_gone(stage: Stage) -> None:
    seen: list[int] = []
    load = stage.load
    stage.manager = stage.new_manager(lambda digest: (seen.append(len(stage.held)), load(digest))[1])
    stage.wish(1, stage.v1)
    dropped = weakref.ref(stage.manager.serving())
    stage.wish(2, stage.v2, previous=stage.v1)
    stage.wish(3, stage.v2, previous=stage.v1, candidate=stage.v3, candidate_mode=WARM)
    assert stage.held == {stage.v2, stage.v3}
    assert seen == [0, 1, 1]
    gc.collect()
    assert dropped() is None


def test_doing_it_again_changes_nothing(stage: Stage) -> None:
    stage.wish(1, stage.v1)
    first = stage.manager.serving()
    stage.manager.converge()
    stage.wish(2, stage.v1)
    assert stage.manager.serving() is first
    assert stage.loads == [stage.v1]


def test_holes_in_the_heap_are_given_back_every_now_and_then(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, trims = [1000.0], []
    monkeypatch.setattr("serving.releases.monotonic", lambda: clock[0])
    monkeypatch.setattr("serving.releases.trim_heaps", lambda: trims.append(clock[0]))
    manager = stage.new_manager()
    for clock[0] in (1001.0, 1059.0, 1060.0, 1061.0, 1120.0):
        manager.converge()
    assert trims == [1060.0, 1120.0]


@pytest.mark.parametrize("error", [BundleError("golden differs"), ValueError("golden differs")], ids=["ours", "any"])
def test_a_broken_candidate_is_refused_once_per_generation_and_the_old_one_answers(
    stage: Stage, error: Exception
) -> None:
    stage.broken[stage.v2] = error
    stage.wish(1, stage.v1)
    stage.wish(2, stage.v1, candidate=stage.v2, candidate_mode=WARM)
    stage.manager.converge()
    assert stage.serving == stage.v1
    assert "golden differs" in stage.manager.status().refused[stage.v2]
    assert "golden differs" in stage.store.workers()[0].refused[stage.v2]
    assert stage.loads.count(stage.v2) == 1
    assert counted(stage.metrics, "passline_release_refused_total") == 1
    stage.wish(3, stage.v1)
    assert stage.manager.status().refused == {}
    stage.broken.clear()
    stage.wish(4, stage.v1, candidate=stage.v2, candidate_mode=WARM)
    assert stage.held == {stage.v1, stage.v2}


def test_a_broken_active_release_leaves_the_old_one_and_says_so(stage: Stage) -> None:
    stage.broken[stage.v2] = BundleError("rot")
    stage.wish(1, stage.v1)
    stage.wish(2, stage.v2)
    assert stage.serving == stage.v1
    assert "rot" in stage.manager.status().degraded[0]
    assert stage.manager.report().generation == 2
    assert counted(stage.metrics, "passline_degraded_workers") == 1


def test_at_start_a_broken_release_gives_way_to_the_previous_one(stage: Stage) -> None:
    stage.broken[stage.v2] = BundleError("rot")
    stage.wish(5, stage.v2, previous=stage.v1)
    assert stage.serving == stage.v1
    assert stage.manager.status().ready
    assert "rot" in stage.manager.status().degraded[0]


def test_at_start_with_nothing_that_loads_it_is_not_ready_and_names_the_reason(stage: Stage) -> None:
    stage.broken = {stage.v1: BundleError("rot 1"), stage.v2: BundleError("rot 2")}
    stage.wish(5, stage.v2, previous=stage.v1)
    with pytest.raises(NotReady, match="rot 2"):
        stage.manager.serving()
    assert not stage.manager.status().ready


@pytest.mark.parametrize("content", [b"{", b"", None], ids=["torn", "empty", "gone"])
def test_an_unreadable_state_keeps_the_last_good_one(stage: Stage, content: bytes | None) -> None:
    stage.wish(1, stage.v1)
    stage.store.desired_file.unlink()
    if content is not None:
        stage.store.desired_file.write_bytes(content)
    for _ in range(3):
        stage.manager.converge()
    assert stage.serving == stage.v1
    assert any("release.json" in what for what in stage.manager.status().degraded)
    assert counted(stage.metrics, "passline_release_state_unreadable_total") == 1
    stage.wish(2, stage.v1)
    assert stage.manager.status().degraded == ()


def test_a_state_that_starts_anew_is_followed(stage: Stage) -> None:
    stage.wish(17, stage.v1)
    stage.wish(1, stage.v2)
    assert stage.serving == stage.v2
    assert stage.manager.report().generation == 1


def test_the_worker_reports_while_it_loads_and_leaves_no_report_behind(stage: Stage) -> None:
    loading, go_on = threading.Event(), threading.Event()

    def slow(digest: str) -> Resident:
        loading.set()
        go_on.wait(20)
        return stage.load(digest)

    stage.store.write_desired(DesiredState(generation=1, active=stage.v1))
    manager = stage.new_manager(slow)
    manager.start()
    try:
        assert loading.wait(10)
        reason = manager.reason
        first = wait_for(stage.store.workers)[0]
        assert "being loaded" in reason
        assert (first.active, first.generation) == (None, -1)
        go_on.set()
        assert wait_for(lambda: manager.reason == "")
    finally:
        go_on.set()
        manager.stop()
    assert stage.store.workers() == ()


def wait_for(check: Callable[[], Any]) -> Any:
    for _ in range(200):
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen within 10 s")
