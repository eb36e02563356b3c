"""LitServe around the same model code as `fastapi_ort`; needs `pip install litserve`.

python -m benchmarks.peers.litserve_ort MODEL PORT INPUT_PX THRESHOLD
"""

# No postponed annotations here: LitServe reads those of decode_request as objects.

import importlib
import os
import sys
from typing import Annotated, Any

from fastapi import Body

from benchmarks.peers.fastapi_ort import Model

try:
    Base: Any = importlib.import_module("litserve").LitAPI
except ModuleNotFoundError:
    Base = object


class Inspect(Base):  # type: ignore[misc]
    """LitServe's four verbs. At module level, because its workers are spawned."""

    def __init__(self, model_file: str, input_px: int, threshold: float) -> None:
        super().__init__(api_path="/v1/inspect")
        self._arguments = (model_file, input_px, threshold)

    def setup(self, device: str) -> None:  # noqa: ARG002  (the signature is LitServe's)
        """Load the model in a worker."""
        self._model = Model(*self._arguments)

    def decode_request(self, request: Annotated[bytes, Body()]) -> bytes:
        """The raw body."""
        return request

    def predict(self, body: bytes) -> list[list[float]]:
        """All the work on one picture."""
        return self._model.inspect(body)

    def encode_response(self, rows: list[list[float]]) -> dict[str, list[list[float]]]:
        """The answer's JSON."""
        return {"detections": rows}


def main(model_file: str, port: str, input_px: str, threshold: str) -> None:
    """Serve until a signal. One worker process per core, each with one engine thread, as its guide advises for CPUs."""
    litserve = importlib.import_module("litserve")
    server = litserve.LitServer(
        Inspect(model_file, int(input_px), float(threshold)),
        accelerator="cpu",
        workers_per_device=len(os.sched_getaffinity(0)),
        healthcheck_path="/readyz",
    )
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
