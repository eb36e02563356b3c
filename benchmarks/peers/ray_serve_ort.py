"""Ray Serve around the same model code as `fastapi_ort`; needs `pip install "ray[serve]"`.

python -m benchmarks.peers.ray_serve_ort MODEL PORT INPUT_PX THRESHOLD
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from benchmarks.peers.fastapi_ort import Model


class Inspect:
    """One replica."""

    def __init__(self, model_file: str, input_px: int, threshold: float) -> None:
        self._model = Model(model_file, input_px, threshold)

    async def __call__(self, request: Any) -> dict[str, Any]:
        """The raw body to boxes; any other path says that the replica is there."""
        if request.url.path != "/v1/inspect":
            return {"ready": True}
        return {"detections": self._model.inspect(await request.body())}


def main(model_file: str, port: str, input_px: str, threshold: str) -> None:
    """Serve until a signal: one replica per core, each with one engine thread."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray, serve = importlib.import_module("ray"), importlib.import_module("ray.serve")
    cores = len(os.sched_getaffinity(0))
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
        deployment = serve.deployment(num_replicas=cores, ray_actor_options={"num_cpus": 0.5})(Inspect)
        serve.run(deployment.bind(model_file, int(input_px), float(threshold)), route_prefix="/")
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(*sys.argv[1:])
