"""The tuner in real service workers: trial processes, one measurement for all, the result in /v1/release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import builders
from servers import LiveHost, wait_until

RED = builders.encode(builders.plate((64, 48), ((0, 0, 32, 24), builders.RED)))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LiveHost]:
    made = LiveHost(tmp_path, service_workers=2, tune_budget_s=0.5)
    try:
        yield made
    finally:
        made.kill()


def test_workers_tune_once_for_all_and_show_it(host: LiveHost, tmp_path: Path) -> None:
    bundle, probe = builders.probed_bundle(tmp_path / "made")
    host.store.add_probe_set(probe, probe.name)
    host.start()
    outcome = host.redeploy(bundle)
    assert outcome.status == "converged", outcome.message
    files = list(host.store.engines.glob("speeds-*.json"))
    assert len(files) == 1
    status = host.status()
    assert status.tuning is not None
    chosen = status.tuning.chosen
    assert (status.provider, status.precision) == (chosen.provider, chosen.precision)
    measured = {one.engine.provider for one in status.tuning.candidates if one.pictures_per_s}
    assert measured == {"cpu", "openvino"}
    engines = {(one.provider, one.precision) for worker in host.store.workers() for one in worker.loaded}
    assert engines == {(chosen.provider, chosen.precision)}
    assert status.degraded == ()
    assert host.post(RED).json()["verdict"] == "NG"
    host.stop("service")
    host.start("service")
    wait_until(host.ready, 60, "ready again")
    # Either worker may answer, and one is ready before the other.
    wait_until(lambda: all(host.status().tuning for _ in range(10)), 60, "both workers ready again")
    again = host.status().tuning
    assert again is not None
    assert again.cached
    assert again.candidates == status.tuning.candidates
    assert list(host.store.engines.glob("speeds-*.json")) == files


def test_a_retrained_model_is_swapped_in_without_a_measurement(host: LiveHost, tmp_path: Path) -> None:
    first, _ = released(host, tmp_path / "first", builders.colour_stub())
    host.start()
    assert host.redeploy(first).status == "converged"
    measured = host.status().tuning
    retrained, _ = released(host, tmp_path / "retrained", builders.colour_stub(first_colour=1))
    assert host.redeploy(retrained).status == "converged"
    status = host.status()
    assert status.active is not None
    assert status.active.digest == retrained.name
    assert measured is not None
    assert status.tuning is not None
    assert (status.tuning.cached, status.tuning.deferred) == (True, "")
    rates = [[one.pictures_per_s for one in tuning.candidates] for tuning in (measured, status.tuning)]
    assert rates[0] == rates[1]
    assert len(list(host.store.engines.glob("speeds-*.json"))) == 1
    other, _ = released(host, tmp_path / "other", builders.colour_stub(gain=0.9))
    assert host.redeploy(other).status == "converged"
    status = host.status()
    assert status.tuning is not None
    assert "not measured beside live traffic" in status.tuning.deferred
    assert (status.provider, status.precision, status.degraded) == ("cpu", "fp32", ())


def released(host: LiveHost, folder: Path, model: bytes) -> tuple[Path, Path]:
    """A bundle of `model` and its probe set, which is in the host's store already."""
    probe = builders.make_probe_set(folder / "probes", model=model)
    host.store.add_probe_set(probe, probe.name)
    return builders.probed_bundle(folder / "made", model=model, probe_set=probe.name)
