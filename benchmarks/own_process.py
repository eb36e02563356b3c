"""Run a function in a fresh process: what it loads, or leaves running, does not touch what is measured here."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from data_contracts.errors import OutsideSystemError

T = TypeVar("T")


def in_own_process(function: Callable[..., T], *arguments: Any, limit_s: float | None = None) -> T:
    """The function's result, or its error. Function, arguments and result must be picklable.

    Raises OutsideSystemError when the process dies, or has not ended within `limit_s` and is killed.
    """
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_work, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            raise OutsideSystemError(f"{function.__name__}: no result within {limit_s:.0f} s")
        result, error = ours.recv()
    except EOFError:
        process.join()
        raise OutsideSystemError(f"{function.__name__}: its process ended with status {process.exitcode}") from None
    finally:
        ours.close()
        process.join(0 if limit_s is not None else 5.0)
        process.kill()
        process.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _work(answer: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        answer.send((function(*arguments), None))
    except Exception as error:  # noqa: BLE001  (whatever it is, it belongs to the caller)
        answer.send((None, error))
