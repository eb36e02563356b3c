"""Training as a user of Ultralytics would do it, in a process of its own: `python -m benchmarks.bare_training FILE`.

FILE is JSON: `home`, `model`, `data`, `project`, `name`, `arguments` (those of `yolo train`), `threads`, `result` (file
that gets `seconds`, from before Ultralytics is loaded until it has trained, and `train_seconds`, the training alone).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from data_contracts.errors import OutsideSystemError, Problem

if TYPE_CHECKING:
    from tasks.train import TrainConfig


@dataclass(frozen=True)
class BareTimes:
    """Seconds of one bare training: the whole process, what follows its start, and the training alone."""

    process: float
    seconds: float
    train_seconds: float


class BareTraining:
    """A bare training under way; leaving the block stops it when it has not ended."""

    def __init__(self, folder: Path, data_yaml: Path, model: Path, config: TrainConfig, python: Path) -> None:
        from tasks.train import train_arguments

        folder.mkdir(parents=True)
        self._folder, self._result = folder, folder / "result.json"
        order = {
            "home": str(folder / "home"), "model": str(model), "data": str(data_yaml), "project": str(folder),
            "name": "train", "arguments": train_arguments(config), "threads": config.threads,
            "result": str(self._result),
        }  # fmt: skip
        (folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
        self._started = time.monotonic()
        with (folder / "log").open("wb") as log:
            command = [str(python), "-m", "benchmarks.bare_training", str(folder / "order.json")]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> BareTraining:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; nothing happens when it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def times(self) -> BareTimes:
        """Wait for its end. Raises OutsideSystemError with its last words when it failed."""
        status = self._process.wait()
        seconds = time.monotonic() - self._started
        if status != 0:
            words = (self._folder / "log").read_text(encoding="utf-8", errors="replace")[-1500:]
            raise OutsideSystemError(
                Problem("bare training", "exit status 0", f"{status}: {words}", "Run the settings with `yolo train`.")
            )
        return BareTimes(process=seconds, **json.loads(self._result.read_text(encoding="utf-8")))


def train_bare(order: dict[str, Any]) -> dict[str, float]:
    """Train, and say how long it took."""
    from tasks.yolo import configure_ultralytics, use_threads

    started = time.monotonic()
    configure_ultralytics(Path(order["home"]))  # its first import of Ultralytics; fonts here, for it would look online
    from ultralytics import YOLO

    training = time.monotonic()
    model = YOLO(order["model"], task="detect")
    use_threads(model, order["threads"])
    model.train(data=order["data"], project=order["project"], name=order["name"], **order["arguments"])
    ended = time.monotonic()
    return {"seconds": ended - started, "train_seconds": ended - training}


def main(file: Path) -> None:
    """Carry the order out."""
    order = json.loads(file.read_text(encoding="utf-8"))
    Path(order["result"]).write_text(json.dumps(train_bare(order)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
