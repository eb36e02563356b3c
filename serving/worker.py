"""What a service worker runs. Only workers import it: the process that keeps them needs no engines and no routes."""

from __future__ import annotations

import gc

import bentoml
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.host import InspectionHost
from serving.http import make_app
from serving.metrics import Metrics
from serving.metrics_page import add_metrics_page
from serving.settings import load_host_settings

OWN_PATHS = frozenset({"/", "/api-page.js", "/livez", "/metrics", "/openapi.json", "/readyz"})
OWN_PREFIX = "/v1/"


class OwnRoutesFirst:
    """Sends our paths to our app, before any layer of BentoML's app, which gets the rest, start and stop.

    Inside those layers every request would pay for tracing, a timer that is kept for a minute, a second task and
    metrics with the raw path as a label, which anyone can fill with paths that do not exist.
    """

    def __init__(self, app: ASGIApp, own: ASGIApp) -> None:
        self._app, self._own = app, own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        ours = scope["type"] == "http" and (scope["path"] in OWN_PATHS or scope["path"].startswith(OWN_PREFIX))
        await (self._own if ours else self._app)(scope, receive, send)


_host = InspectionHost()


def _start() -> None:
    settings = load_host_settings()
    # What was imported stays for good. To look through all of it again and again would stop a worker for 80 ms each.
    gc.collect()
    gc.freeze()
    _host.start(settings, Metrics(), f"worker-{bentoml.server_context.worker_index or 1}")


app = make_app(_host, _start)
add_metrics_page(app)
