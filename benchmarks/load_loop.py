"""HTTP/1.1 over plain sockets in one thread, made to cost little: bytes prepared beforehand, kept connections."""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.http_answer import BROKEN, status_and_body, whole_length
from data_contracts.errors import OutsideSystemError, Problem

SEND_BUFFER = 2**20
GIVE_UP_S = 60.0
CONNECT_S = 10.0
_IN, _OUT = select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT


@dataclass(frozen=True, eq=False)
class Answered:
    """One request that came to an end."""

    picture: int
    status: int
    body: bytes
    due_s: float
    at_s: float


class ClosedLoop:
    """Whoever has an answer sends the next picture at once."""

    def __init__(self, clients: int, requests: int) -> None:
        self.connections, self.total = clients, requests

    def next_due_s(self, sent: int) -> float | None:
        """When number `sent` is due: now, as long as there are any."""
        return 0.0 if sent < self.total else None

    opens_more = False


class OpenLoop:
    """Pictures are due at given times."""

    def __init__(self, due_s: npt.NDArray[np.float64], connections: int) -> None:
        self.connections, self.total = connections, len(due_s)
        self._due_s = due_s.tolist()

    def next_due_s(self, sent: int) -> float | None:
        """When number `sent` is due."""
        return self._due_s[sent] if sent < self.total else None

    opens_more = True


def _connect(address: tuple[str, int]) -> socket.socket:
    """A connection; a server that starts again gets some time. Raises OutsideSystemError."""
    give_up_s = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_S)
        except OSError as error:
            if time.monotonic() > give_up_s:
                words = f"{error} for {CONNECT_S:g} s"
                raise OutsideSystemError(
                    Problem(f"server at port {address[1]}", "a connection", words, "See its log.")
                ) from None
            time.sleep(0.02)


class _Connection:
    """One kept connection with at most one request under way."""

    def __init__(self, address: tuple[str, int], poll: select.epoll) -> None:
        self._address, self._poll = address, poll
        self.picture, self.due_s = -1, 0.0
        self._left = memoryview(b"")
        self._read = bytearray()
        self._need = -1
        self._watched = 0
        self._open()

    def _open(self) -> None:
        self.socket = _connect(self._address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.socket.settimeout(0)
        self.fd = self.socket.fileno()
        self._poll.register(self.fd, _IN)
        self._watched = _IN

    def close(self) -> None:
        self._poll.unregister(self.fd)
        self.socket.close()

    def send(self, request: bytes, picture: int, due_s: float) -> None:
        self.picture, self.due_s = picture, due_s
        self._left = memoryview(request)
        self._read.clear()
        self._need = -1
        self.push()

    def push(self) -> None:
        """Write what the socket takes; ask to be told when it takes more."""
        try:
            while self._left:
                self._left = self._left[self.socket.send(self._left) :]
        except BlockingIOError:
            pass
        except OSError:
            self._left = memoryview(b"")  # reading will find the broken connection
        wanted = _IN | (_OUT if self._left else 0)
        if wanted != self._watched:
            self._poll.modify(self.fd, wanted)
            self._watched = wanted

    def pull(self) -> tuple[int, bytes] | None:
        """Read; status and body of the answer once it is whole."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return None
        except OSError:
            return BROKEN, b""
        if not data:
            return BROKEN, b""
        self._read += data
        if self._need < 0:
            self._need = whole_length(self._read)
        if self._need < 0 or len(self._read) < self._need:
            return None
        return status_and_body(bytes(self._read[: self._need]))


class Sender:
    """The connections to one server and the requests that go over them in turn."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes]) -> None:
        self._address, self._requests = address, requests
        self._poll = select.epoll()
        self._all: dict[int, _Connection] = {}
        self.free: deque[_Connection] = deque()

    def add(self) -> None:
        """Open one more connection."""
        connection = _Connection(self._address, self._poll)
        self._all[connection.fd] = connection
        self.free.append(connection)

    def send(self, number: int, due_s: float) -> None:
        """Send the picture whose turn it is, over the connection that is free for longest."""
        picture = number % len(self._requests)
        self.free.popleft().send(self._requests[picture], picture, due_s)

    def answers(self, wait_s: float) -> Iterator[tuple[_Connection, int, bytes]]:
        """What comes in within `wait_s`. A broken connection is replaced."""
        for fd, events in self._poll.poll(wait_s):
            connection = self._all[fd]
            if events & _OUT:
                connection.push()
            if not events & ~_OUT:
                continue
            found = connection.pull()
            if found is None:
                continue
            yield connection, *found
            if found[0] == BROKEN:
                self._drop(connection)
            else:
                self.free.append(connection)

    def _drop(self, connection: _Connection) -> None:
        waiting = connection in self.free
        if waiting:
            self.free.remove(connection)
        del self._all[connection.fd]
        connection.close()
        self.add()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._all.values():
            connection.close()
        self._poll.close()


def run_loop(sender: Sender, loop: ClosedLoop | OpenLoop) -> tuple[list[Answered], float, float]:
    """Send all, await all: the answers, when the last picture was sent, and the CPU seconds that it took.

    Times are in seconds since the start. What is unanswered after GIVE_UP_S without any answer counts as broken.
    """
    answered: list[Answered] = []
    try:
        for _ in range(loop.connections):
            sender.add()
        cpu, started = time.process_time(), time.perf_counter()
        last_sent_s = _exchange(sender, loop, started, answered)
        return answered, last_sent_s, time.process_time() - cpu
    finally:
        sender.close()


def _exchange(sender: Sender, loop: ClosedLoop | OpenLoop, started: float, answered: list[Answered]) -> float:
    sent, last_sent_s, last_answer_s = 0, 0.0, 0.0
    while len(answered) < loop.total:
        now_s = time.perf_counter() - started
        due_s = loop.next_due_s(sent)
        if due_s is not None and due_s <= now_s:
            if not sender.free and loop.opens_more:
                sender.add()
            if sender.free:
                sender.send(sent, due_s if loop.opens_more else now_s)
                sent, last_sent_s = sent + 1, now_s
                continue
        for connection, status, body in sender.answers(_wait_s(due_s, now_s, bool(sender.free) or loop.opens_more)):
            last_answer_s = time.perf_counter() - started
            if connection.picture >= 0:
                answered.append(Answered(connection.picture, status, body, connection.due_s, last_answer_s))
            connection.picture = -1
        if now_s - max(last_answer_s, last_sent_s) > GIVE_UP_S:
            lost = loop.total - len(answered)
            answered += [Answered(0, BROKEN, b"", last_sent_s, now_s) for _ in range(lost)]
    return last_sent_s


def _wait_s(due_s: float | None, now_s: float, can_send: bool) -> float:
    """How long to listen: `poll` rounds up to milliseconds, so the last part of one is spent polling."""
    if due_s is None or not can_send:
        return 1.0
    whole_ms = math.floor((due_s - now_s) * 1000)
    return max(whole_ms - 0.1, 0.0) / 1000
