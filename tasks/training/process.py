"""A child process that is listened to until it ends, and that leaves nothing running behind.

It is the head of a process group of its own: its loader processes end with it, and Ctrl-C in a terminal reaches it
through its parent only. A child that falls silent for too long is killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tasks.training.events import BatchDone
from tasks.training.messages import Lines, Message, decode

POLL_S = 0.2
TAIL_LINES = 12


@dataclass(frozen=True)
class Patience:
    """Longest silence, seconds: before the first batch (loading, scanning the pictures) and from then on."""

    start_s: float
    stuck_s: float


@dataclass(frozen=True)
class Ending:
    """How a process ended: its return code as `subprocess` gives it, seconds of silence when it was killed for them."""

    returncode: int
    silent_s: float | None
    tail: tuple[str, ...]


def run_process(
    command: Sequence[str], hear: Callable[[Message], None], say: Callable[[str], None], patience: Patience
) -> Ending:
    """Run `command` with the number of the descriptor for its messages as one more argument; returns when it ended.

    What it prints goes to `say` line by line, what it reports to `hear`.
    """
    with _started(command) as (process, messages):
        ears = _Ears(process, messages, hear, say)
        silent_s = ears.listen(patience)
    return Ending(process.wait(), silent_s, tuple(ears.tail))


@contextmanager
def _started(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    reading, writing = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [*command, str(writing)], pass_fds=(writing,), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        finally:
            os.close(writing)
        with process:
            try:
                yield process, reading
            finally:
                kill_group(process.pid)
    finally:
        os.close(reading)


def kill_group(pid: int) -> None:
    """End a process group at once; nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Ears:
    """Listens to both pipes of a child."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        messages: int,
        hear: Callable[[Message], None],
        say: Callable[[str], None],
    ) -> None:
        assert process.stdout is not None  # noqa: S101  a pipe was asked for
        self._process, self._hear, self._say = process, hear, say
        self._under_way = False
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._selector = selectors.DefaultSelector()
        self._selector.register(messages, selectors.EVENT_READ, (Lines(), self._message))
        self._selector.register(process.stdout, selectors.EVENT_READ, (Lines(), self._print))

    def listen(self, patience: Patience) -> float | None:
        """Until the child ended, or was silent for too long: then the seconds of its silence."""
        heard = time.monotonic()
        with self._selector:
            while True:
                ready = self._selector.select(POLL_S)
                for key, _ in ready:
                    self._take(key)
                silent_s = time.monotonic() - heard
                if any(key.data[1] == self._message for key, _ in ready):
                    heard = time.monotonic()  # what a server that is away made us wait is no silence of the child
                elif not ready and self._process.poll() is not None:
                    return None
                elif silent_s > (patience.stuck_s if self._under_way else patience.start_s):
                    return silent_s

    def _take(self, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, 65536)
        lines, take = key.data
        for line in lines.feed(data or b"\n"):
            take(line)
        if not data:
            self._selector.unregister(key.fileobj)

    def _message(self, line: bytes) -> None:
        message = decode(line)
        if message is not None:
            self._under_way |= isinstance(message, BatchDone)
            self._hear(message)

    def _print(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            self.tail.append(text)
            self._say(text)
