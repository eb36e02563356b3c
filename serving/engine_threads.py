"""Threads that pull work for an engine.

A thread that finished a call takes the next one itself, without a round over the event loop: the engine does not stand
still while the loop is busy with bodies and answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

W = TypeVar("W")

LINGER_S = 10.0
FOREVER = float("inf")


class EngineThreads(Generic[W]):
    """Up to `streams` threads, started when there is work and ended when there was none for a while.

    take: called with `lock` held and the stream's number; gives work, or the seconds after which to ask again
    (infinite: when woken). run: called without the lock. Threads end by themselves, so that a queue that is dropped
    without being closed leaves neither a thread nor a loaded model behind.
    """

    def __init__(
        self, streams: int, lock: threading.Lock, take: Callable[[int], W | float], run: Callable[[int, W], None]
    ) -> None:
        self._lock, self._take, self._run = lock, take, run
        self._unused = list(range(streams))
        self._parked: list[SimpleQueue[None]] = []
        self._closed = False

    def wake(self) -> None:
        """Have one thread look for work. Called with the lock held."""
        if self._parked:
            self._parked.pop().put(None)
        elif self._unused:
            stream = self._unused.pop()
            threading.Thread(target=self._work, args=(stream,), name=f"engine-{stream}", daemon=True).start()

    def close(self) -> None:
        """Let threads end as soon as they find nothing to do. Called with the lock held."""
        self._closed = True
        while self._parked:
            self._parked.pop().put(None)

    def _work(self, stream: int) -> None:
        mailbox: SimpleQueue[None] = SimpleQueue()
        while True:
            with self._lock:
                work = self._take(stream)
                if isinstance(work, float):
                    if self._closed and work == FOREVER:
                        self._unused.append(stream)
                        return
                    self._parked.append(mailbox)
            if not isinstance(work, float):
                self._run(stream, work)
                del work  # a parked thread must not keep the pictures of its last call
            elif not self._rest(stream, mailbox, work):
                return

    def _rest(self, stream: int, mailbox: SimpleQueue[None], pause_s: float) -> bool:
        """Wait to be woken, `pause_s` at most; False when there was no work for so long that the thread ends."""
        try:
            mailbox.get(timeout=min(pause_s, LINGER_S))
        except Empty:
            with self._lock:
                if mailbox not in self._parked:  # it was woken in this moment
                    mailbox.get_nowait()
                    return True
                self._parked.remove(mailbox)
                if pause_s > LINGER_S:
                    self._unused.append(stream)
                    return False
        return True
