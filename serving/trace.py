"""How long the stages of a request take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter


@dataclass(eq=False)
class Trace:
    """Times of one request, or of one picture of it, in seconds per stage."""

    request_id: str
    started: float = field(default_factory=perf_counter)
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; it counts also when it fails, and adds up when it comes in parts."""
        started = perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + perf_counter() - started

    def milliseconds(self) -> dict[str, float]:
        """Per stage, and `total` since the request arrived."""
        seconds = {**self.stages, "total": perf_counter() - self.started}
        return {name: round(value * 1000, 3) for name, value in seconds.items()}

    def of_picture(self, index: int) -> Trace:
        """The trace of one picture of several, under an id of its own."""
        return Trace(f"{self.request_id}.{index}", self.started)
