"""`/metrics`: what all workers of this service counted, in Prometheus' text format."""

from __future__ import annotations

import os

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""BentoML names here the folder in which every worker keeps its counts."""


def add_metrics_page(app: FastAPI) -> None:
    """Add the route. It reads files, and so runs in a thread."""

    @app.get("/metrics", summary="Counts and times for Prometheus", response_class=Response, tags=["Status"])
    def _metrics() -> Response:
        return Response(exposition(os.environ.get(SHARED_FOLDER)), media_type=CONTENT_TYPE_LATEST)


def exposition(shared_folder: str | None) -> bytes:
    """The metrics of all workers that share the folder; of this process alone without one."""
    if shared_folder is None:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, shared_folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
