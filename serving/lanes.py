"""The waiting pictures: one bounded queue per lane, earliest deadline first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter

from serving.batch_items import Item, Lane

_deadline = attrgetter("expires_at")


class Lanes:
    """Each lane has its own bound, so that nothing lower ever takes an inspection's place."""

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self._waiting: dict[Lane, list[Item]] = {lane: [] for lane in Lane}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def count(self, lane: Lane) -> int:
        """How many wait in the lane."""
        return len(self._waiting[lane])

    def full(self, lane: Lane) -> bool:
        """Whether the lane takes no more."""
        return len(self._waiting[lane]) >= self._max_queue

    def first_lane(self) -> Lane | None:
        """The highest lane in which something waits."""
        return next((lane for lane, queue in self._waiting.items() if queue), None)

    def first(self, lane: Lane) -> Item:
        """What goes next in a lane that is not empty."""
        return self._waiting[lane][0]

    def deadlines_after(self, lane: Lane, expires_at: float) -> list[float]:
        """Deadlines of those that go after a newcomer with this one, growing."""
        queue = self._waiting[lane]
        if not queue or queue[-1].expires_at <= expires_at:
            return []
        return [item.expires_at for item in queue[bisect_right(queue, expires_at, key=_deadline) :]]

    def first_deadlines(self, lane: Lane, most: int) -> list[float]:
        """The deadlines of those that go next."""
        return [item.expires_at for item in self._waiting[lane][:most]]

    def push(self, item: Item) -> None:
        """Put it where its deadline belongs, after those with the same."""
        insort(self._waiting[item.lane], item, key=_deadline)

    def remove(self, item: Item) -> bool:
        """Take it out; False when it does not wait any more."""
        queue = self._waiting[item.lane]
        at = bisect_left(queue, item.expires_at, key=_deadline)
        while at < len(queue) and queue[at].expires_at == item.expires_at:
            if queue[at] is item:
                del queue[at]
                return True
            at += 1
        return False

    def take(self, lane: Lane, count: int) -> list[Item]:
        """The next `count` pictures of the lane."""
        queue = self._waiting[lane]
        taken = queue[:count]
        del queue[:count]
        return taken

    def drop_expired(self, now: float) -> None:
        """Forget those whose deadline has passed; whoever waits for them has a clock of their own."""
        for queue in self._waiting.values():
            if queue and queue[0].expires_at <= now:
                del queue[: bisect_right(queue, now, key=_deadline)]
