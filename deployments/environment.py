"""The environment that every process of the local stack gets: locations, and nothing that phones home."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from data_contracts.base import Contract
from data_contracts.errors import InvalidInput, Problem

QUIET = {
    "BENTOML_DO_NOT_TRACK": "True",
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "NO_ALBUMENTATIONS_UPDATE": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "YOLO_AUTOINSTALL": "false",
}
"""Telemetry and update checks of everything that we start: off."""

LOOPBACK = "127.0.0.1"

SIGN_OF_LIFE_S = 30
"""Seconds between two signs of life of a flow run, the least that Prefect allows; see `deployments.automations`."""

REQUEST_RETRIES = 7
"""Times that a request to Prefect is sent again, after 2, 4, 8 ... s: four minutes, longer than a restart takes."""


class StackSettings(Contract):
    """The local stack: where its state lies, its ports, its interpreters."""

    project: Path = Field(description="Folder of prefect.yaml and params.yaml.")
    home: Path = Field(description="PASSLINE_HOME: state and logs.")
    prefect_port: int = Field(ge=1, le=65535, description="PASSLINE_PREFECT_PORT")
    mlflow_port: int = Field(ge=1, le=65535, description="PASSLINE_MLFLOW_PORT")
    service_port: int = Field(ge=1, le=65535, description="PASSLINE_SERVICE_PORT")
    training_python: Path = Field(description="PASSLINE_TRAINING_PYTHON: environment of the training side.")
    inference_python: Path = Field(description="PASSLINE_INFERENCE_PYTHON: environment of the inference worker.")
    serving_python: Path = Field(description="PASSLINE_SERVING_PYTHON: environment of service and agent.")

    @property
    def prefect_url(self) -> str:
        """Prefect's pages."""
        return f"http://{LOOPBACK}:{self.prefect_port}"

    @property
    def mlflow_url(self) -> str:
        """MLflow's pages and API."""
        return f"http://{LOOPBACK}:{self.mlflow_port}"

    @property
    def service_url(self) -> str:
        """The inspection service."""
        return f"http://{LOOPBACK}:{self.service_port}"

    @property
    def logs(self) -> Path:
        """One log file per process."""
        return self.home / "log"

    @property
    def host_env_file(self) -> Path:
        """Settings of the inference host, read by service and agent at their start."""
        return self.home / "host.env"

    def control_environment(self) -> dict[str, str]:
        """For whatever talks to Prefect: its API and its own state folder."""
        return {
            "PREFECT_API_URL": f"{self.prefect_url}/api",
            "PREFECT_HOME": str(self.home / "prefect"),
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(SIGN_OF_LIFE_S),
            "PREFECT_CLIENT_MAX_RETRIES": str(REQUEST_RETRIES),
            "PASSLINE_PREFECT_PUBLIC_URL": self.prefect_url,
            **QUIET,
        }

    def training_environment(self) -> dict[str, str]:
        """For the training side: registry, channel and state folder. No word about the inference host."""
        return {
            **self.control_environment(),
            "PASSLINE_HOME": str(self.home),
            "PASSLINE_MLFLOW_URL": self.mlflow_url,
            "PASSLINE_CHANNEL": str(self.home / "channel"),
            "MLFLOW_TRACKING_URI": self.mlflow_url,
        }

    def serving_environment(self) -> dict[str, str]:
        """For service and agent: where the host's own settings are."""
        return {"PASSLINE_HOST_ENV": str(self.host_env_file), **QUIET}

    def inference_environment(self, socket: Path) -> dict[str, str]:
        """For the inference worker: the control plane, the channel, the host's settings and its process manager."""
        return {
            **self.control_environment(),
            **self.serving_environment(),
            "PASSLINE_HOME": str(self.home / "inference"),
            "PASSLINE_CHANNEL": str(self.home / "channel"),
            "PASSLINE_SUPERVISOR_SOCKET": str(socket),
            "PASSLINE_SERVING_PYTHON": str(self.serving_python),
        }


def load_stack_settings(environ: Mapping[str, str] | None = None, project: Path | None = None) -> StackSettings:
    """Settings of the local stack from `environ`; everything lies below the project folder where nothing else is said.

    Raises InvalidInput when the project folder is not one.
    """
    env = os.environ if environ is None else environ
    root = (project or Path(env.get("PASSLINE_PROJECT", "."))).absolute()
    if not (root / "prefect.yaml").is_file():
        raise InvalidInput(
            Problem(
                str(root), "Passline's project folder, with prefect.yaml", "none", "Go there or set PASSLINE_PROJECT."
            )
        )
    return StackSettings(
        project=root,
        home=Path(env.get("PASSLINE_HOME", root / "var")).absolute(),
        prefect_port=_port(env, "PASSLINE_PREFECT_PORT", 4200),
        mlflow_port=_port(env, "PASSLINE_MLFLOW_PORT", 5000),
        service_port=_port(env, "PASSLINE_SERVICE_PORT", 3000),
        training_python=Path(env.get("PASSLINE_TRAINING_PYTHON", sys.executable)),
        inference_python=Path(env.get("PASSLINE_INFERENCE_PYTHON", root / ".venv-inference/bin/python")),
        serving_python=Path(env.get("PASSLINE_SERVING_PYTHON", root / ".venv-serving/bin/python")),
    )


def alert_webhook(environ: Mapping[str, str] | None = None) -> SecretStr | None:
    """PASSLINE_ALERT_WEBHOOK: where alerts are posted. None, and nothing is sent, when it is not set.

    Raises InvalidInput when it is no http address; the message does not show it.
    """
    text = (os.environ if environ is None else environ).get("PASSLINE_ALERT_WEBHOOK", "")
    if not text:
        return None
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).netloc:
        action = "Set it to the address of a webhook, or unset it."
        raise InvalidInput(Problem("PASSLINE_ALERT_WEBHOOK", "http:// or https:// and a host", "another text", action))
    return SecretStr(text)


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, str(default))
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise InvalidInput(Problem(name, "a port from 1 to 65535", repr(text), "Set it to a free port or unset it."))
    return int(text)
