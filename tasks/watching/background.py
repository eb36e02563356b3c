"""Work beside a training: in a thread of its own, never in its way."""

from __future__ import annotations

import threading
from collections.abc import Callable

Say = Callable[[str], None]


class Background:
    """Calls `work` at once and then every `every_s` seconds, and once more at the end.

    Whatever fails is told once and tried again at the next turn: what only watches must not end what it watches.
    """

    def __init__(self, name: str, work: Callable[[], None], every_s: float, say: Say) -> None:
        self._name, self._work, self._every_s, self._say = name, work, every_s, say
        self._told, self._over = False, threading.Event()
        self._thread = threading.Thread(target=self._turns, name=name, daemon=True)
        self._thread.start()

    def close(self, patience_s: float) -> None:
        """End it after one last turn, or leave it to itself when that takes longer than `patience_s`."""
        self._over.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self._say(f"{self._name}: no answer for {patience_s:g} s, the last values are left out")

    def _turns(self) -> None:
        self._turn()
        while not self._over.wait(self._every_s):
            self._turn()
        self._turn()

    def _turn(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  Servers, pictures and drivers fail in any way; the training goes on.
            if not self._told:
                self._say(f"{self._name} failed, the training goes on: {type(error).__name__}: {error}")
            self._told = True
