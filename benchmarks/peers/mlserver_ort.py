"""MLServer around the same model code as `fastapi_ort`; needs `pip install mlserver`.

python -m benchmarks.peers.mlserver_ort MODEL PORT INPUT_PX THRESHOLD
"""

# No postponed annotations here: MLServer hands those of the route to FastAPI.

import asyncio
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Request, Response
from starlette.responses import JSONResponse

from benchmarks.peers.fastapi_ort import Model

try:
    mlserver: Any = importlib.import_module("mlserver")
    handlers: Any = importlib.import_module("mlserver.handlers")
except ModuleNotFoundError:
    mlserver = handlers = None

Base: Any = mlserver.MLModel if mlserver else object


def route(path: str) -> Any:
    """MLServer's way to add a path of its own; nothing where it is not installed."""
    return handlers.custom_handler(rest_path=path) if handlers else lambda function: function


class Inspect(Base):  # type: ignore[misc]
    """A runtime with a route for raw bodies; a pool of one thread per core does the work."""

    async def load(self) -> bool:
        """Load the model."""
        model_file, input_px, threshold = self.settings.parameters.extra["arguments"]
        self._model = Model(model_file, int(input_px), float(threshold))
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        return True

    @route("/v1/inspect")  # type: ignore[untyped-decorator]
    async def inspect(self, request: Request) -> Response:
        """The raw body to boxes."""
        body = await request.body()
        rows = await asyncio.get_running_loop().run_in_executor(self._pool, self._model.inspect, body)
        return JSONResponse({"detections": rows})


def main(model_file: str, port: str, input_px: str, threshold: str) -> None:
    """Serve until a signal, without gRPC and metrics servers that could get in the way."""
    settings = importlib.import_module("mlserver.settings")
    parameters = settings.ModelParameters(extra={"arguments": [model_file, input_px, threshold]})
    model = settings.ModelSettings(name="yolo", implementation=Inspect, parameters=parameters)
    server_settings = settings.Settings(
        host="127.0.0.1", http_port=int(port), grpc_port=0, metrics_endpoint=None, parallel_workers=0, debug=False
    )
    server = mlserver.MLServer(server_settings)
    asyncio.run(server.start([model]))


if __name__ == "__main__":
    main(*sys.argv[1:])
