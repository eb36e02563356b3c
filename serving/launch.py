"""Turn this process into the BentoML server of the inspection service."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import NoReturn

from data_contracts.errors import InvalidInput, Problem
from serving.settings import PREFIX, HostSettings, load_host_settings

SERVICE = "serving.service:Inspection"
DRAIN_S = 20
"""Seconds that work in flight gets after a stop signal. BentoML's default is a day."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open. With BentoML's 5 s a line with a slower takt connects for every part, and
a request that is sent just as its connection closes is lost."""


def exec_service() -> NoReturn:
    """Replace this process by `bentoml serve`, which takes signals and keeps the workers."""
    try:
        settings = load_host_settings()
        check_address(settings)
    except InvalidInput as error:
        sys.exit(f"The service does not start. {error}")
    command = serve_command(settings)
    os.execve(command[0], command, serve_environment(settings))  # noqa: S606  (a command of our own making)


def check_address(settings: HostSettings) -> None:
    """Raise InvalidInput unless the service listens on this machine only."""
    try:
        open_to_others = not ipaddress.ip_address(settings.service_host).is_loopback
    except ValueError:
        open_to_others = True
    if open_to_others:
        raise InvalidInput(
            Problem(
                f"{PREFIX}SERVICE_HOST",
                "a loopback address such as 127.0.0.1",
                settings.service_host,
                "The service has no API keys yet and so listens on this machine only. Put a guarded proxy in front.",
            )
        )


def serve_command(settings: HostSettings) -> list[str]:
    """The command line that serves."""
    return [
        *(sys.executable, "-m", "bentoml", "serve", SERVICE),
        *("--working-dir", str(Path(__file__).parents[1])),
        *("--host", settings.service_host, "--port", str(settings.service_port)),
        *("--timeout-graceful-shutdown", str(DRAIN_S)),
        *("--timeout-keep-alive", str(KEEP_ALIVE_S)),
    ]


def serve_environment(settings: HostSettings) -> dict[str, str]:
    """This process's environment, with what BentoML must know.

    BentoML changes the working directory, so the store's path is made absolute. BentoML's own folder moves from the
    user's home into the store. Nothing is reported to anyone.
    """
    return {
        # Each thread's own heap keeps what the largest picture needed there. With two heaps for all, YOLOv8n at 640 px
        # holds 100 MB less and takes the same CPU time. The host's own setting wins.
        "MALLOC_ARENA_MAX": "2",
        **os.environ,
        f"{PREFIX}STORE": str(settings.store),
        "BENTOML_HOME": str(settings.store / "bentoml"),
        "BENTOML_CONFIG_OPTIONS": f"services.inspection.workers={settings.service_workers}",
        "BENTOML_DO_NOT_TRACK": "True",
        "OTEL_SDK_DISABLED": "true",
        # ONNX Runtime sends usage data to its maker unless this stands before it is imported.
        "ORT_DISABLE_TELEMETRY": "1",
        "PYTHONSAFEPATH": "1",
    }
