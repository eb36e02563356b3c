"""A probe set on its way: registered with its bundle in a real MLflow, published, fetched by a host."""

from __future__ import annotations

from pathlib import Path

import builders
from mlflow_server import mlflow_server
from serving.bundle import open_bundle
from serving.store import ReleaseStore
from tasks.channel import ReleaseChannel
from tasks.gates import Evidence, decide
from tasks.promote import publish_release
from tasks.redeploy import fetch_bundle, fetch_probe_set
from tasks.register import register
from tasks.registry import Registry
from training_fakes import evaluation, gate_policy, parity


def test_a_host_gets_the_probe_set_that_was_sealed(tmp_path: Path) -> None:
    with mlflow_server(tmp_path / "mlflow") as url:
        registry = Registry(url)
        run_id = registry.start_run("plates", "a run", {})
        registry.finish_run(run_id, "FINISHED")
        provenance = builders.provenance().model_copy(update={"mlflow_run_id": run_id})
        path, probe = builders.probed_bundle(tmp_path / "made", provenance=provenance)
        result = evaluation(digest=path.name, map50=0.9)
        version = register(
            registry, path, result, decide(Evidence(candidate=result, parity=parity()), gate_policy()), probe
        )
        fetched = open_bundle(registry.download_bundle(version, tmp_path / "scratch"), version.digest)
        channel = ReleaseChannel(tmp_path / "channel")
        publish_release(registry, version, fetched, channel, tmp_path / "scratch")
    store = ReleaseStore(tmp_path / "host")
    store.prepare()
    fetch_bundle(store, channel, path.name)
    assert fetch_probe_set(store, channel, probe.name) == store.probes / probe.name
    wanted = store.bundle(path.name).manifest.probe_set
    assert wanted == probe.name
    assert len(list(store.probe_set(wanted).images())) == 3
