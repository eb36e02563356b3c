"""The training process: `python -m tasks.training.child ORDER DESCRIPTOR`.

ORDER is the file that says what to train, DESCRIPTOR the number of the open file that its messages go to. It ends with
its parent, whatever becomes of that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

from tasks import yolo
from tasks.training.messages import Failed, Finished, Message, Send, encode
from tasks.training.order import TrainingOrder
from tasks.training.recovery import disk_words, is_disk_full
from tasks.training.reporter import Reporter

PR_SET_PDEATHSIG = 1
MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "cublas_status_alloc_failed")
CRASH_WORDS = ("dataloader worker", "cuda error")


def main(arguments: list[str]) -> int:
    """Train as ordered; the exit code says whether it came to its end."""
    order = TrainingOrder.model_validate_json(Path(arguments[0]).read_bytes())
    die_with(order.parent_pid)
    send = sender(int(arguments[1]))
    try:
        send(run(order, send))
    except BaseException as error:  # noqa: BLE001  whatever ends it is told to the parent, which decides
        traceback.print_exc()
        send(failure_of(error, order))
        return 1
    return 0


def die_with(parent_pid: int) -> None:
    """Have the kernel end this process when its parent ends (Linux); end now when that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def sender(descriptor: int) -> Send:
    """Writes messages to an open file."""

    def send(message: Message) -> None:
        data = encode(message)
        while data:
            data = data[os.write(descriptor, data) :]

    return send


def run(order: TrainingOrder, send: Send) -> Finished:
    """Train, reporting all the way."""
    yolo.configure_ultralytics(order.home)
    from tasks.training.trainer import Course, WatchedTrainer

    reporter = Reporter(order, send)
    trainer = partial(WatchedTrainer, course=Course(order.epochs, order.lr_factor, reporter.epoch_done))
    arguments = {**order.arguments, **({"resume": True, "save_dir": str(order.run_dir)} if order.resume else {})}
    best = yolo.train_yolo(
        order.model, order.data_yaml, order.run_dir, arguments, order.threads, lambda *_: None,
        trainer=trainer, callbacks=reporter.callbacks(),
    )  # fmt: skip
    return Finished(best, yolo.weights_class_names(best), reporter.epochs)


def failure_of(error: BaseException, order: TrainingOrder) -> Failed:
    """What an error means for how it goes on. Ultralytics' own words are below a TrainingError of ours."""
    root = error.__cause__ if isinstance(error, yolo.TrainingError) and error.__cause__ else error
    words, kind = f"{type(root).__name__}: {root}", type(root).__name__
    if kind == "NotFinite":
        return Failed("not_finite", str(root))
    if kind == "OtherData":
        return Failed("data", f"the training would see other data than it was given: {root}")
    if is_disk_full(root):
        return Failed("disk_full", disk_words(order.run_dir))
    if isinstance(root, MemoryError) or any(known in words.lower() for known in MEMORY_WORDS):
        return Failed("out_of_memory", f"out of memory with a batch of {order.arguments['batch']}: {root}")
    return Failed("ended" if any(known in words.lower() for known in CRASH_WORDS) else "refused", words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
