"""Run in a fresh interpreter: `python import_probe.py ROOT GROUP..` imports modules and prints JSON about it.

A group is module names with commas between them. `loaded`: after each group, the top-level names in sys.modules, so the
later groups show what the earlier ones loaded, too. `environment`: variables that a module below ROOT read or set
itself. `written`: folders made and files opened for writing by a module below ROOT. What a library does while it is
being imported is the library's own doing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
PASSED_THROUGH = {"os.py", "<frozen os>", "_collections_abc.py", "<frozen _collections_abc>", "import_probe.py"}


class Probe:
    """Notes what the modules below `root` do."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root.resolve()}{os.sep}"
        self.environment: set[str] = set()
        self.written: set[str] = set()

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._root) and "site-packages" not in frame.f_code.co_filename

    def note_variable(self, key: object) -> None:
        """Count the variable when whoever asks `os.environ` for it is ours."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and Path(frame.f_code.co_filename).name in PASSED_THROUGH:
            frame = frame.f_back
        if frame is not None and self._is_ours(frame):
            self.environment.add(f"{key} in {Path(frame.f_code.co_filename).name}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count a write when one of our modules comes before any library that is being imported, going outwards."""
        if event != "os.mkdir" and not (event == "open" and arguments[2] & WRITING):
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._is_ours(frame):
            if frame.f_code.co_name == "<module>" or "importlib" in frame.f_code.co_filename:
                return
            frame = frame.f_back
        if frame is not None:
            self.written.add(f"{arguments[0]} by {Path(frame.f_code.co_filename).name}")


def _watch_environment(probe: Probe) -> None:
    cls: Any = type(os.environ)
    read, write = cls.__getitem__, cls.__setitem__

    def watched_read(self: Any, key: str) -> str:
        probe.note_variable(key)
        return str(read(self, key))

    def watched_write(self: Any, key: str, value: str) -> None:
        probe.note_variable(key)
        write(self, key, value)

    cls.__getitem__, cls.__setitem__ = watched_read, watched_write


def main(root: str, *groups: str) -> None:
    """Import, watch, tell."""
    probe = Probe(Path(root))
    sys.path.insert(0, root)
    sys.dont_write_bytecode = True
    _watch_environment(probe)
    sys.addaudithook(probe.audit)
    loaded = []
    for group in groups:
        for module in group.split(","):
            importlib.import_module(module)
        loaded.append(sorted({name.split(".")[0] for name in sys.modules}))
    facts = {"loaded": loaded, "environment": sorted(probe.environment), "written": sorted(probe.written)}
    sys.stdout.write("\n" + json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
