"""Load for an inspection server: what to send and when, what came back, and the process that sends it.

Closed loop: each client sends its next picture when it has its answer. Open loop: pictures are due at times that are
fixed beforehand, and latency counts from the time at which a picture was due, so that a server that stalls also pays
for what it kept from being sent.

The sender is a process of its own: it shares an interpreter lock with nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from benchmarks.answers import Boxes, check_answer
from benchmarks.load_loop import Answered, ClosedLoop, OpenLoop, Sender, run_loop

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Target:
    """Where pictures go."""

    port: int
    path: str = "/v1/inspect"
    host: str = "127.0.0.1"


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures that are sent in turn, and the boxes that belong to each; no boxes, no check of the answers."""

    bodies: tuple[bytes, ...]
    expected: tuple[Boxes, ...] = ()

    def __post_init__(self) -> None:
        if self.expected and len(self.expected) != len(self.bodies):
            raise ValueError(f"expected boxes for {len(self.bodies)} pictures, got {len(self.expected)}")


@dataclass(frozen=True, eq=False)
class LoadResult:
    """Answers in the order in which they came; times in seconds since the first picture was due."""

    latencies_s: Times
    answered_at_s: Times
    statuses: dict[int, int]
    wrong: int
    """Answers with status 200 that do not belong to their picture."""
    last_sent_at_s: float
    clients: int
    sender_cpu_s: float

    @property
    def count(self) -> int:
        """Answers of any status; 0 stands for a connection that broke."""
        return sum(self.statuses.values())

    @property
    def failed(self) -> int:
        """Requests without a right answer."""
        return self.count - self.statuses.get(200, 0) + self.wrong

    def percentile_ms(self, percent: float) -> float:
        """Latency that `percent` of the answers do not exceed."""
        return float(np.percentile(self.latencies_s, percent)) * 1000

    @property
    def throughput_per_s(self) -> float:
        """Answers per second while all clients were busy: after each had one answer, until nothing more was sent."""
        times = self.answered_at_s
        return slope_per_s(times[self.clients :][times[self.clients :] <= self.last_sent_at_s])

    @property
    def sender_share(self) -> float:
        """Share of one core that the sender took."""
        return self.sender_cpu_s / float(self.answered_at_s[-1]) if len(self.answered_at_s) else 0.0


def slope_per_s(times: Times) -> float:
    """Events per second: the slope of the straight line through (time, number of the event).

    Unlike count over time it hardly depends on where the ends lie, which matters when answers come in batches.

    >>> round(slope_per_s(np.array([1.0, 1.5, 2.0, 2.5])), 6)
    2.0
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return float("nan")
    centred = times - times.mean()
    numbers = np.arange(len(times)) - (len(times) - 1) / 2
    return float((centred * numbers).sum() / (centred * centred).sum())


def takt_schedule(lines: int, takt_s: float, seconds: float) -> Times:
    """When pictures are due: `lines` cameras, each with one picture per `takt_s`, evenly out of step.

    >>> takt_schedule(lines=2, takt_s=1.0, seconds=2.0).tolist()
    [0.0, 0.5, 1.0, 1.5]
    """
    phases = np.arange(lines) * (takt_s / lines)
    due = (phases[:, None] + np.arange(0, seconds, takt_s)[None]).ravel()
    return np.sort(due[due < seconds])


def poisson_schedule(rate_per_s: float, seconds: float, seed: int) -> Times:
    """When pictures are due that arrive independently of each other."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / rate_per_s, int(rate_per_s * seconds * 2) + 20)
    due = np.cumsum(gaps)
    return due[due < seconds]


def run_closed(target: Target, pictures: Pictures, clients: int, requests: int) -> LoadResult:
    """Send `requests` pictures from `clients` connections, each as soon as it has its answer."""
    return _run(target, pictures, ClosedLoop(clients, requests), clients)


def run_open(target: Target, pictures: Pictures, due_s: Times, connections: int = 4) -> LoadResult:
    """Send pictures when they are due; more connections are opened when all are waiting."""
    return _run(target, pictures, OpenLoop(due_s, connections), 0)


def _run(target: Target, pictures: Pictures, loop: ClosedLoop | OpenLoop, clients: int) -> LoadResult:
    sender = Sender((target.host, target.port), [request_bytes(target, body) for body in pictures.bodies])
    answered, sent_at_s, cpu_s = run_loop(sender, loop)
    return result_of(answered, pictures, sent_at_s, clients, cpu_s)


def request_bytes(target: Target, body: bytes) -> bytes:
    """A whole POST request."""
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def result_of(
    answered: Sequence[Answered], pictures: Pictures, last_sent_at_s: float, clients: int, cpu_s: float
) -> LoadResult:
    """Count and check what came back. The check is after the load, so that it takes nothing from it."""
    statuses: dict[int, int] = {}
    for one in answered:
        statuses[one.status] = statuses.get(one.status, 0) + 1
    wrong = sum(
        one.status == 200 and not check_answer(one.body, pictures.expected[one.picture])
        for one in (answered if pictures.expected else ())
    )
    return LoadResult(
        latencies_s=np.array([one.at_s - one.due_s for one in answered]),
        answered_at_s=np.array([one.at_s for one in answered]),
        statuses=statuses,
        wrong=wrong,
        last_sent_at_s=last_sent_at_s,
        clients=clients,
        sender_cpu_s=cpu_s,
    )


class Loader:
    """Runs loads in a process of its own, one at a time; it sleeps between them."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def closed(self, target: Target, pictures: Pictures, clients: int, requests: int) -> LoadResult:
        """`run_closed` there."""
        return self._pool.submit(run_closed, target, pictures, clients, requests).result()

    def open(self, target: Target, pictures: Pictures, due_s: Times, connections: int = 4) -> LoadResult:
        """`run_open` there."""
        return self._pool.submit(run_open, target, pictures, due_s, connections).result()


@contextmanager
def loader() -> Iterator[Loader]:
    """A loader; its process ends with the block."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield Loader(pool)
