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
from serving.bodies import BadBody, Body, Sent, is_plain, pictures_of, read_body
from serving.frames import FRAME_HEADER
from serving.host import InspectionHost
from serving.picture_work import Inspected, PictureWork, image_of
from serving.problems import BodyTimeoutError, EncodedBodyError, TooManyRequestsError
from serving.resident import Resident
from serving.trace import Trace

PATIENCE_S = 0.05
"""A request that is answered sooner is not watched for its client's leaving: the watch costs a task in the loop."""


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
    resident = host.releases.serving()
    with trace.stage("decode"):
        if is_plain(body):
            pictures = pictures_of(body, host.settings.max_pictures)
        else:
            async with asyncio.timeout_at(expires_at):
                pictures = await host.in_pool(lambda: pictures_of(body, host.settings.max_pictures))
    if not pictures.listed:
        return await _inspect_one(host, resident, pictures.items[0], trace, expires_at)
    if not several:
        raise BadBody(Problem("body", "one picture", "a list of pictures", "Send one picture per request."))
    traces = [trace.of_picture(index) for index in range(len(pictures.items))]
    pairs = zip(pictures.items, traces, strict=True)
    return tuple(await asyncio.gather(*(_item(host, resident, sent, one, expires_at) for sent, one in pairs)))


async def _inspect_one(
    host: InspectionHost, resident: Resident, sent: Sent | InvalidInput, trace: Trace, expires_at: float
) -> Inspected:
    if isinstance(sent, InvalidInput):
        raise sent
    return await PictureWork(host, resident, sent, trace, expires_at).inspect()


async def _item(
    host: InspectionHost, resident: Resident, sent: Sent | InvalidInput, trace: Trace, expires_at: float
) -> Item:
    """One picture of several; whatever happens stays here."""
    try:
        return Item((await _inspect_one(host, resident, sent, trace, expires_at)).inspection, trace)
    except Exception as error:  # noqa: BLE001  (it becomes the answer to this picture)
        return Item(error, trace)


@asynccontextmanager
async def _while_client_stays(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client goes away; ClientDisconnect is raised then."""
    loop, working, gone = asyncio.get_running_loop(), asyncio.current_task(), False
    watchers: list[asyncio.Task[None]] = []

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = working is not None and working.cancel()

    later = loop.call_later(PATIENCE_S, lambda: watchers.append(loop.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if gone and working is not None and working.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        later.cancel()
        for watcher in watchers:
            watcher.cancel()
