"""The one place where errors become HTTP answers (RFC 9457, application/problem+json)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from data_contracts.errors import (
    EmptyImage,
    EngineError,
    ImageTooLarge,
    ImageTooSmall,
    InvalidInput,
    NotReady,
    Overloaded,
    PasslineError,
    UndecodableImage,
    UnsupportedImage,
)
from data_contracts.inspection import ProblemDetails
from serving.bodies import BodyTooLarge
from serving.multipart import TooManyPictures

PROBLEM_TYPE = "application/problem+json"
NOT_READY_RETRY_S = 2
CLIENT_GONE = 499
LINGER_S, LINGER_BYTES = 2.0, 64 * 2**20
_log = logging.getLogger("passline.http")


class BodyTimeoutError(PasslineError):
    """The client did not send the whole body in time."""


class EncodedBodyError(InvalidInput):
    """The body is compressed on top of what the picture is."""


class TooManyRequestsError(Overloaded):
    """As many requests are here as can ever be answered in time."""


_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (EmptyImage, 400, "No picture"),
    (UnsupportedImage, 415, "Not a picture that can be read"),
    (UndecodableImage, 422, "Damaged picture"),
    (ImageTooLarge, 413, "Picture too large"),
    (ImageTooSmall, 422, "Picture too small"),
    (EncodedBodyError, 415, "Compressed body"),
    (TooManyPictures, 413, "Too many pictures"),
    (InvalidInput, 400, "Malformed request"),
    (BodyTimeoutError, 408, "Body not received in time"),
    (NotReady, 503, "Not ready"),
    (TooManyRequestsError, 429, "Too many requests"),
    (Overloaded, 503, "Overloaded"),
    (TimeoutError, 504, "Deadline passed"),
    (ClientDisconnect, CLIENT_GONE, "Client went away"),
)


class LingeringResponse(Response):
    """An answer given before the body was read to its end.

    The rest of the body is read and thrown away for a moment; closing at once would make the client's system drop the
    answer before the client sees it.
    """

    def __init__(self, answer: Response) -> None:
        headers = {**answer.headers, "Connection": "close"}
        super().__init__(answer.body, answer.status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI)
        """Answer, linger, close."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    seen = 0
    while seen < LINGER_BYTES:
        message = await receive()
        seen += len(message.get("body", b""))
        if not message.get("more_body", False):
            return


def problem_response(problem: ProblemDetails, headers: Mapping[str, str]) -> Response:
    """A problem as answer."""
    return Response(problem.model_dump_json(), problem.status, dict(headers), media_type=PROBLEM_TYPE)


def problem_of(error: Exception, request_id: str) -> ProblemDetails:
    """What an error says to the client. Engine failures and what we did not raise on purpose are logged, no more."""
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            return ProblemDetails(title=title, status=status, detail=str(error) or title, request_id=request_id)
    title = "The engine failed" if isinstance(error, EngineError) else "Internal error"
    _log.error("request %s failed", request_id, exc_info=error)
    detail = "The picture could not be inspected. The log of the service names the reason under this request id."
    return ProblemDetails(title=title, status=500, detail=detail, request_id=request_id)


def response_for(error: Exception, request_id: str, headers: Mapping[str, str]) -> Response:
    """The answer to an error."""
    response = problem_response(problem_of(error, request_id), {**headers, **extra_headers(error)})
    return LingeringResponse(response) if isinstance(error, BodyTooLarge) else response


def extra_headers(error: Exception) -> dict[str, str]:
    """When to come back, and what is accepted instead."""
    if isinstance(error, NotReady):
        return {"Retry-After": str(NOT_READY_RETRY_S)}
    if isinstance(error, Overloaded):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    return {"Accept-Encoding": "identity"} if isinstance(error, EncodedBodyError) else {}
