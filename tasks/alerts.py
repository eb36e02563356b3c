"""What is told of a job that did not end well: cause, last epoch, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pydantic import Field

from data_contracts.base import Contract

INTERRUPTED = "Interrupted"
"""State of a run that ended because a system outside was gone, through no fault of the job."""
BY_ITSELF = frozenset({"Crashed", INTERRUPTED})
"""States after which a run is taken up again without anybody's word."""
FAILED, REFUSED = "Failed", "Refused"
"""States of a run that ended by an error, and of one that its worker never starts: the host is too small for it."""
ALARMING = (FAILED, "TimedOut", "Crashed", INTERRUPTED, REFUSED)
"""States of a job that raise an alert."""
ALERT_EVENT = "passline.job.alert"
"""Event of Prefect that carries an alert; the automation that tells people listens to it."""


class AttendConfig(Contract):
    """How often a run is taken up again without anybody's word."""

    max_resumes: int = Field(
        ge=0, le=20, description="Times that one run is taken up again by itself; a person may do it more often."
    )
    resume_wait_s: float = Field(
        ge=0, le=3600, allow_inf_nan=False, description="Seconds before it starts again: what is gone may come back."
    )


@dataclass(frozen=True)
class EndedRun:
    """A run of `retrain` that did not end well. `resumes`: times that it was taken up again so far."""

    run_id: UUID
    flow_id: UUID
    name: str
    state: str
    cause: str
    resumes: int
    last_epoch: int | None = None
    epochs: int | None = None
    mlflow_run_id: str | None = None


class Alert(Contract):
    """What people are told. `text` alone says it all: chat programs show no more."""

    text: str
    run: str
    run_id: str
    state: str
    cause: str
    last_epoch: int | None
    epochs: int | None
    resume: str
    resumes_by_itself: bool
    url: str


def goes_on(ended: EndedRun, config: AttendConfig) -> bool:
    """Whether the run is taken up again without anybody's word."""
    return ended.state in BY_ITSELF and ended.resumes < config.max_resumes


def resume_command(run_id: UUID) -> str:
    """What a person types to take the run up again."""
    return f"passline resume {run_id}"


def epoch_words(ended: EndedRun) -> str:
    """How far the training came.

    >>> epoch_words(EndedRun(UUID(int=0), UUID(int=1), "calm-owl", "Crashed", "killed", 0, last_epoch=7, epochs=40))
    'last epoch 7 of 40'
    """
    if ended.last_epoch is None:
        return "no epoch was finished"
    return f"last epoch {ended.last_epoch}" + (f" of {ended.epochs}" if ended.epochs else "")


def _how_to_go_on(ended: EndedRun) -> str:
    """A resumed run has the same job: where that is wrong, only another one helps."""
    command = resume_command(ended.run_id)
    if ended.state in (FAILED, REFUSED) and ended.last_epoch is None:
        return f"Submit the mended job; if the job itself is right, resume with: {command}"
    return f"Resume with: {command}"


def compose_alert(ended: EndedRun, config: AttendConfig, pages: str, refusal: str = "") -> Alert:
    """The alert on a run. `pages` is where people see Prefect, `refusal` why it was not taken up again by itself."""
    going_on, command = goes_on(ended, config) and not refusal, resume_command(ended.run_id)
    cause = " ".join(ended.cause.split()).rstrip(".")
    after = (
        f"It starts again in {config.resume_wait_s:g} s, resume {ended.resumes + 1} of {config.max_resumes}."
        if going_on
        else f"{refusal} {_how_to_go_on(ended)}".strip()
    )
    if command in cause:  # the training says it itself
        after = refusal
    return Alert(
        text=f"retrain {ended.name}: {ended.state}; {epoch_words(ended)}. {cause}. {after}".strip(),
        run=ended.name,
        run_id=str(ended.run_id),
        state=ended.state,
        cause=cause,
        last_epoch=ended.last_epoch,
        epochs=ended.epochs,
        resume=command,
        resumes_by_itself=going_on,
        url=f"{pages}/runs/flow-run/{ended.run_id}",
    )
