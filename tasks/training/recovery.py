"""What becomes of a training that ended before its end: from what it died of, to how it goes on, or why it does not.

`recovery.json` in the training's folder is all that a later process needs to continue it in the same MLflow run.
"""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, JsonValue

from data_contracts.base import Contract, Sha256
from data_contracts.errors import JobError, Problem, raise_if_any
from serving.atomic import write_atomically
from tasks.training.messages import Failed, FailureKind
from tasks.training.process import Ending

STATE_FILE = "recovery.json"
MAY_CHANGE = {"epochs", "patience", "batch", "device", "workers", "threads", "cache"}
"""Fields of a training that another value may be given to when it is continued."""

FINAL: dict[FailureKind, str] = {
    "disk_full": "Free space there, then resume; the last good checkpoint is whole.",
    "data": "Mend the dataset: a training on other pictures than the pinned ones is worth nothing.",
    "refused": "See its words in the log above.",
}
"""What trying again cannot mend, with what a person can do."""


class RecoveryConfig(Contract):
    """How often and how a training that broke off goes on by itself."""

    max_resumes: int = Field(ge=0, le=100, description="Times that one training is resumed before it is given up.")
    nan_lr_factor: float = Field(
        gt=0, lt=1, description="Learning rate after a loss or weights that were no numbers, as a fraction of before."
    )
    start_s: float = Field(
        gt=0,
        le=86_400,
        description="Seconds that it may take to load, and to scan the pictures, before the first batch.",
    )
    stuck_s: float = Field(
        gt=0, le=86_400, description="Seconds without a sign of life after which it counts as stuck."
    )


class Resume(Contract):
    """One time that a training was resumed: what had ended it, and the epoch that it went on with."""

    cause: str
    first_epoch: int = Field(ge=1)


class Trained(Contract):
    """What a training that came to its end left behind."""

    weights: Path
    weights_sha256: Sha256
    class_names: tuple[str, ...]
    epochs: int = Field(ge=1)


class RecoveryState(Contract):
    """Where a training stands. `config` is what was asked; batch and learning rate are what it came down to.

    `given_up` is what ended it, where it was given up; None while it runs, or when its watcher just vanished.
    """

    mlflow_run_id: str
    dataset_hash: str
    config: dict[str, JsonValue]
    batch: int = Field(ge=1)
    lr_factor: float = Field(gt=0, le=1)
    resumes: tuple[Resume, ...] = ()
    last_good: str | None = None
    given_up: str | None = None
    trained: Trained | None = None

    def with_(self, **changes: object) -> RecoveryState:
        """A copy with other values."""
        return self.model_validate({**self.model_dump(), **changes})


@dataclass(frozen=True)
class Cause:
    """Why a training process ended."""

    kind: FailureKind
    words: str


def read_state(run_dir: Path) -> RecoveryState | None:
    """The state that an earlier process left; None where the folder does not exist.

    Raises JobError when there is a folder, but no state in it that can be read.
    """
    if not run_dir.exists():
        return None
    file = run_dir / STATE_FILE
    try:
        return RecoveryState.model_validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        got = f"{run_dir}, {'without' if not file.is_file() else 'with a damaged'} {STATE_FILE}"
        action = "Choose another or remove it."
        raise JobError(Problem("training folder", "a new one, or one to go on with", got, action)) from error


def write_state(run_dir: Path, state: RecoveryState) -> None:
    """Remember the state."""
    write_atomically(run_dir / STATE_FILE, state.to_json())


def check_same(state: RecoveryState, config: Mapping[str, object], dataset_hash: str) -> dict[str, str]:
    """What of the configuration is another than before, as words by field.

    Raises JobError naming every field that must stay as it is.
    """
    raise_if_any(JobError, _other(state, config, dataset_hash))
    return {name: f"{state.config.get(name)} -> {value}" for name, value in _changed(state, config)}


def _other(state: RecoveryState, config: Mapping[str, object], dataset_hash: str) -> Iterator[Problem]:
    action = "Resume with what it was started with, or start a new training."
    if state.dataset_hash != dataset_hash:
        yield Problem("resume: dataset", state.dataset_hash, dataset_hash, action)
    for name, value in _changed(state, config):
        if name not in MAY_CHANGE:
            yield Problem(f"resume: train.{name}", str(state.config.get(name)), str(value), action)


def _changed(state: RecoveryState, config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name in sorted(state.config.keys() | config.keys()):
        if state.config.get(name) != config.get(name):
            yield name, config.get(name)


def cause_of(ending: Ending, failed: Failed | None) -> Cause:
    """Why it ended: its own last word where it had one, else what the system says of its end."""
    if ending.silent_s is not None:
        return Cause("stuck", f"stuck: no sign of life for {ending.silent_s:.0f} s, so it was killed")
    if failed is not None:
        return Cause(failed.kind, failed.words)
    if ending.returncode < 0:
        return Cause("killed", f"the training process was ended by {signal_words(-ending.returncode)}")
    tail = f": {ending.tail[-1]}" if ending.tail else ""
    return Cause("ended", f"the training process ended by itself with code {ending.returncode}{tail}")


def signal_words(number: int) -> str:
    """A signal for people.

    >>> signal_words(9)
    "signal 9 (SIGKILL, often the kernel's out-of-memory killer)"
    """
    name = signal.Signals(number).name if number in signal.valid_signals() else "unknown"
    often = {signal.SIGKILL: ", often the kernel's out-of-memory killer", signal.SIGSEGV: ", a fault in native code"}
    return f"signal {number} ({name}{often.get(signal.Signals(number), '') if name != 'unknown' else ''})"


def disk_words(folder: Path) -> str:
    """How full the disk of a folder is."""
    return f"no space left on the disk of {folder}: {shutil.disk_usage(folder).free // 2**20} MiB free"


def is_disk_full(error: BaseException) -> bool:
    """Whether the system refused to write for want of room; torch's own writer has only words for it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return isinstance(error, RuntimeError) and "PytorchStreamWriter failed writing" in str(error)


def cause_before(state: RecoveryState) -> Cause:
    """What ended the process that left this state."""
    return Cause("ended", state.given_up or "the process that watched the training ended")


def next_state(state: RecoveryState, cause: Cause, config: RecoveryConfig, used: int) -> RecoveryState | str:
    """How it goes on after `used` resumes, or what a person can do where it does not."""
    if cause.kind in FINAL:
        return FINAL[cause.kind]
    if used >= config.max_resumes:
        return f"It was given up after {used} resumes (recovery.max_resumes)."
    if cause.kind == "out_of_memory":
        if state.batch == 1:
            return "The batch is 1 already: use a smaller train.imgsz or model, or more memory."
        return state.with_(batch=state.batch // 2)
    if cause.kind == "not_finite":
        return state.with_(lr_factor=state.lr_factor * config.nan_lr_factor)
    return state
