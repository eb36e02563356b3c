"""Where things are on an inference host, and its limits: the only place that reads serving's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from data_contracts.base import Contract, Name
from data_contracts.errors import InvalidInput, Problem
from data_contracts.tuning import Policy

PREFIX = "PASSLINE_"
HOST_ENV_FILE = "PASSLINE_HOST_ENV"


class HostSettings(Contract):
    """Locations and limits of one inference host. Field `x` is the environment variable `PASSLINE_X`."""

    store: Path = Field(default=Path("var/host"), description="Release store of this host.")
    host_name: Name = Field(default="local", description="Name of this inference host in reports.")
    service_host: str = Field(default="127.0.0.1", description="Address that the service listens on.")
    service_port: int = Field(default=3000, ge=1, le=65535)
    service_workers: int = Field(default=1, ge=1, le=64, description="Service worker processes.")
    provider: Literal["auto", "cpu", "openvino", "cuda", "tensorrt"] = Field(
        default="auto", description="Engine that is wished for; cpu is ONNX Runtime, auto the best for tune_for."
    )
    precision: Literal["auto", "fp32", "fp16", "bf16", "int8"] = Field(
        default="auto", description="Precision that is wished for; others than fp32 must pass the probe set."
    )
    threads: int | None = Field(default=None, ge=1, description="Engine threads per call; else from the CPU quota.")
    streams: int | None = Field(default=None, ge=1, description="Engine calls at once; else from the CPU quota.")
    allow_fallback: bool = Field(default=False, description="Answer on the CPU, degraded, without the wished engine.")
    tune: bool = Field(default=True, description="Measure the allowed engines on this host; off, the rule decides.")
    tune_for: Policy = Field(default="throughput", description="What the choice of engine is best for.")
    tune_budget_s: float = Field(default=6.0, gt=0, le=600, description="Seconds of measuring, all engines together.")
    probe_budget_s: float = Field(
        default=60.0, gt=0, description="Seconds that judging one engine may take; in a swap, all engines together."
    )
    max_batch: int = Field(default=8, ge=1, le=256, description="Pictures in one engine call; 1 switches batching off.")
    max_queue: int = Field(default=64, ge=1, description="Pictures of one lane that may wait for the engine.")
    batcher: Literal["passline", "bentoml"] = Field(default="passline", description="What gathers pictures into calls.")
    batch_window_s: float | None = Field(
        default=None, ge=0, le=1, description="How long an idle engine may wait for company; else 0.004 on a GPU, 0."
    )
    trt_workspace_bytes: int | None = Field(
        default=None, ge=2**20, description="Most GPU memory that building a TensorRT engine may use; else its default."
    )
    deadline_s: float = Field(default=10.0, gt=0, description="Seconds after which a request is not worth answering.")
    max_bytes: int = Field(default=32 * 2**20, ge=1, description="Largest request body.")
    max_pictures: int = Field(default=16, ge=1, le=256, description="Pictures in one request.")
    max_pixels: int = Field(default=64_000_000, ge=1, description="Largest picture, width times height.")
    min_side_px: int = Field(default=10, ge=1, description="Smallest side of a picture; the trainer's limit.")

    @property
    def url(self) -> str:
        """Where the service of this host answers."""
        return f"http://{self.service_host}:{self.service_port}"


def load_host_settings(environ: Mapping[str, str] | None = None) -> HostSettings:
    """Settings from `environ` (the process environment by default) over those in the file PASSLINE_HOST_ENV.

    The file holds lines `PASSLINE_X=value`, as systemd's EnvironmentFile does; it is read once, at start, so that a
    restart by any service manager picks up a change. Raises InvalidInput naming every variable that is wrong.
    Variables of other parts of Passline are not looked at.
    """
    env = dict(os.environ if environ is None else environ)
    if HOST_ENV_FILE in env:
        env = _read_env_file(Path(env[HOST_ENV_FILE])) | env
    given = {name: env[PREFIX + name.upper()] for name in HostSettings.model_fields if env.get(PREFIX + name.upper())}
    try:
        settings = HostSettings.model_validate(given)
    except ValidationError as error:
        raise InvalidInput(
            *(
                Problem(
                    f"environment variable {PREFIX}{str(item['loc'][0]).upper()}",
                    item["msg"],
                    repr(item["input"]),
                    "Set it to an allowed value or unset it.",
                )
                for item in error.errors()
            )
        ) from None
    return settings.model_copy(update={"store": settings.store.absolute()})


def _read_env_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidInput(
            Problem(f"{HOST_ENV_FILE}={path}", "a readable file", str(error), "Name an existing file or unset it.")
        ) from None
    entries = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    wrong = [entry for entry in entries if "=" not in entry]
    if wrong:
        raise InvalidInput(*(Problem(str(path), "lines NAME=value", repr(entry), "Mend the line.") for entry in wrong))
    return dict(entry.split("=", 1) for entry in entries)
