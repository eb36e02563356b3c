"""The BentoML service. Start it with `python -m serving.service`; workers load `serving.service:Inspection`."""

from __future__ import annotations

if __name__ == "__main__":
    from serving.launch import exec_service

    exec_service()  # does not return, and so saves the import of BentoML in a process that is about to be replaced

import bentoml
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.host import InspectionHost
from serving.http import make_app
from serving.metrics import Metrics
from serving.settings import load_host_settings

OWN_PATHS = frozenset({"/", "/api-page.js", "/livez", "/openapi.json", "/readyz"})
OWN_PREFIX = "/v1/"


class OwnRoutesFirst:
    """Sends our paths to our app before BentoML's own `/livez`, `/readyz` and 404 page get them."""

    def __init__(self, app: ASGIApp, own: ASGIApp) -> None:
        self._app, self._own = app, own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        ours = scope["type"] == "http" and (scope["path"] in OWN_PATHS or scope["path"].startswith(OWN_PREFIX))
        await (self._own if ours else self._app)(scope, receive, send)


_host = InspectionHost()


def _start() -> None:
    settings = load_host_settings()
    _host.start(settings, Metrics(), f"worker-{bentoml.server_context.worker_index or 1}")


app = make_app(_host, _start)


@bentoml.asgi_app(app, path="/")
@bentoml.service(
    name="inspection",
    http={"host": "127.0.0.1"},
    # Our own deadline answers first; this one only ends what hangs.
    traffic={"timeout": 60},
    logging={"access": {"enabled": False}},
)
class Inspection:
    """Visual defect inspection: a picture in, a verdict with boxes out."""


# mypy takes the decorated class for itself; it is a BentoML service.
Inspection.add_asgi_middleware(OwnRoutesFirst, own=app)  # type: ignore[attr-defined]
