"""Ask a running service how it is, from the CLI and from flows."""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from data_contracts.inspection import ReleaseStatus

TIMEOUT_S = 5.0


def service_status(base_url: str, timeout_s: float = TIMEOUT_S) -> ReleaseStatus | None:
    """What the service says about its release; None when it does not answer as a Passline service does."""
    answer = _get(base_url, "/v1/release", timeout_s)
    if answer is None or answer.status_code != httpx.codes.OK:
        return None
    try:
        return ReleaseStatus.model_validate_json(answer.content)
    except ValidationError:
        return None


def is_live(base_url: str, timeout_s: float = TIMEOUT_S) -> bool:
    """The service's process answers."""
    return _is_ok(base_url, "/livez", timeout_s)


def is_ready(base_url: str, timeout_s: float = TIMEOUT_S) -> bool:
    """The service can inspect pictures."""
    return _is_ok(base_url, "/readyz", timeout_s)


def _is_ok(base_url: str, path: str, timeout_s: float) -> bool:
    answer = _get(base_url, path, timeout_s)
    return answer is not None and answer.status_code == httpx.codes.OK


def _get(base_url: str, path: str, timeout_s: float) -> httpx.Response | None:
    try:
        # A proxy in the environment has no business between a host and its own service.
        with httpx.Client(timeout=timeout_s, trust_env=False) as client:
            return client.get(base_url.rstrip("/") + path)
    except httpx.HTTPError:
        return None
