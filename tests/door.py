"""The HTTP app around a real detector whose engine can be made to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from data_contracts.inspection import ProblemDetails
from fakes import FakeEngine, FakeReleases, fake_resident, fresh_metrics
from serving.bundle import Bundle
from serving.detector import Detector
from serving.host import InspectionHost
from serving.http import make_app
from serving.images import ImageLimits
from serving.settings import HostSettings

INSPECT, ANNOTATED = "/v1/inspect", "/v1/inspect/annotated"


class Door:
    """The app, and what it answers with: engine, release manager, metrics, settings."""

    def __init__(self, bundle: Bundle, detector: Detector, root: Path) -> None:
        self.bundle, self.detector = bundle, detector
        self.host = InspectionHost()
        self.app: FastAPI = make_app(self.host)
        self.host.start(HostSettings(store=root), fresh_metrics(), "worker-1")
        self.host.releases.stop()
        self.start()

    def start(self, **changes: Any) -> None:
        """Begin anew: fresh engine, queue and metrics, default settings but for `changes`."""
        defaults = {"max_bytes": 200_000, "max_pixels": 100_000, "deadline_s": 5.0}
        self.settings = HostSettings.model_validate({"store": self.host.settings.store, **defaults, **changes})
        self.host.settings, self.host.metrics = self.settings, fresh_metrics()
        self.host.limits = ImageLimits(self.settings.max_bytes, self.settings.max_pixels)
        self.engine = FakeEngine(inner=self.detector.engine)
        batching = {"max_batch": self.settings.max_batch, "max_queue": self.settings.max_queue}
        self.releases = FakeReleases(fake_resident(self.bundle, self.engine, **batching))
        self.host.releases = self.releases  # type: ignore[assignment]

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return self.run(lambda client: client.request(method, path, **request))

    def inspect(self, **request: Any) -> httpx.Response:
        return self.ask("POST", INSPECT, **request)

    def run(self, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
        async def story() -> Any:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://door", timeout=30) as client:
                return await work(client)

        return asyncio.run(story())


def problem(response: httpx.Response, status: int) -> ProblemDetails:
    """The problem that an answer is; it must be one with this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = ProblemDetails.model_validate_json(response.content)
    assert found.status == status
    assert found.request_id == response.headers["x-request-id"]
    return found
