"""FastAPI around Ultralytics' `predict`, as most examples show it: one model, called in a thread, one call at a time.

A lock is needed, because a model object is not safe to use from several threads.

    python -m benchmarks.peers.fastapi_ultralytics WEIGHTS PORT INPUT_PX THRESHOLD
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

NMS_IOU = 0.5


class Model:
    """Ultralytics' model on the CPU."""

    def __init__(self, weights: str, input_px: int, threshold: float) -> None:
        import numpy as np
        import torch
        from ultralytics import YOLO

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self._model = YOLO(weights, task="detect")
        self._input_px, self._threshold = input_px, threshold
        self._lock = threading.Lock()
        self.predict(np.zeros((input_px, input_px, 3), np.uint8))

    def predict(self, image_bgr: Any) -> list[list[float]]:
        """Rows of left, top, right, bottom, score, class id."""
        with self._lock:
            (result,) = self._model.predict(
                image_bgr, imgsz=self._input_px, conf=self._threshold, iou=NMS_IOU, device="cpu", verbose=False
            )
        return result.boxes.data.tolist()  # type: ignore[no-any-return]

    def inspect(self, body: bytes) -> list[list[float]]:
        """The same for a picture file."""
        import cv2
        import numpy as np

        image = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise ValueError("not a picture")
        return self.predict(image)


def make_app(model: Model) -> FastAPI:
    """The FastAPI app."""
    app = FastAPI()

    @app.get("/readyz")
    async def _ready() -> Response:
        return JSONResponse({"ready": True})

    @app.post("/v1/inspect")
    async def _inspect(request: Request) -> Response:
        body = await request.body()
        try:
            rows = await asyncio.to_thread(model.inspect, body)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=422)
        return JSONResponse({"detections": rows})

    return app


def main(weights: str, port: str, input_px: str, threshold: str) -> None:
    """Serve until a signal."""
    import uvicorn

    from tasks.yolo import configure_ultralytics

    configure_ultralytics(Path(weights).parents[2])
    app = make_app(Model(weights, int(input_px), float(threshold)))
    uvicorn.run(
        app, host="127.0.0.1", port=int(port), access_log=False, log_level="warning", loop="uvloop", http="httptools"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
