from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import builders
from data_contracts.release import CandidateMode, DesiredState, Intent, LoadedRelease, WorkerReport, now
from serving.agent import WAIT, Agent, run, step
from serving.store import ReleaseStore

A, B, C = "a" * 64, "b" * 64, "c" * 64


def activate(digest: str = B, deadline_s: float = 60.0, intent_id: str = "wish") -> Intent:
    return Intent(
        intent_id=intent_id, kind="activate", digest=digest, reason="t", requested_by="t", deadline_s=deadline_s
    )


def rollback(deadline_s: float = 60.0) -> Intent:
    return Intent(intent_id="wish", kind="rollback", reason="t", requested_by="t", deadline_s=deadline_s)


def worker(
    worker_id: str, generation: int, active: str | None, loaded: tuple[str, ...] = (), **changes: Any
) -> WorkerReport:
    held = tuple(
        LoadedRelease(digest=d, name="n", version="1", warm=True, load_s=0.1, provider="cpu", precision="fp32")
        for d in loaded
    )
    fields = {"worker_id": worker_id, "pid": 1, "started_at": now(), "generation": generation, "active": active}
    return WorkerReport.model_validate({**fields, "loaded": held, "fingerprint": "f", **changes})


START = DesiredState(generation=4, active=A, previous=C)
PROVING = DesiredState(
    generation=5, active=A, previous=C, candidate=B, candidate_mode=CandidateMode.WARM,
    reason="activate wish: proving the candidate",
)  # fmt: skip
SWITCHED = DesiredState(generation=6, active=B, previous=A, reason="activate wish: switched")
BACK_PROVING = DesiredState(
    generation=5, active=A, previous=C, candidate=C, candidate_mode=CandidateMode.WARM,
    reason="rollback wish: proving the candidate",
)  # fmt: skip
BACK = DesiredState(generation=6, active=C, previous=None, reason="rollback wish: switched")
IDLE = (worker("w1", 4, A, (A,)), worker("w2", 4, A, (A,)))


@dataclass(frozen=True)
class Case:
    name: str
    desired: DesiredState
    intent: Intent
    workers: tuple[WorkerReport, ...]
    elapsed_s: float = 1.0
    fault: str | None = None
    # expectations
    status: str | None = None
    message: str = ""
    active: str | None = None
    candidate: str | None = None
    previous: str | None = None
    generation: int | None = None  # None: the desired state stays


