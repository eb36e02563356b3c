from __future__ import annotations

import os
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import builders
from data_contracts.bundle import MODEL_FILE
from data_contracts.errors import BundleError, ReleaseError
from data_contracts.release import DesiredState, Intent, IntentOutcome, WorkerReport, now
from serving.atomic import READ_LIMIT_BYTES, read_capped, write_atomically
from serving.store import ReleaseStore, host_report, wait_for_outcome

A, B = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path: Path) -> ReleaseStore:
    made = ReleaseStore(tmp_path / "store")
    made.prepare()
    return made


def intent(intent_id: str, minutes: float = 0.0, **changes: object) -> Intent:
    fields: dict[str, object] = {"kind": "activate", "digest": A, "reason": "test", "requested_by": "test"}
    return Intent.model_validate(
        fields | {"intent_id": intent_id, "requested_at": now() + timedelta(minutes=minutes)} | changes
    )


def outcome(intent_id: str) -> IntentOutcome:
    return IntentOutcome(
        intent_id=intent_id, status="converged", message="", active=A, previous=None, generation=1, seconds=0.1
    )


def report(worker_id: str, age_s: float = 0.0, active: str | None = A) -> WorkerReport:
    return WorkerReport(
        worker_id=worker_id, pid=1, started_at=now(), reported_at=now() - timedelta(seconds=age_s), generation=1,
        active=active, fingerprint="f",
    )  # fmt: skip


class TestBundles:
    def test_adding_twice_is_fine_and_the_copy_opens(self, store: ReleaseStore, tmp_path: Path) -> None:
        source = builders.first_bundle(tmp_path)
        for _ in range(2):
            assert store.add_bundle(source, source.name).path == store.releases / source.name
        assert store.bundle(source.name).digest == source.name
        assert [path.name for path in store.releases.iterdir()] == [source.name]

    def test_a_wrong_byte_is_refused_and_nothing_is_left(self, store: ReleaseStore, tmp_path: Path) -> None:
        source = builders.first_bundle(tmp_path)
        model = bytearray((source / MODEL_FILE).read_bytes())
        model[100] ^= 1
        (source / MODEL_FILE).write_bytes(model)
        with pytest.raises(BundleError, match=MODEL_FILE):
            store.add_bundle(source, source.name)
        assert list(store.releases.iterdir()) == []

    def test_another_digest_than_expected_is_refused(self, store: ReleaseStore, tmp_path: Path) -> None:
        source = builders.first_bundle(tmp_path)
        with pytest.raises(BundleError):
            store.add_bundle(source, A)
        assert list(store.releases.iterdir()) == []

    def test_a_damaged_copy_in_the_store_is_replaced(self, store: ReleaseStore, tmp_path: Path) -> None:
        source = builders.first_bundle(tmp_path)
        store.add_bundle(source, source.name)
        (store.releases / source.name / MODEL_FILE).write_bytes(b"rot")
        with pytest.raises(BundleError):
            store.bundle(source.name)
        store.add_bundle(source, source.name)
        assert store.bundle(source.name).digest == source.name

    def test_attestations_come_along(self, store: ReleaseStore, tmp_path: Path) -> None:
        source = builders.first_bundle(tmp_path)
        (source / "attestations").mkdir()
        text = f'{{"kind": "gates", "digest": "{source.name}", "made_at": "2024-05-01T12:00:00Z", "statement": {{}}}}'
        (source / "attestations" / "gates.json").write_text(text)
        bundle = store.add_bundle(source, source.name)
        assert (bundle.path / "attestations" / "gates.json").read_text() == text

    @pytest.mark.parametrize("digest", ["", "../" + A, A.upper(), A[:-1]])
    def test_what_is_no_digest_never_becomes_a_path(self, store: ReleaseStore, digest: str) -> None:
        with pytest.raises(ReleaseError, match="64 hexadecimal digits"):
            store.bundle(digest)

    def test_an_unknown_digest_says_what_to_do(self, store: ReleaseStore) -> None:
        with pytest.raises(ReleaseError, match="redeploy"):
            store.bundle(A)


class TestDesired:
    def test_nothing_was_wished_yet(self, store: ReleaseStore) -> None:
        assert store.desired().generation == 0
        assert store.desired().active is None

    def test_it_round_trips(self, store: ReleaseStore) -> None:
        state = DesiredState(generation=3, active=A, previous=B)
        store.write_desired(state)
        assert store.desired() == state

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b'{"generation": 3, "act',
            b"\xff\xfe",
            b"[]",
            b"[" * 10_000,
            b'{"generation": -1, "active": null}',
            b" " * (READ_LIMIT_BYTES + 1),
        ],
        ids=["empty", "torn", "not text", "not an object", "deep", "out of range", "huge"],
    )
    def test_torn_and_hostile_files_are_refused(self, store: ReleaseStore, content: bytes) -> None:
        store.desired_file.write_bytes(content)
        with pytest.raises(ReleaseError, match=r"release\.json"):
            store.desired()

    @pytest.mark.timeout(10)
    def test_a_pipe_or_a_link_is_refused_without_waiting(self, store: ReleaseStore, tmp_path: Path) -> None:
        os.mkfifo(store.desired_file)
        with pytest.raises(ReleaseError):
            store.desired()
        store.desired_file.unlink()
        (tmp_path / "real").write_text(DesiredState(generation=1, active=A).to_json())
        store.desired_file.symlink_to(tmp_path / "real")
        with pytest.raises(ReleaseError):
            store.desired()

    def test_readers_never_see_half_a_file(self, tmp_path: Path) -> None:
        path, stop, seen = tmp_path / "f", threading.Event(), set()
        write_atomically(path, "0" * 50_000)

        def read() -> None:
            while not stop.is_set():
                seen.add(len(set(read_capped(path))))

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(40):
            write_atomically(path, str(number % 10) * 50_000, durable=False)
        stop.set()
        reader.join()
        assert seen == {1}
        assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


class TestIntents:
    def test_they_come_in_the_order_of_the_wish(self, store: ReleaseStore) -> None:
        for intent_id, minutes in (("late", 2), ("early", -2), ("middle", 0)):
            store.submit(intent(intent_id, minutes))
        assert [found.intent_id for found in store.pending()] == ["early", "middle", "late"]

    def test_an_answered_one_is_no_longer_pending(self, store: ReleaseStore) -> None:
        store.submit(intent("one"))
        assert store.outcome("one") is None
        answer = outcome("one")
        store.write_outcome(answer)
        assert store.pending() == ()
        assert store.outcome("one") == answer

    def test_the_same_wish_again_is_fine_and_another_under_its_id_is_not(self, store: ReleaseStore) -> None:
        wish = intent("one")
        store.submit(wish)
        store.submit(wish)
        with pytest.raises(ReleaseError, match="intent one"):
            store.submit(wish.model_copy(update={"digest": B}))

    def test_an_id_cannot_pose_as_an_outcome(self, store: ReleaseStore) -> None:
        with pytest.raises(ReleaseError, match="outcome"):
            store.submit(intent("one.outcome"))

    def test_unreadable_ones_are_named_and_strange_files_ignored(self, store: ReleaseStore) -> None:
        (store.intents / "torn.json").write_text("{")
        (store.intents / "other.json").write_text(intent("one").to_json())
        (store.intents / "Not A Name.json").write_text("{")
        assert store.pending() == ()
        assert set(store.unreadable_intents()) == {"torn", "other"}
        assert "'one'" in store.unreadable_intents()["other"]

    def test_only_the_latest_outcomes_are_kept(self, store: ReleaseStore) -> None:
        for number in range(5):
            store.submit(intent(f"i{number}"))
            store.write_outcome(outcome(f"i{number}"))
            os.utime(store.intents / f"i{number}.outcome.json", (number, number))
        store.submit(intent("open"))
        store.prune_intents(2)
        assert sorted(path.name for path in store.intents.iterdir()) == [
            "i3.json", "i3.outcome.json", "i4.json", "i4.outcome.json", "open.json",
        ]  # fmt: skip

    def test_waiting_ends_with_the_outcome_or_with_advice(self, store: ReleaseStore) -> None:
        store.write_outcome(outcome("one"))
        assert wait_for_outcome(store, "one", 1.0).status == "converged"
        with pytest.raises(ReleaseError, match="host agent runs"):
            wait_for_outcome(store, "two", 0.05)


class TestWorkers:
    def test_only_live_ones_count(self, store: ReleaseStore) -> None:
        for worker_id, age_s in (("fresh", 0.0), ("silent", 60.0), ("future", -60.0)):
            store.write_worker(report(worker_id, age_s))
        (store.reports / "torn.json").write_text("{")
        assert [worker.worker_id for worker in store.workers(5.0)] == ["fresh"]

    def test_one_that_leaves_is_forgotten(self, store: ReleaseStore) -> None:
        store.write_worker(report("one"))
        store.forget_worker("one")
        store.forget_worker("one")
        assert store.workers() == ()

    def test_old_files_are_pruned(self, store: ReleaseStore) -> None:
        for name in ("old", "new"):
            store.write_worker(report(name))
        os.utime(store.reports / "old.json", (0, 0))
        store.prune_workers(60.0)
        assert [path.name for path in store.reports.iterdir()] == ["new.json"]

    def test_the_host_reports_what_all_workers_agree_on(self, store: ReleaseStore) -> None:
        store.write_worker(report("one"))
        store.write_worker(report("two"))
        assert host_report(store, "local").serving_digest == A
        store.write_worker(report("two", active=B))
        assert host_report(store, "local").serving_digest is None


def test_a_lock_is_held_by_one(store: ReleaseStore) -> None:
    with store.lock("agent", wait=False) as mine:
        assert mine
        with store.lock("agent", wait=False) as other:
            assert not other
    with store.lock("agent", wait=False) as again:
        assert again


def test_preparing_twice_keeps_what_is_there(store: ReleaseStore) -> None:
    store.submit(intent("one"))
    store.prepare()
    assert len(store.pending()) == 1
    shutil.rmtree(store.root)
