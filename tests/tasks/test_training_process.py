from __future__ import annotations

import errno
import math
import os
import sys
import time
from pathlib import Path

import pytest

from data_contracts.errors import Problem
from tasks.training.child import failure_of
from tasks.training.events import BatchDone, EpochDone, SamplesDrawn, Started
from tasks.training.messages import Failed, Finished, Lines, Message, Pulse, decode, encode
from tasks.training.order import TrainingOrder
from tasks.training.process import Ending, Patience, run_process
from tasks.yolo import TrainingError
from training_fakes import is_running

CALM = Patience(start_s=60, stuck_s=60)
PREAMBLE = "import os, sys, time; say = lambda line: os.write(int(sys.argv[1]), line.encode()); "
BATCH = '{"type": "BatchDone", "epoch": 1, "batch": 1, "batches": 2}'


@pytest.mark.parametrize(
    "message",
    [
        Started(7, 40, 3), BatchDone(1, 2, 3), EpochDone(1, 2, {"a": 0.5}, 1.5), SamplesDrawn(2, Path("x/y.jpg")),
        Pulse(), Failed("killed", "why\nand how"), Finished(Path("best.pt"), ("scratch", "Beule ü"), 4),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_a_message_comes_back(message: Message):
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_a_metric_that_is_no_number_comes_back():
    back = decode(encode(EpochDone(1, 2, {"loss": math.nan}, 1.0)))
    assert isinstance(back, EpochDone)
    assert math.isnan(back.metrics["loss"])


@pytest.mark.parametrize(
    "line", [b"", b"{", b'{"type": "Bat', b'{"type": "Other"}', b"[]", b"3", b'{"type": "Failed"}']
)
def test_a_line_that_is_torn_or_unknown_says_nothing(line: bytes):
    assert decode(line) is None


def test_lines_are_whole_however_they_come():
    lines = Lines()
    assert [lines.feed(part) for part in (b"on", b"e\ntwo\nth", b"", b"ree\n")] == [
        [],
        [b"one", b"two"],
        [],
        [b"three"],
    ]


def run(program: str, patience: Patience = CALM) -> tuple[Ending, list[Message], list[str]]:
    """Run a Python program that may say(line); returns its ending, messages and output."""
    heard: list[Message] = []
    said: list[str] = []
    ending = run_process([sys.executable, "-c", PREAMBLE + program], heard.append, said.append, patience)
    return ending, heard, said


def test_messages_and_output_arrive_and_the_end_is_known():
    ending, heard, said = run(
        rf"say('{BATCH}\n'); say('{{\"type\": \"Pu'); print('a line'); print('more'); sys.exit(3)"
    )
    assert ending == Ending(3, None, ("a line", "more"))
    assert heard == [BatchDone(1, 1, 2)]
    assert said == ["a line", "more"]


def test_a_signal_is_known_and_nothing_of_the_group_is_left(tmp_path: Path):
    note = tmp_path / "pid"
    program = (
        f"import subprocess; p = subprocess.Popen(['sleep', '600']); open({str(note)!r}, 'w').write(str(p.pid)); "
        "os.kill(os.getpid(), 9)"
    )
    ending, _, _ = run(program)
    assert ending.returncode == -9
    deadline = time.monotonic() + 30
    while is_running(int(note.read_text())):
        assert time.monotonic() < deadline, "a child of the child outlived it"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("program", "patience"),
    [
        pytest.param("time.sleep(600)", Patience(start_s=0.5, stuck_s=600), id="before the first batch"),
        pytest.param(rf"say('{BATCH}\n'); time.sleep(600)", Patience(start_s=600, stuck_s=0.5), id="after it"),
        pytest.param(
            rf"say('{BATCH}\n'); [print(n, flush=True) or time.sleep(0.1) for n in range(6000)]",
            Patience(start_s=600, stuck_s=0.5), id="talking is no sign of life",
        ),
    ],
)  # fmt: skip
def test_silence_has_an_end(program: str, patience: Patience):
    ending, _, _ = run(program, patience)
    assert ending.returncode == -9
    assert ending.silent_s is not None
    assert ending.silent_s > 0.5


def test_a_child_ends_when_hearing_it_fails():
    seen: list[int] = []

    def fail(message: Message) -> None:
        assert isinstance(message, Started)
        seen.append(message.pid)
        raise ValueError("no more")

    started = '{"type": "Started", "pid": %d, "epochs": 1, "first_epoch": 1}'
    program = PREAMBLE + rf"say('{started}\n' % os.getpid()); time.sleep(600)"
    with pytest.raises(ValueError, match="no more"):
        run_process([sys.executable, "-c", program], fail, print, CALM)
    assert not is_running(seen[0])


ORDER = TrainingOrder(
    parent_pid=os.getpid(), home=Path("/h"), model=Path("/m.yaml"), resume=False, data_yaml=Path("/d"),
    run_dir=Path("/"), arguments={"epochs": 3, "batch": 8}, threads=0, lr_factor=1.0, sample_epochs=0, sample_count=0,
)  # fmt: skip


def wrapped(words: str) -> Exception:
    """An error of torch's as the adapter of Ultralytics raises it."""
    outer = TrainingError(Problem("training", "a finished training", words, "See the log above."))
    outer.__cause__ = RuntimeError(words)
    return outer


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left"), "disk_full", "no space left on the disk of /", id="disk"),
        pytest.param(OSError(errno.EDQUOT, "Quota"), "disk_full", "MiB free", id="quota"),
        pytest.param(
            wrapped("PytorchStreamWriter failed writing file data/0"), "disk_full", "MiB", id="torch's writer"
        ),
        pytest.param(MemoryError(), "out_of_memory", "with a batch of 8", id="Python's memory"),
        pytest.param(wrapped("CUDA out of memory. Tried"), "out_of_memory", "Tried", id="GPU memory"),
        pytest.param(wrapped("DefaultCPUAllocator: can't allocate memory: you"), "out_of_memory", "you", id="torch's"),
        pytest.param(wrapped("DataLoader worker (pid 7) is killed by signal"), "ended", "pid 7", id="a loader"),
        pytest.param(wrapped("CUDA error: an illegal memory access"), "ended", "illegal", id="GPU fault"),
        pytest.param(wrapped("Dataset 'x' error"), "refused", "RuntimeError: Dataset", id="wrong data.yaml"),
        pytest.param(KeyError("names"), "refused", "KeyError: 'names'", id="anything else"),
    ],
)
def test_what_an_error_means(error: Exception, kind: str, words: str):
    failed = failure_of(error, ORDER)
    assert failed.kind == kind
    assert words in failed.words
