"""The host agent: the only writer of the desired release state. Start it with `python -m serving.agent`.

It takes one wish at a time and leads the workers of this host to it:

    activate   candidate (every live worker loads, warms and proves it) -> active -> every live worker answers with it
    rollback   the same with the previous release; where no worker is alive it switches at once

All it knows is on disk, so it may be killed and started again at any point.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from data_contracts.errors import PasslineError, ReleaseError
from data_contracts.release import CandidateMode, DesiredState, Intent, IntentOutcome, WorkerReport, now
from serving.settings import load_host_settings
from serving.store import ReleaseStore

POLL_S = 0.1
KEEP_OUTCOMES = 200
FORGET_WORKERS_AFTER_S = 60.0
_log = logging.getLogger("passline.agent")


@dataclass(frozen=True)
class Decision:
    """What to do next about one wish: a new desired state, an answer to the wish, both, or (neither) wait."""

    desired: DesiredState | None = None
    status: Literal["converged", "refused", "failed"] | None = None
    message: str = ""


WAIT = Decision()
FindFault = Callable[[str], str | None]
"""Says what is wrong with the bundle of a digest in the store, None when it verifies."""


def step(
    desired: DesiredState, intent: Intent, workers: tuple[WorkerReport, ...], elapsed_s: float, find_fault: FindFault
) -> Decision:
    """Decide the next step of `intent`.

    workers: the live ones; elapsed_s: seconds since the wish was made.
    """
    late = elapsed_s > intent.deadline_s
    if desired.reason == _switched(intent) or (intent.kind == "activate" and desired.active == intent.digest):
        return _watch_switch(desired, intent, workers, late=late)
    target = intent.digest if intent.kind == "activate" else desired.previous
    if target is None:
        return Decision(status="refused", message="there is no previous release to return to")
    if target == desired.active:
        return Decision(status="refused", message=f"release {target[:12]} is active and previous at once")
    if desired.candidate == target and desired.reason == _proving(intent):
        return _watch_candidate(desired, intent, target, workers, late=late)
    return _begin(desired, intent, target, workers, late=late, find_fault=find_fault)


def _begin(
    desired: DesiredState,
    intent: Intent,
    target: str,
    workers: tuple[WorkerReport, ...],
    *,
    late: bool,
    find_fault: FindFault,
) -> Decision:
    if late:
        return Decision(status="refused", message=f"its deadline of {intent.deadline_s:g} s passed before its turn")
    fault = find_fault(target)
    if fault is not None:
        return Decision(status="refused", message=fault)
    if workers:
        proving = _next(desired, _proving(intent), candidate=target, candidate_mode=CandidateMode.WARM)
        return Decision(desired=proving)
    if intent.kind == "rollback":
        # The release to leave may be what kills the workers, so returning must not wait for one.
        return Decision(desired=_switch(desired, intent, target))
    return Decision(
        status="refused", message="no service worker is alive on this host: run ensure_service first, then try again"
    )


def _watch_candidate(
    desired: DesiredState, intent: Intent, target: str, workers: tuple[WorkerReport, ...], *, late: bool
) -> Decision:
    """Wait until every live worker has proved the candidate; drop it where one refuses it or time is up."""
    acted = [worker for worker in workers if worker.generation == desired.generation]
    refusal = _refusal(acted, target)
    if refusal:
        return Decision(_withdraw(desired, intent), "failed", refusal)
    proved = [worker for worker in acted if any(held.digest == target and held.warm for held in worker.loaded)]
    if workers and len(proved) == len(workers):
        return Decision(desired=_switch(desired, intent, target))
    if late:
        waiting = _names(workers, proved)
        message = f"not every worker could load release {target[:12]} within {intent.deadline_s:g} s: {waiting}"
        return Decision(_withdraw(desired, intent), "failed", message)
    return WAIT


def _watch_switch(desired: DesiredState, intent: Intent, workers: tuple[WorkerReport, ...], *, late: bool) -> Decision:
    """Wait until every live worker answers with the active release; return where one refuses it or time is up."""
    acted = [worker for worker in workers if worker.generation == desired.generation]
    there = [worker for worker in acted if worker.active == desired.active]
    if workers and len(there) == len(workers):
        digest = (desired.active or "")[:12]
        return Decision(status="converged", message=f"all {len(workers)} worker(s) answer with release {digest}")
    refusal = _refusal(acted, desired.active)
    ours = desired.reason == _switched(intent)
    if refusal and not ours:
        # It was active before this wish and a worker could not load it: try again, the bundle may have been mended.
        return Decision(desired=_next(desired, _switched(intent)))
    if not refusal and not late:
        return WAIT
    message = refusal or f"not every worker switched within {intent.deadline_s:g} s: {_names(workers, there)}"
    back = ours and intent.kind == "activate" and desired.previous is not None
    return Decision(_return(desired, intent) if back else None, "failed", message)


def _refusal(workers: list[WorkerReport], digest: str | None) -> str:
    if digest is None:
        return ""
    reasons = {worker.worker_id: worker.refused[digest] for worker in workers if digest in worker.refused}
    return "; ".join(f"{worker_id} refused release {digest[:12]}: {why}" for worker_id, why in reasons.items())


def _names(workers: tuple[WorkerReport, ...], done: list[WorkerReport]) -> str:
    missing = [worker.worker_id for worker in workers if worker not in done]
    return "still waiting for " + ", ".join(missing) if missing else "no worker is alive"


def _proving(intent: Intent) -> str:
    return f"{intent.kind} {intent.intent_id}: proving the candidate"


def _switched(intent: Intent) -> str:
    return f"{intent.kind} {intent.intent_id}: switched"


def _next(desired: DesiredState, reason: str, **changes: object) -> DesiredState:
    kept = {"active": desired.active, "previous": desired.previous}
    return DesiredState.model_validate({**kept, **changes, "generation": desired.generation + 1, "reason": reason})


def _switch(desired: DesiredState, intent: Intent, target: str) -> DesiredState:
    # What was rolled back from is no release to return to: a second rollback must not bring it back.
    previous = desired.active if intent.kind == "activate" else None
    return _next(desired, _switched(intent), active=target, previous=previous)


def _withdraw(desired: DesiredState, intent: Intent) -> DesiredState:
    return _next(desired, f"{intent.kind} {intent.intent_id}: candidate withdrawn")


def _return(desired: DesiredState, intent: Intent) -> DesiredState:
    reason = f"{intent.kind} {intent.intent_id}: returned to what was active before"
    return _next(desired, reason, active=desired.previous, previous=None)


class Agent:
    """Leads one host. `turn` does one round; call it again and again."""

    def __init__(self, store: ReleaseStore) -> None:
        self.store = store
        self._seen: dict[str, float] = {}

    def turn(self) -> None:
        """Answer what is unreadable, then take one step of the oldest open wish."""
        self.store.prune_workers(FORGET_WORKERS_AFTER_S)
        for intent_id, why in self.store.unreadable_intents().items():
            self._answer(intent_id, Decision(status="refused", message=f"the intent is unreadable: {why}"), 0.0)
        pending = self.store.pending()
        if pending:
            self._advance(pending[0])
        else:
            self._withdraw_orphan()

    def _advance(self, intent: Intent) -> None:
        elapsed_s = self._elapsed_s(intent)
        try:
            decision = step(self.store.desired(), intent, self.store.workers(), elapsed_s, self._fault)
        except ReleaseError as error:
            decision = Decision(status="refused", message=str(error))
        if decision.desired is not None:
            _log.info("generation %d: %s", decision.desired.generation, decision.desired.reason)
            self.store.write_desired(decision.desired)
        if decision.status is not None:
            self._answer(intent.intent_id, decision, elapsed_s)

    def _elapsed_s(self, intent: Intent) -> float:
        """Seconds since the wish, by its own time or since it was first seen, whichever is longer (clocks differ)."""
        first_seen = self._seen.setdefault(intent.intent_id, time.monotonic())
        return max(time.monotonic() - first_seen, (now() - intent.requested_at).total_seconds())

    def _answer(self, intent_id: str, decision: Decision, seconds: float) -> None:
        assert decision.status is not None  # noqa: S101  (callers hand over answers only)
        desired = self._desired_or_nothing()
        outcome = IntentOutcome(
            intent_id=intent_id,
            status=decision.status,
            message=decision.message,
            active=desired.active,
            previous=desired.previous,
            generation=desired.generation,
            seconds=seconds,
        )
        _log.info("intent %s %s: %s", intent_id, outcome.status, outcome.message)
        self.store.write_outcome(outcome)
        self.store.prune_intents(KEEP_OUTCOMES)
        self._seen.pop(intent_id, None)

    def _withdraw_orphan(self) -> None:
        """Drop a candidate whose wish is gone; nobody would ever decide about it."""
        desired = self._desired_or_nothing()
        if desired.candidate is not None:
            changes = {"generation": desired.generation + 1, "active": desired.active, "previous": desired.previous}
            self.store.write_desired(DesiredState(**changes, reason="candidate withdrawn: its intent is gone"))

    def _desired_or_nothing(self) -> DesiredState:
        try:
            return self.store.desired()
        except ReleaseError:
            return DesiredState(generation=0, active=None)

    def _fault(self, digest: str) -> str | None:
        try:
            self.store.bundle(digest)
        except PasslineError as error:
            return str(error)
        return None


def run(store: ReleaseStore, stop: threading.Event) -> int:
    """Work until `stop`. Gives 1 at once when another agent works on this store."""
    store.prepare()
    with store.lock("agent", wait=False) as mine:
        if not mine:
            _log.error("another host agent works on %s; only one may. Stop it first.", store.root)
            return 1
        agent = Agent(store)
        _log.info("host agent works on %s", store.root)
        while not stop.wait(POLL_S):
            try:
                agent.turn()
            except OSError:
                # A full or vanished disk must not end the agent: it goes on when the disk is back.
                _log.exception("a turn failed")
                stop.wait(1.0)
    return 0


def main() -> int:
    """Start the agent of this host."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return run(ReleaseStore(load_host_settings().store), stop)


if __name__ == "__main__":
    sys.exit(main())
