from __future__ import annotations

import pytest
from pydantic import ValidationError

from data_contracts.release import CandidateMode, DesiredState, HostReport, Intent, WorkerReport, now

A, B = "a" * 64, "b" * 64

BAD_STATES = {
    "candidate without mode": {"candidate": B},
    "mode without candidate": {"candidate_mode": CandidateMode.WARM},
    "candidate that is active": {"candidate": A, "candidate_mode": CandidateMode.WARM},
    "digest that is none": {"previous": "latest"},
    "share over one": {"candidate_share": 1.5},
}


@pytest.mark.parametrize("fields", BAD_STATES.values(), ids=BAD_STATES)
def test_contradicting_states_are_refused(fields):
    with pytest.raises(ValidationError):
        DesiredState(**({"generation": 1, "active": A} | fields))


@pytest.mark.parametrize(("kind", "digest"), [("activate", None), ("rollback", A)])
def test_an_intent_names_a_digest_exactly_when_it_activates(kind, digest):
    with pytest.raises(ValidationError, match="digest"):
        Intent(intent_id="i1", kind=kind, digest=digest, reason="r", requested_by="test")


def report(name: str, active: str | None) -> WorkerReport:
    return WorkerReport(worker_id=name, pid=1, started_at=now(), generation=1, active=active, fingerprint="f")


@pytest.mark.parametrize(
    ("actives", "digest"),
    [([A, A], A), ([A, B], None), ([], None), ([None], None), ([A, None], None)],
    ids=["all agree", "they differ", "no worker", "nothing active", "one is behind"],
)
def test_the_serving_digest_is_what_every_worker_answers_with(actives, digest):
    workers = tuple(report(f"w{number}", active) for number, active in enumerate(actives))
    host = HostReport(host="h", desired=DesiredState(generation=1, active=A), workers=workers)
    assert host.serving_digest == digest
