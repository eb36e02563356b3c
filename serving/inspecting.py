"""One request from its body to its answer, each stage timed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from data_contracts.inspection import Inspection
from serving.annotate import draw_detections, encode_image
from serving.batching import BatchAnswer
from serving.bodies import picture_of, read_body
from serving.detector import Prepared
from serving.host import InspectionHost
from serving.images import decode_image
from serving.problems import BodyTimeoutError
from serving.resident import Resident
from serving.verdict import judge

T = TypeVar("T")


@dataclass(eq=False)
class Trace:
    """Times of one request, in seconds per stage."""

    request_id: str
    started: float = field(default_factory=perf_counter)
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; it counts also when it fails."""
        started = perf_counter()
        try:
            yield
        finally:
            self.stages[name] = perf_counter() - started

    def milliseconds(self) -> dict[str, float]:
        """Per stage, and `total` since the request arrived."""
        seconds = {**self.stages, "total": perf_counter() - self.started}
        return {name: round(value * 1000, 3) for name, value in seconds.items()}


@dataclass(frozen=True, eq=False)
class Inspected:
    """An answer, with the picture that it is about."""

    inspection: Inspection
    picture: bytes


async def inspect_request(host: InspectionHost, request: Request, trace: Trace) -> Inspected:
    """Read the body and inspect the picture in it. Raises what `problems` knows to answer."""
    host.releases.serving()  # a body that nobody can inspect need not be read
    with host.admitted():
        loop = asyncio.get_running_loop()
        expires_at = loop.time() + host.settings.deadline_s
        with trace.stage("receive"):
            body = await _receive(host, request)
        content_type = request.headers.get("content-type", "")
        work = _inspect(host, body, content_type, trace, expires_at)
        return await _while_wanted(request, work, expires_at - loop.time())


async def _receive(host: InspectionHost, request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    try:
        async with asyncio.timeout(host.settings.deadline_s):
            declared_bytes = int(declared) if declared.isdecimal() else None
            return await read_body(request.stream(), declared_bytes, host.settings.max_bytes)
    except TimeoutError:
        raise BodyTimeoutError(f"the body was not received within {host.settings.deadline_s:g} s") from None


async def _inspect(host: InspectionHost, body: bytes, content_type: str, trace: Trace, expires_at: float) -> Inspected:
    # From here on the request belongs to this release, also when another one becomes active meanwhile.
    resident = host.releases.serving()
    picture, prepared = await host.in_pool(lambda: _prepare(host, resident, body, content_type, trace))
    answer = await resident.batcher.submit(prepared.tensor, expires_at=expires_at)
    trace.stages |= {"queue": answer.queue_s, "infer": answer.infer_s}
    inspection = await host.in_pool(lambda: _conclude(resident, prepared, answer, trace))
    return Inspected(inspection, picture)


def _prepare(
    host: InspectionHost, resident: Resident, body: bytes, content_type: str, trace: Trace
) -> tuple[bytes, Prepared]:
    with trace.stage("decode"):
        picture = picture_of(body, content_type)
        image = decode_image(picture, host.limits)
    with trace.stage("preprocess"):
        return picture, resident.detector.prepare(image)


def _conclude(resident: Resident, prepared: Prepared, answer: BatchAnswer, trace: Trace) -> Inspection:
    manifest = resident.bundle.manifest
    with trace.stage("postprocess"):
        floor = min(manifest.verdict.thresholds)
        verdict, found = judge(resident.detector.encode(answer.output, prepared.letterbox, floor), manifest.verdict)
        records = found.records(manifest.model.class_names)
    return Inspection(
        request_id=trace.request_id,
        verdict=verdict,
        detections=records,
        image_wh=prepared.letterbox.image_wh,
        release=resident.ref,
        batch_size=answer.batch_size,
        timings_ms=trace.milliseconds(),
    )


def annotate(host: InspectionHost, inspected: Inspected, kind: str) -> bytes:
    """The picture with its boxes drawn, as "png" or "jpeg".

    It is decoded once more: keeping the pixels of every waiting request would cost far more than this does.
    """
    image = decode_image(inspected.picture, host.limits)
    drawn = draw_detections(image, inspected.inspection.detections, inspected.inspection.verdict)
    return encode_image(drawn, "jpeg" if kind == "jpeg" else "png")


async def _while_wanted(request: Request, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of `work`, unless the client goes away or time is up first: then the work is cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_client_gone(request))
    try:
        await asyncio.wait({task, gone}, timeout=max(seconds, 0.0), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientDisconnect
        raise TimeoutError("the deadline passed before the answer was ready")
    finally:
        for unfinished in (task, gone):
            unfinished.cancel()


async def _client_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
