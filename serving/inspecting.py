"""One request from its body to its answer, each stage timed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from data_contracts.errors import InvalidInput, Overloaded, Problem
from data_contracts.inspection import Inspection
from serving.annotate import draw_detections, encode_image
from serving.batching import BatchAnswer
from serving.bodies import BadBody, Body, Sent, SentPictures, pictures_of, read_body
from serving.detector import Prepared
from serving.frames import FRAME_HEADER, frame_image
from serving.host import InspectionHost
from serving.images import Image, ImageLimits, decode_image
from serving.problems import BodyTimeoutError, EncodedBodyError, TooManyRequestsError
from serving.resident import Resident
from serving.trace import Trace
from serving.verdict import judge, score_floor

INLINE_VALUES = 2**16
"""A model's output of up to so many values is concluded at once: a hop to another thread would cost more than that."""


@dataclass(frozen=True, eq=False)
class Inspected:
    """An answer, with the picture that it is about."""

    inspection: Inspection
    sent: Sent


@dataclass(frozen=True, eq=False)
class Item:
    """One picture of several: its inspection or the error in its place, and its own times."""

    outcome: Inspection | Exception
    trace: Trace


async def inspect_request(
    host: InspectionHost, request: Request, trace: Trace, *, several: bool
) -> Inspected | tuple[Item, ...]:
    """Read the body and inspect what is in it; a body that is a list is answered by a tuple, or not unless `several`.

    Raises what `problems` knows to answer. What goes wrong with one picture of a list stays with that picture.
    """
    host.releases.serving()  # a body that nobody can inspect need not be read
    _check_encoding(request)
    with ExitStack() as place:
        _admit(host, place)
        expires_at = asyncio.get_running_loop().time() + host.settings.deadline_s
        with trace.stage("receive"):
            body = await _receive(host, request)
        async with _while_client_stays(request):
            return await _inspect_body(host, body, trace, expires_at, several=several)


def annotate(host: InspectionHost, inspected: Inspected, kind: str) -> bytes:
    """The picture with its boxes drawn, as "png" or "jpeg".

    It is decoded once more: keeping the pixels of every waiting request would cost far more than this does.
    """
    image = image_of(inspected.sent, host.limits)
    drawn = draw_detections(image, inspected.inspection.detections, inspected.inspection.verdict)
    return encode_image(drawn, "jpeg" if kind == "jpeg" else "png")


def image_of(sent: Sent, limits: ImageLimits) -> Image:
    """RGB pixels of a picture as it was sent."""
    return frame_image(sent.data, sent.frame, limits) if sent.frame else decode_image(sent.data, limits)


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        action = "Send the picture as it is; it is compressed already."
        raise EncodedBodyError(Problem("Content-Encoding", "none", repr(encoding[:40]), action))


def _admit(host: InspectionHost, place: ExitStack) -> None:
    try:
        place.enter_context(host.admitted())
    except Overloaded as error:
        raise TooManyRequestsError(*error.problems, retry_after_s=error.retry_after_s) from None


async def _receive(host: InspectionHost, request: Request) -> Body:
    declared = request.headers.get("content-length", "")
    try:
        async with asyncio.timeout(host.settings.deadline_s):
            declared_bytes = int(declared) if declared.isdecimal() else None
            data = await read_body(request.stream(), declared_bytes, host.settings.max_bytes)
    except TimeoutError:
        raise BodyTimeoutError(f"the body was not received within {host.settings.deadline_s:g} s") from None
    return Body(data, request.headers.get("content-type", ""), request.headers.get(FRAME_HEADER, ""))


async def _inspect_body(
    host: InspectionHost, body: Body, trace: Trace, expires_at: float, *, several: bool
) -> Inspected | tuple[Item, ...]:
    # From here on the request belongs to this release, also when another one becomes active meanwhile.
    job = _Job(host, host.releases.serving(), trace, expires_at)
    async with asyncio.timeout_at(expires_at):
        opened = await host.in_pool(lambda: job.open(body, several=several))
        if isinstance(opened, _Opened):
            return await job.answer(opened)
    tasks = [_Job(host, job.resident, trace.of_picture(index), expires_at) for index in range(len(opened.items))]
    pairs = zip(tasks, opened.items, strict=True)
    return tuple(await asyncio.gather(*(task.item(sent) for task, sent in pairs)))


@dataclass(frozen=True, eq=False)
class _Opened:
    """A picture with its pixels in their place in the model's input."""

    sent: Sent
    prepared: Prepared


@dataclass(frozen=True, eq=False)
class _Job:
    """One picture on its way: the release that answers it, its times, and the loop's time at which it is too late."""

    host: InspectionHost
    resident: Resident
    trace: Trace
    expires_at: float

    def open(self, body: Body, *, several: bool) -> _Opened | SentPictures:
        """What is in the body; where that is one picture, it is prepared at once. Runs beside the event loop."""
        with self.trace.stage("decode"):
            pictures = pictures_of(body, self.host.settings.max_pictures)
        if pictures.listed and not several:
            raise BadBody(Problem("body", "one picture", "a list of pictures", "Send one picture per request."))
        return pictures if pictures.listed else self.prepare(pictures.items[0])

    def prepare(self, sent: Sent | InvalidInput) -> _Opened:
        """Decode and letterbox. Runs beside the event loop."""
        if isinstance(sent, InvalidInput):
            raise sent
        with self.trace.stage("decode"):
            image = image_of(sent, self.host.limits)
        with self.trace.stage("preprocess"):
            return _Opened(sent, self.resident.detector.prepare(image))

    async def item(self, sent: Sent | InvalidInput) -> Item:
        """One picture of several, from its bytes; whatever happens stays here."""
        try:
            async with asyncio.timeout_at(self.expires_at):
                opened = await self.host.in_pool(lambda: self.prepare(sent))
                inspected = await self.answer(opened)
        except Exception as error:  # noqa: BLE001  (it becomes the answer to this picture)
            return Item(error, self.trace)
        return Item(inspected.inspection, self.trace)

    async def answer(self, opened: _Opened) -> Inspected:
        """Run a prepared picture through the engine, and conclude."""
        answer = await self.resident.batcher.submit(opened.prepared.tensor, expires_at=self.expires_at)
        self.trace.stages |= {"queue": answer.queue_s, "infer": answer.infer_s}
        if answer.output.size <= INLINE_VALUES:
            return Inspected(self.conclude(opened.prepared, answer), opened.sent)
        inspection = await self.host.in_pool(lambda: self.conclude(opened.prepared, answer))
        return Inspected(inspection, opened.sent)

    def conclude(self, prepared: Prepared, answer: BatchAnswer) -> Inspection:
        """Boxes and verdict from the model's output."""
        manifest = self.resident.bundle.manifest
        with self.trace.stage("postprocess"):
            floor = score_floor(manifest.verdict)
            detections = self.resident.detector.encode(answer.output, prepared.letterbox, floor)
            verdict, found = judge(detections, manifest.verdict)
            records = found.records(manifest.model.class_names)
        return Inspection(
            request_id=self.trace.request_id,
            verdict=verdict,
            detections=records,
            image_wh=prepared.letterbox.image_wh,
            release=self.resident.ref,
            batch_size=answer.batch_size,
            timings_ms=self.trace.milliseconds(),
        )


@asynccontextmanager
async def _while_client_stays(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client goes away; ClientDisconnect is raised then."""
    working, gone = asyncio.current_task(), False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = working is not None and working.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if gone and working is not None and working.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()
