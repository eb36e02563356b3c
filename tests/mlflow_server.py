"""A real MLflow server on loopback, with SQLite and a folder, for slow tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 180.0


@contextmanager
def mlflow_server(folder: Path, *, serve_artifacts: bool = True, artifacts: str | None = None) -> Iterator[str]:
    """The URL of a server that keeps its state in `folder`; it is stopped by its process group at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    kind = ["--artifacts-destination"] if serve_artifacts else ["--no-serve-artifacts", "--default-artifact-root"]
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", *kind,
        artifacts or str(folder / "artifacts"), "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = os.environ | quiet | {"HOME": str(folder)}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  our own loopback address
                return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise AssertionError(f"the MLflow server did not start:\n{log.read_text()[-3000:]}")
