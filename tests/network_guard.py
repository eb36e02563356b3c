"""Keeps a process, and the Python processes that it starts, from reaching other machines or installing anything.

Every attempt is refused and written down, one a line, in the file that PASSLINE_TEST_ATTEMPTS names. Processes that are
started look it up at their start: `guard_children` puts a folder in their path whose `sitecustomize` calls `guard`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

ATTEMPTS = "PASSLINE_TEST_ATTEMPTS"
GUARDED = "PASSLINE_TEST_GUARDED"


def guard_children(folder: Path) -> None:
    """Guard all Python processes that this one starts from now on; attempts and starts are written down in `folder`."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("from network_guard import guard\nguard()\n")
    os.environ[ATTEMPTS], os.environ[GUARDED] = str(folder / "attempts"), str(folder / "guarded")
    os.environ["PYTHONPATH"] = f"{site}:{os.environ['PYTHONPATH']}"


def lines_of(variable: str) -> list[str]:
    """What was written down so far."""
    file = Path(os.environ[variable])
    return file.read_text().splitlines() if file.is_file() else []


def _write_down(variable: str, words: str) -> None:
    with Path(os.environ[variable]).open("a") as file:
        file.write(words + "\n")


def guard() -> None:
    """Refuse and record connections and look-ups that leave this machine, and installers."""
    _write_down(GUARDED, str(os.getpid()))
    connect, look_up, popen = socket.socket.connect, socket.getaddrinfo, subprocess.Popen.__init__

    def refuse(what: str) -> None:
        _write_down(ATTEMPTS, what)
        raise OSError(f"blocked by the test: {what}")

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            refuse(f"connect {address}")
        connect(self, address)

    def guarded_look_up(host: Any, *rest: Any, **named: Any) -> Any:
        if host not in (None, "127.0.0.1", "::1", "localhost", socket.gethostname()):
            refuse(f"look up {host}")
        return look_up(host, *rest, **named)

    def guarded_popen(self: Any, command: Any, *rest: Any, **named: Any) -> None:
        words = command if isinstance(command, str) else " ".join(map(str, command))
        if any(tool in words for tool in ("pip ", "pip3", "uv ", "apt", "conda")):
            refuse(f"run {words}")
        popen(self, command, *rest, **named)

    socket.socket.connect = guarded_connect  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = guarded_look_up
    subprocess.Popen.__init__ = guarded_popen  # type: ignore[method-assign]
