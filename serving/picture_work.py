"""One picture on its way from bytes to verdict, by the release that was active when it came."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from data_contracts.inspection import Inspection
from data_contracts.letterbox import Letterbox
from serving.batching import BatchAnswer
from serving.bodies import Sent
from serving.frames import frame_image
from serving.host import InspectionHost
from serving.images import Image, ImageLimits, decode_image
from serving.resident import Resident
from serving.trace import Trace
from serving.verdict import judge, score_floor


def image_of(sent: Sent, limits: ImageLimits) -> Image:
    """RGB pixels of a picture as it was sent."""
    return frame_image(sent.data, sent.frame, limits) if sent.frame else decode_image(sent.data, limits)


@dataclass(frozen=True, eq=False)
class Inspected:
    """An answer, its JSON, and the picture that it is about."""

    inspection: Inspection
    content: bytes
    sent: Sent


@dataclass(eq=False)
class PictureWork:
    """A picture with its times and the event loop's time at which it is too late; see `serving.batching.Picture`."""

    host: InspectionHost
    resident: Resident
    sent: Sent
    trace: Trace
    expires_at: float
    _letterbox: Letterbox = field(init=False)
    _inspected: Inspected = field(init=False)

    async def inspect(self) -> Inspected:
        """Take it all the way. Raises what is wrong with it, Overloaded, TimeoutError or EngineError."""
        submit = self.resident.batcher.submit
        if self.resident.shares_cpus:
            await submit(self, expires_at=self.expires_at)
            return self._inspected
        async with asyncio.timeout_at(self.expires_at):
            tensor = await self.host.in_pool(self.prepare)
            answer = await submit(tensor, expires_at=self.expires_at)
            await self.host.in_pool(lambda: self.conclude(answer))
        return self._inspected

    def prepare(self) -> npt.NDArray[np.float32]:
        """Decode and letterbox. Runs beside the event loop."""
        with self.trace.stage("decode"):
            image = image_of(self.sent, self.host.limits)
        with self.trace.stage("preprocess"):
            prepared = self.resident.detector.prepare(image)
        self._letterbox = prepared.letterbox
        return prepared.tensor

    def conclude(self, answer: BatchAnswer) -> None:
        """Boxes and verdict from the model's output. Runs beside the event loop."""
        manifest = self.resident.bundle.manifest
        self.trace.stages |= {"queue": answer.queue_s, "infer": answer.infer_s}
        with self.trace.stage("postprocess"):
            floor = score_floor(manifest.verdict)
            detections = self.resident.detector.encode(answer.output, self._letterbox, floor)
            verdict, found = judge(detections, manifest.verdict)
            records = found.records(manifest.model.class_names)
        inspection = Inspection(
            request_id=self.trace.request_id,
            verdict=verdict,
            detections=records,
            image_wh=self._letterbox.image_wh,
            release=self.resident.ref,
            batch_size=answer.batch_size,
            timings_ms=self.trace.milliseconds(),
        )
        self._inspected = Inspected(inspection, inspection.model_dump_json().encode(), self.sent)
