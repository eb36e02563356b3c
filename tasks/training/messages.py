"""How a training process speaks: one JSON object per line, an event or one of three words of its own.

A line that is torn or unknown says nothing: its writer may have been killed in the middle of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tasks.training.events import BatchDone, EpochDone, Event, SamplesDrawn, Started

FailureKind = Literal["killed", "ended", "stuck", "not_finite", "out_of_memory", "disk_full", "data", "refused"]


@dataclass(frozen=True)
class Pulse:
    """The process is alive and at work where no batch of an epoch is done: it validates."""


@dataclass(frozen=True)
class Failed:
    """The last word of a training that could not go on."""

    kind: FailureKind
    words: str


@dataclass(frozen=True)
class Finished:
    """The last word of a training that came to its end. Class names are in id order."""

    weights: Path
    class_names: tuple[str, ...]
    epochs: int


Message = Event | Pulse | Failed | Finished
Send = Callable[[Message], None]

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Started, BatchDone, EpochDone, SamplesDrawn, Pulse, Failed, Finished)
}


def encode(message: Message) -> bytes:
    """One line.

    >>> encode(BatchDone(epoch=1, batch=2, batches=9))
    b'{"type": "BatchDone", "epoch": 1, "batch": 2, "batches": 9}\\n'
    """
    return json.dumps({"type": type(message).__name__, **asdict(message)}, default=str).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """The message of a line; None where it is torn or of no known type."""
    try:
        fields = json.loads(line)
        adapter = _ADAPTERS[fields.pop("type")]
        message: Message = adapter.validate_python(fields)
    except (ValueError, KeyError, AttributeError, TypeError, ValidationError):
        return None
    return message


class Lines:
    """Splits bytes as they come into whole lines; what is not ended yet waits for its end."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole
