"""The BentoML service. Start it with `python -m serving.service`; workers load `serving.service:Inspection`."""

from __future__ import annotations

if __name__ == "__main__":
    from serving.launch import exec_service

    exec_service()  # does not return, and so saves the import of BentoML in a process that is about to be replaced

from typing import TYPE_CHECKING

import bentoml

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class InspectionService(bentoml.Service):  # type: ignore[misc]  # mypy takes bentoml.Service for Any
    """A BentoML service whose app is made where requests are answered, in the workers."""

    def to_asgi(self, is_main: bool = True) -> ASGIApp:
        """Our app before BentoML's."""
        from serving.worker import OwnRoutesFirst, app

        self.mount_asgi_app(app, path="/")
        return OwnRoutesFirst(super().to_asgi(is_main), own=app)


@bentoml.service(
    name="inspection",
    http={"host": "127.0.0.1"},
    logging={"access": {"enabled": False}},
    # Ours are at /metrics. BentoML's would label the pages that are left to it with whatever path is asked for.
    metrics={"enabled": False, "namespace": "bentoml_service"},
    service_class=InspectionService,
)
class Inspection:
    """Visual defect inspection: a picture in, a verdict with boxes out."""
