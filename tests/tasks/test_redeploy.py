"""How a bundle gets from the channel to a host, and how its takeover is followed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import builders
from data_contracts.errors import BundleError, ReleaseError
from data_contracts.release import IntentOutcome
from serving.bundle import Bundle, open_bundle
from serving.probe_files import ProbeFolder, open_probe_set
from serving.store import ReleaseStore
from tasks.channel import ReleaseChannel
from tasks.redeploy import fetch_bundle, fetch_probe_set, new_intent, watch_intent


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(builders.make_bundle(tmp_path_factory.mktemp("bundle")))


@pytest.fixture
def store(tmp_path: Path) -> ReleaseStore:
    made = ReleaseStore(tmp_path / "host")
    made.prepare()
    return made


@pytest.fixture
def channel(tmp_path: Path) -> ReleaseChannel:
    return ReleaseChannel(tmp_path / "channel")


def test_publishing_twice_makes_one_verified_bundle_and_leaves_nothing_else(
    bundle: Bundle, channel: ReleaseChannel, tmp_path: Path
) -> None:
    assert channel.publish(bundle) == channel.publish(bundle) == channel.bundle_path(bundle.digest)
    assert [folder.name for folder in (tmp_path / "channel" / "bundles").iterdir()] == [bundle.digest]


def test_a_published_bundle_reaches_the_store(bundle: Bundle, channel: ReleaseChannel, store: ReleaseStore) -> None:
    channel.publish(bundle)
    assert open_bundle(fetch_bundle(store, channel, bundle.digest)).digest == bundle.digest


def test_a_held_bundle_needs_no_channel(bundle: Bundle, channel: ReleaseChannel, store: ReleaseStore) -> None:
    store.add_bundle(bundle.path, bundle.digest)
    assert fetch_bundle(store, channel, bundle.digest) == store.bundle(bundle.digest).path


def test_a_bundle_that_nobody_has_is_named(channel: ReleaseChannel, store: ReleaseStore) -> None:
    with pytest.raises(BundleError, match=r"aaaaaaaaaaaa.*promote"):
        fetch_bundle(store, channel, "a" * 64)


def test_a_bundle_that_was_altered_in_the_channel_stays_out(
    bundle: Bundle, channel: ReleaseChannel, store: ReleaseStore
) -> None:
    model = channel.publish(bundle) / "model.onnx"
    model.write_bytes(model.read_bytes() + b"x")
    with pytest.raises(BundleError, match=r"model\.onnx"):
        fetch_bundle(store, channel, bundle.digest)
    assert not list(store.releases.iterdir())


@pytest.fixture
def probe(tmp_path: Path) -> ProbeFolder:
    return open_probe_set(builders.make_probe_set(tmp_path / "probe"))


def test_a_published_probe_set_reaches_the_store(
    probe: ProbeFolder, channel: ReleaseChannel, store: ReleaseStore
) -> None:
    assert channel.publish_probe_set(probe) == channel.publish_probe_set(probe) == channel.probe_path(probe.digest)
    fetched = fetch_probe_set(store, channel, probe.digest)
    assert fetched == store.probes / probe.digest
    assert store.probe_set(probe.digest).probe == probe.probe


def test_a_held_probe_set_needs_no_channel_and_one_that_nobody_has_is_no_error(
    probe: ProbeFolder, channel: ReleaseChannel, store: ReleaseStore
) -> None:
    assert fetch_probe_set(store, channel, probe.digest) is None
    store.add_probe_set(probe.path, probe.digest)
    assert fetch_probe_set(store, channel, probe.digest) == store.probes / probe.digest


def test_a_probe_set_that_was_altered_in_the_channel_stays_out(
    probe: ProbeFolder, channel: ReleaseChannel, store: ReleaseStore
) -> None:
    picture = channel.publish_probe_set(probe) / "pictures" / "000.png"
    picture.write_bytes(picture.read_bytes() + b"x")
    with pytest.raises(BundleError, match=r"pictures/000\.png"):
        fetch_probe_set(store, channel, probe.digest)
    assert not list(store.probes.iterdir())


def test_the_watch_ends_with_the_agents_word(store: ReleaseStore) -> None:
    intent = new_intent("activate", "a" * 64, "test", "test", deadline_s=5)
    outcome = IntentOutcome(
        intent_id=intent.intent_id, status="failed", message="no", active=None, previous=None, generation=1, seconds=0.1
    )
    store.submit(intent)
    timer = threading.Timer(0.3, store.write_outcome, [outcome])
    timer.start()
    told: list[str] = []
    assert watch_intent(store, intent, told.append) == outcome
    timer.join()
    assert told == ["generation 0: active nothing; no live worker", "failed: no"]


def test_an_agent_that_says_nothing_is_an_error_in_time(store: ReleaseStore) -> None:
    intent = new_intent("rollback", None, "test", "test", deadline_s=0.1)
    store.submit(intent)
    with pytest.raises(ReleaseError, match="host agent"):
        watch_intent(store, intent, print, grace_s=0.1)
