"""One engine call for waiting pictures: every answer is tied to its picture, and none is made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from data_contracts.errors import EngineError
from serving.batch_items import BatchAnswer, Item, Predict, Tensor

Outcome = BatchAnswer | Exception


@dataclass(frozen=True, slots=True)
class Called:
    """An engine call that was made for `items`: an output for each, in their order, or why there is none.

    `failed` are those that could not be made ready, and so were no part of the call. `concluded` are the outcomes of
    pictures that were concluded by the engine's thread.
    """

    items: Sequence[Item]
    outputs: Tensor | None
    failure: EngineError | None
    failed: Sequence[tuple[Item, Exception]]
    started_at: float
    infer_s: float
    concluded: Sequence[Outcome] | None = None

    @property
    def size(self) -> int:
        """Pictures that the engine answered."""
        return len(self.items) if self.outputs is not None else 0

    def outcomes(self) -> Iterator[tuple[Item, Outcome]]:
        """What becomes of each picture. The engine's thread leaves this to the event loop: it has a call to make."""
        yield from self.failed
        if self.failure is not None:
            yield from ((item, self.failure) for item in self.items)
        elif self.outputs is not None:
            yield from zip(self.items, self.concluded or answers(self), strict=True)


def answers(called: Called) -> list[BatchAnswer]:
    """One answer per picture of a call that the engine answered."""
    assert called.outputs is not None  # noqa: S101  (asked only then)
    size, started_at, infer_s = len(called.items), called.started_at, called.infer_s
    return [
        BatchAnswer(item.token, output, size, started_at - item.arrived_at, infer_s)
        for item, output in zip(called.items, called.outputs, strict=True)
    ]


def run_call(predict: Predict, items: Sequence[Item]) -> Called:
    """Make the pictures ready, call the engine once for all, conclude.

    Whatever the engine raises becomes an EngineError that belongs to each of them.
    """
    started_at = monotonic()
    ready, tensors, failed = _prepared(items)
    outputs, failure, infer_s = None, None, 0.0
    if ready:
        try:
            batch = _stack(tensors)
            called_at = monotonic()
            outputs = predict(batch)
            infer_s = monotonic() - called_at
            if len(outputs) != len(ready):
                failure = EngineError(f"the engine answered {len(outputs)} of {len(ready)} pictures")
        except EngineError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  (an engine may raise anything, and its thread must live on)
            failure = EngineError(f"the engine failed: {error!r}")
    called = Called(ready, None if failure else outputs, failure, failed, started_at, infer_s)
    return called if called.outputs is None else _conclude(called)


def _prepared(items: Sequence[Item]) -> tuple[list[Item], list[Tensor], list[tuple[Item, Exception]]]:
    ready: list[Item] = []
    tensors: list[Tensor] = []
    failed: list[tuple[Item, Exception]] = []
    for item in items:
        if isinstance(item.picture, np.ndarray):
            tensor = item.picture
        else:
            try:
                tensor = item.picture.prepare()
            except Exception as error:  # noqa: BLE001  (whatever is wrong with a picture belongs to its sender)
                failed.append((item, error))
                continue
        ready.append(item)
        tensors.append(tensor)
    return ready, tensors, failed


def _conclude(called: Called) -> Called:
    """Conclude the pictures that want it; a call that has none stays as it is."""
    if all(isinstance(item.picture, np.ndarray) for item in called.items):
        return called
    concluded: list[Outcome] = []
    for item, answer in zip(called.items, answers(called), strict=True):
        outcome: Outcome = answer
        if not isinstance(item.picture, np.ndarray):
            try:
                item.picture.conclude(answer)
            except Exception as error:  # noqa: BLE001  (an output that no model can give belongs to its picture)
                outcome = error
        concluded.append(outcome)
    return Called(called.items, called.outputs, None, called.failed, called.started_at, called.infer_s, concluded)


def _stack(tensors: list[Tensor]) -> Tensor:
    """Tensors of one shape as a batch. One is not copied; for more this takes a tenth of the time of numpy.stack."""
    shape = tensors[0].shape
    if len(tensors) == 1:
        return tensors[0][None]
    if any(tensor.shape != shape for tensor in tensors):
        raise EngineError(f"pictures of one call: expected one shape, got {sorted({one.shape for one in tensors})}")
    return np.concatenate(tensors).reshape(-1, *shape)