CASES = [
    Case("begin", START, activate(), IDLE, active=A, candidate=B, previous=C, generation=5),
    Case(
        "first activation",
        DesiredState(generation=0, active=None),
        activate(),
        (worker("w1", 0, None),),
        candidate=B,
        generation=1,
    ),
    Case("no worker alive", START, activate(), (), status="refused", message="ensure_service"),
    Case(
        "bundle does not verify",
        START,
        activate(),
        IDLE,
        fault="model.onnx: wrong",
        status="refused",
        message="model.onnx: wrong",
    ),
    Case("late before its turn", START, activate(), IDLE, elapsed_s=61, status="refused", message="deadline"),
    Case(
        "another wish's candidate is replaced",
        PROVING.model_copy(update={"reason": "activate other: proving the candidate"}),
        activate(),
        IDLE,
        active=A,
        candidate=B,
        previous=C,
        generation=6,
    ),
    Case(
        "already active",
        SWITCHED.model_copy(update={"reason": "activate other: switched"}),
        activate(),
        (worker("w1", 6, B, (B,)),),
        status="converged",
        message="1 worker",
    ),
    Case(
        "already active, a worker catches up",
        SWITCHED.model_copy(update={"reason": ""}),
        activate(),
        (worker("w1", 5, B, (B,)),),
    ),
    Case("already active, no worker alive", SWITCHED.model_copy(update={"reason": ""}), activate(), ()),
    Case(
        "already active, no worker until the deadline",
        SWITCHED.model_copy(update={"reason": ""}),
        activate(),
        (),
        elapsed_s=61,
        status="failed",
        message="no worker is alive",
    ),
    Case(
        "already active but refused before: try again",
        SWITCHED.model_copy(update={"reason": ""}),
        activate(),
        (worker("w1", 6, A, (A,), refused={B: "broken"}),),
        active=B,
        previous=A,
        generation=7,
    ),
    Case("candidate: nobody acted yet", PROVING, activate(), IDLE),
    Case("candidate: one of two is warm", PROVING, activate(), (worker("w1", 5, A, (A, B)), worker("w2", 4, A, (A,)))),
    Case("candidate: loaded in an older generation does not count", PROVING, activate(), (worker("w1", 4, A, (A, B)),)),
    Case(
        "candidate: all warm",
        PROVING,
        activate(),
        (worker("w1", 5, A, (A, B)), worker("w2", 5, A, (A, B))),
        active=B,
        previous=A,
        generation=6,
    ),
    Case(
        "candidate: one refuses",
        PROVING,
        activate(),
        (worker("w1", 5, A, (A, B)), worker("w2", 5, A, (A,), refused={B: "golden differs"})),
        status="failed",
        message="w2 refused release bbbbbbbbbbbb: golden differs",
        active=A,
        previous=C,
        generation=6,
    ),
    Case(
        "candidate: refused in an older generation does not count",
        PROVING,
        activate(),
        (worker("w1", 4, A, (A,), refused={B: "old"}),),
    ),
    Case(
        "candidate: deadline",
        PROVING,
        activate(),
        (worker("w1", 5, A, (A, B)), worker("w2", 4, A)),
        elapsed_s=61,
        status="failed",
        message="still waiting for w2",
        active=A,
        previous=C,
        generation=6,
    ),
    Case("candidate: all workers died", PROVING, activate(), ()),
    Case(
        "candidate: all workers died, deadline",
        PROVING,
        activate(),
        (),
        elapsed_s=61,
        status="failed",
        message="no worker is alive",
        active=A,
        previous=C,
        generation=6,
    ),
    Case("switch: one of two", SWITCHED, activate(), (worker("w1", 6, B, (A, B)), worker("w2", 5, A, (A, B)))),
    Case(
        "switch: all",
        SWITCHED,
        activate(),
        (worker("w1", 6, B, (A, B)), worker("w2", 6, B, (A, B))),
        status="converged",
        message="2 worker(s)",
    ),
    Case(
        "switch: all, although late",
        SWITCHED,
        activate(),
        (worker("w1", 6, B, (A, B)),),
        elapsed_s=61,
        status="converged",
    ),
    Case(
        "switch: one refuses",
        SWITCHED,
        activate(),
        (worker("w1", 6, B, (B,)), worker("w2", 6, A, (A,), refused={B: "no memory"})),
        status="failed",
        message="no memory",
        active=A,
        generation=7,
    ),
    Case(
        "switch: deadline",
        SWITCHED,
        activate(),
        (worker("w1", 5, A, (A,)),),
        elapsed_s=61,
        status="failed",
        message="still waiting for w1",
        active=A,
        generation=7,
    ),
    Case(
        "switch: deadline with nothing to return to",
        SWITCHED.model_copy(update={"previous": None}),
        activate(),
        (worker("w1", 5, A, (A,)),),
        elapsed_s=61,
        status="failed",
    ),
    Case("rollback: begin", START, rollback(), IDLE, active=A, candidate=C, previous=C, generation=5),
    Case(
        "rollback: nothing to return to",
        DesiredState(generation=4, active=A),
        rollback(),
        IDLE,
        status="refused",
        message="no previous",
    ),
    Case(
        "rollback: previous is active",
        DesiredState(generation=4, active=A, previous=A),
        rollback(),
        IDLE,
        status="refused",
        message="at once",
    ),
    Case("rollback: bundle is gone", START, rollback(), IDLE, fault="gone", status="refused", message="gone"),
    Case("rollback: no worker alive switches at once", START, rollback(), (), active=C, generation=5),
    Case("rollback: warm", BACK_PROVING, rollback(), (worker("w1", 5, A, (A, C)),), active=C, generation=6),
    Case(
        "rollback: refused",
        BACK_PROVING,
        rollback(),
        (worker("w1", 5, A, (A,), refused={C: "rot"}),),
        status="failed",
        message="rot",
        active=A,
        previous=C,
        generation=6,
    ),
    Case("rollback: converged", BACK, rollback(), (worker("w1", 6, C, (C, A)),), status="converged"),
    Case("rollback: waits", BACK, rollback(), (worker("w1", 5, A, (A,)),)),
    Case("rollback: deadline keeps the wish", BACK, rollback(), (), elapsed_s=61, status="failed"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_step(case: Case) -> None:
    decision = step(case.desired, case.intent, case.workers, case.elapsed_s, lambda _: case.fault)
    assert decision.status == case.status
    assert case.message in decision.message
    if case.generation is None:
        assert decision.desired is None
    else:
        new = decision.desired
        assert new is not None
        got = (new.generation, new.active, new.candidate, new.previous)
        assert got == (case.generation, case.active, case.candidate, case.previous)
    if case.status is None and case.generation is None:
        assert decision == WAIT


class TestAgent:
    """The agent on a store; the workers are played by hand."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> ReleaseStore:
        store = ReleaseStore(tmp_path / "store")
        store.prepare()
        return store

    @pytest.fixture
    def digest(self, store: ReleaseStore, tmp_path: Path) -> str:
        source = builders.first_bundle(tmp_path)
        store.add_bundle(source, source.name)
        return source.name

    def test_it_may_be_killed_after_every_step(self, store: ReleaseStore, digest: str) -> None:
        store.submit(activate(digest))
        store.write_worker(worker("w1", 0, None))
        Agent(store).turn()
        assert store.desired().candidate == digest
        store.write_worker(worker("w1", 1, None, (digest,)))
        Agent(store).turn()
        assert store.desired().active == digest
        store.write_worker(worker("w1", 2, digest, (digest,)))
        Agent(store).turn()
        outcome = store.outcome("wish")
        assert outcome is not None
        assert (outcome.status, outcome.active, outcome.generation) == ("converged", digest, 2)
        Agent(store).turn()
        assert store.desired().generation == 2

    def test_wishes_are_taken_one_after_another(self, store: ReleaseStore, digest: str) -> None:
        early = activate(digest, intent_id="early")
        store.submit(activate(digest, intent_id="late"))
        store.submit(early.model_copy(update={"requested_at": early.requested_at - timedelta(seconds=5)}))
        store.write_worker(worker("w1", 0, None))
        Agent(store).turn()
        assert store.desired().reason == "activate early: proving the candidate"
        Agent(store).turn()
        assert store.desired().generation == 1

    def test_an_unknown_bundle_is_refused_with_the_reason(self, store: ReleaseStore) -> None:
        store.submit(activate(A))
        store.write_worker(worker("w1", 0, None))
        Agent(store).turn()
        outcome = store.outcome("wish")
        assert outcome is not None
        assert outcome.status == "refused"
        assert "redeploy" in outcome.message

    def test_a_candidate_without_a_wish_is_withdrawn(self, store: ReleaseStore) -> None:
        store.write_desired(PROVING)
        Agent(store).turn()
        state = store.desired()
        assert (state.generation, state.active, state.candidate, state.previous) == (6, A, None, C)

    def test_an_unreadable_wish_is_answered_and_holds_up_nobody(self, store: ReleaseStore, digest: str) -> None:
        (store.intents / "torn.json").write_text("{")
        store.submit(activate(digest))
        store.write_worker(worker("w1", 0, None))
        Agent(store).turn()
        outcome = store.outcome("torn")
        assert outcome is not None
        assert outcome.status == "refused"
        assert store.desired().candidate == digest

    def test_an_unreadable_state_is_said_and_not_overwritten(self, store: ReleaseStore, digest: str) -> None:
        store.desired_file.write_text("{")
        store.submit(activate(digest))
        Agent(store).turn()
        outcome = store.outcome("wish")
        assert outcome is not None
        assert "release.json" in outcome.message
        assert store.desired_file.read_text() == "{"

    def test_a_wish_with_a_time_in_the_future_still_has_a_deadline(self, store: ReleaseStore, digest: str) -> None:
        wish = activate(digest, deadline_s=0.0)
        store.submit(wish.model_copy(update={"requested_at": now() + timedelta(days=1)}))
        store.write_worker(worker("w1", 0, None))
        agent = Agent(store)
        agent.turn()
        agent.turn()
        outcome = store.outcome("wish")
        assert outcome is not None
        assert outcome.status in {"refused", "failed"}

    def test_a_second_agent_refuses(self, store: ReleaseStore) -> None:
        with store.lock("agent", wait=False):
            assert run(store, threading.Event()) == 1

    def test_it_works_until_it_is_stopped(self, store: ReleaseStore) -> None:
        stop, results = threading.Event(), []
        (store.intents / "torn.json").write_text("{")
        thread = threading.Thread(target=lambda: results.append(run(store, stop)))
        thread.start()
        for _ in range(100):
            if store.outcome("torn"):
                break
            threading.Event().wait(0.05)
        stop.set()
        thread.join(10)
        assert results == [0]
        assert store.outcome("torn") is not None
