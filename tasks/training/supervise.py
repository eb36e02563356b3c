"""A training is carried to its end: started, listened to, and brought back when it broke off."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from data_contracts.errors import Problem
from serving.atomic import write_atomically
from serving.bundle import hash_file
from tasks.training.checkpoints import Checkpoint, go_back_to, history, newest_whole, weights_file
from tasks.training.events import EpochDone, Observer
from tasks.training.messages import Failed, Finished, Message, Pulse
from tasks.training.order import TrainingOrder
from tasks.training.process import Ending, Patience, run_process
from tasks.training.recovery import (
    FINAL,
    Cause,
    RecoveryConfig,
    RecoveryState,
    Resume,
    Trained,
    cause_of,
    disk_words,
    is_disk_full,
    next_state,
    write_state,
)
from tasks.yolo import TrainingError

CHILD = (sys.executable, "-m", "tasks.training.child")
ORDER_FILE = "order.json"


@dataclass(frozen=True)
class Plan:
    """What is trained and where. `run_id` is what a person resumes it by."""

    home: Path
    model: Path
    data_yaml: Path
    run_dir: Path
    arguments: Mapping[str, object]
    threads: int
    run_id: str
    sample_epochs: int = 0
    sample_count: int = 0

    @property
    def epochs(self) -> int:
        """Epochs planned."""
        return int(str(self.arguments["epochs"]))


@dataclass(frozen=True)
class Ears:
    """Who hears of a training.

    `observe` gets the events, each epoch once; `heard` are epochs that it knows from before. `resumed` is told each
    time that the training goes on.
    """

    observe: Observer
    say: Callable[[str], None]
    resumed: Callable[[RecoveryState], None]
    heard: Set[int]


class Supervisor:
    """Runs one training in as many processes as it takes; `command` starts one."""

    def __init__(self, plan: Plan, config: RecoveryConfig, ears: Ears, command: Sequence[str] = CHILD) -> None:
        self._plan, self._config, self._ears, self._command = plan, config, ears, command
        self._heard, self._say = set(ears.heard), ears.say
        self._failed: Failed | None = None
        self._finished: Finished | None = None

    def run(self, state: RecoveryState, cause: Cause | None = None) -> Trained:
        """Train to the end.

        `cause` is what ended an earlier process that had begun this training. Raises TrainingError when it cannot go
        on, with the cause, the last epoch and how to resume.
        """
        try:
            return self._run(state, cause)
        except OSError as error:  # its own files
            if not is_disk_full(error):
                raise
            raise self._given_up(Cause("disk_full", disk_words(self._plan.run_dir)), FINAL["disk_full"]) from error

    def _run(self, state: RecoveryState, cause: Cause | None) -> Trained:
        used = 0
        while True:
            checkpoint = self._go_back()
            if cause is not None:
                state = self._resumed(state, cause, checkpoint)
            state = state.with_(last_good=_name(self._plan.run_dir, checkpoint))
            write_state(self._plan.run_dir, state)
            ending = self._attempt(state, checkpoint)
            if self._finished is not None and ending.returncode == 0:
                return self._ended_well(state, self._finished)
            cause = cause_of(ending, self._failed)
            following = next_state(state, cause, self._config, used)
            if isinstance(following, str):
                with suppress(OSError):  # a full disk
                    write_state(self._plan.run_dir, state.with_(given_up=cause.words))
                raise self._given_up(cause, following)
            state, used = following, used + 1

    def _go_back(self) -> Checkpoint | None:
        """To the last good checkpoint; epochs up to it that nobody heard of are told now."""
        found = newest_whole(self._plan.run_dir)
        for file in found.damaged:
            self._say(f"{file} is not what was saved: it is passed over")
        go_back_to(self._plan.run_dir, found.checkpoint)
        for record in history(self._plan.run_dir):
            self._tell(record.done)
        return found.checkpoint

    def _resumed(self, state: RecoveryState, cause: Cause, checkpoint: Checkpoint | None) -> RecoveryState:
        resume = Resume(cause=cause.words, first_epoch=checkpoint.epoch + 1 if checkpoint else 1)
        state = state.with_(resumes=(*state.resumes, resume), given_up=None)
        how = f"batch {state.batch}, learning rate x {state.lr_factor:g}"
        self._say(
            f"resume {len(state.resumes)} at epoch {resume.first_epoch} of {self._plan.epochs} ({how}): {cause.words}"
        )
        self._ears.resumed(state)
        return state

    def _attempt(self, state: RecoveryState, checkpoint: Checkpoint | None) -> Ending:
        self._failed = self._finished = None
        file = self._plan.run_dir / ORDER_FILE
        write_atomically(file, order_of(self._plan, state, checkpoint).to_json())
        patience = Patience(self._config.start_s, self._config.stuck_s)
        return run_process([*self._command, str(file)], self._hear, self._say, patience)

    def _hear(self, message: Message) -> None:
        if isinstance(message, Failed):
            self._failed = message
        elif isinstance(message, Finished):
            self._finished = message
        elif isinstance(message, EpochDone):
            self._tell(message)
        elif not isinstance(message, Pulse):
            self._ears.observe(message)

    def _tell(self, done: EpochDone) -> None:
        if done.epoch not in self._heard:
            self._heard.add(done.epoch)
            self._ears.observe(done)

    def _ended_well(self, state: RecoveryState, finished: Finished) -> Trained:
        trained = Trained(
            weights=finished.weights, weights_sha256=hash_file(finished.weights).sha256,
            class_names=finished.class_names, epochs=finished.epochs,
        )  # fmt: skip
        write_state(self._plan.run_dir, state.with_(trained=trained))
        return trained

    def _given_up(self, cause: Cause, action: str) -> TrainingError:
        last = max(self._heard, default=0)
        how = f"last epoch {last} of {self._plan.epochs}; resume with: passline resume {self._plan.run_id}"
        return TrainingError(Problem("training", "a finished training", f"{cause.words}; {how}", action))


def order_of(plan: Plan, state: RecoveryState, checkpoint: Checkpoint | None) -> TrainingOrder:
    """What a process is told that begins the training, or goes on from a checkpoint of it."""
    return TrainingOrder.model_validate(
        {
            "parent_pid": os.getpid(),
            "home": plan.home.absolute(),
            "model": weights_file(plan.run_dir, checkpoint.epoch).absolute() if checkpoint else plan.model,
            "resume": checkpoint is not None,
            "data_yaml": plan.data_yaml,
            "run_dir": plan.run_dir.absolute(),
            "arguments": {**plan.arguments, "batch": state.batch},
            "threads": plan.threads,
            "lr_factor": state.lr_factor,
            "sample_epochs": plan.sample_epochs,
            "sample_count": plan.sample_count,
        }
    )


def _name(run_dir: Path, checkpoint: Checkpoint | None) -> str | None:
    return weights_file(run_dir, checkpoint.epoch).name if checkpoint else None
