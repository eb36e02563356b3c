"""FastAPI around ONNX Runtime, as a careful engineer writes it without Passline.

The route takes the raw body and leaves the event loop at once; a pool of as many threads as there are cores decodes,
letterboxes, runs and suppresses. They share one session with one thread, which is the fastest use of the cores here.

    python -m benchmarks.peers.fastapi_ort MODEL PORT INPUT_PX THRESHOLD
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from serving.ort import onnxruntime as ort

NMS_IOU = 0.5
MAX_DETECTIONS = 300


class Model:
    """The session and what surrounds it."""

    def __init__(self, model_file: str, input_px: int, threshold: float) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(model_file, options, providers=["CPUExecutionProvider"])
        self.input_name = self.session.get_inputs()[0].name
        self.input_px, self.threshold = input_px, threshold
        for _ in range(3):
            self.session.run(None, {self.input_name: np.zeros((1, 3, input_px, input_px), np.float32)})

    def inspect(self, body: bytes) -> list[list[float]]:
        """Rows of left, top, right, bottom, score, class id."""
        image = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise ValueError("not a picture")
        tensor, scale, left, top = self._letterbox(image)
        (output,) = self.session.run(None, {self.input_name: tensor})
        return self._boxes(output[0], scale, left, top, (image.shape[1], image.shape[0]))

    def _letterbox(self, image: Any) -> tuple[npt.NDArray[np.float32], float, int, int]:
        height, width = image.shape[:2]
        side = self.input_px
        scale = min(side / width, side / height)
        size = (round(width * scale), round(height * scale))
        if size != (width, height):
            image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        left, top = (side - size[0]) // 2, (side - size[1]) // 2
        right, bottom = side - size[0] - left, side - size[1] - top
        if left or top or right or bottom:
            image = cv2.copyMakeBorder(
                image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114)
            )  # fmt: skip
        tensor = np.ascontiguousarray(image[:, :, ::-1].transpose(2, 0, 1), np.float32)
        tensor /= 255
        return tensor[None], scale, left, top

    def _boxes(self, output: Any, scale: float, left: int, top: int, image_wh: tuple[int, int]) -> list[list[float]]:
        scores = output[4:].max(axis=0)
        chosen = scores >= self.threshold
        centre, size, scores = output[:2, chosen].T, output[2:4, chosen].T, scores[chosen]
        ids = output[4:, chosen].argmax(axis=0)
        corners = np.hstack([centre - size / 2, size])
        suppress: Any = cv2.dnn.NMSBoxesBatched  # its annotations do not know arrays
        kept = np.asarray(suppress(corners, scores, ids, self.threshold, NMS_IOU), np.int64).ravel()[:MAX_DETECTIONS]
        first = (corners[kept, :2] - (left, top)) / scale
        boxes = np.hstack([first, first + corners[kept, 2:] / scale])
        boxes = boxes.clip(0, (*image_wh, *image_wh))
        return np.hstack([boxes, scores[kept, None], ids[kept, None]]).tolist()  # type: ignore[no-any-return]


def make_app(model: Model) -> FastAPI:
    """The FastAPI app."""
    app = FastAPI()
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    @app.get("/readyz")
    async def _ready() -> Response:
        return JSONResponse({"ready": True})

    @app.post("/v1/inspect")
    async def _inspect(request: Request) -> Response:
        body = await request.body()
        try:
            rows = await asyncio.get_running_loop().run_in_executor(pool, model.inspect, body)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=422)
        return JSONResponse({"detections": rows})

    return app


def main(model_file: str, port: str, input_px: str, threshold: str) -> None:
    """Serve until a signal."""
    import uvicorn

    cv2.setNumThreads(1)
    app = make_app(Model(model_file, int(input_px), float(threshold)))
    uvicorn.run(
        app, host="127.0.0.1", port=int(port), access_log=False, log_level="warning", loop="uvloop", http="httptools"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
