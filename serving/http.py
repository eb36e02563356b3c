"""The inspection endpoint as a FastAPI app. `serving.service` mounts it in BentoML."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from data_contracts.errors import NotReady, Overloaded
from data_contracts.inspection import Inspection, JsonPicture, ProblemDetails, ReleaseStatus
from serving.api_page import DESCRIPTION, add_api_page
from serving.host import InspectionHost
from serving.inspecting import Trace, annotate, inspect_request
from serving.problems import CLIENT_GONE, PROBLEM_TYPE, problem_response, response_for

_SANE_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,63}")
_BINARY = {"type": "string", "format": "binary"}

PICTURE_BODY = {
    "required": True,
    "description": "One JPEG, PNG, BMP, WebP or TIFF picture: as it is (any or no content type), as the first file of "
    "a form, or in base64 in JSON.",
    "content": {
        "image/*": {"schema": _BINARY},
        "application/octet-stream": {"schema": _BINARY},
        "multipart/form-data": {
            "schema": {"type": "object", "required": ["image"], "properties": {"image": _BINARY}},
        },
        "application/json": {"schema": JsonPicture.model_json_schema()},
    },
}
"""OpenAPI request body of both inspection routes."""

_REASONS = {
    400: "No picture, or malformed JSON, base64 or form.",
    408: "The body did not arrive in time.",
    413: "Body or picture over the limit.",
    415: "Not a picture that can be read.",
    422: "A damaged picture.",
    500: "The service failed; its log names the reason under the request id.",
    503: "Not ready or overloaded; `Retry-After` says when to come back.",
    504: "The deadline passed.",
}
_PROBLEM_SCHEMA = {PROBLEM_TYPE: {"schema": ProblemDetails.model_json_schema()}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": reason, "content": _PROBLEM_SCHEMA} for status, reason in _REASONS.items()
}

Handler = Callable[[Request, Trace], Awaitable[Response]]


def make_app(host: InspectionHost, start: Callable[[], None] | None = None) -> FastAPI:
    """The app for `host`. `start` starts the host when the app starts; without it the caller has done so."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if start is not None:
            start()
        yield
        host.stop()

    # FastAPI's own pages load their assets from the internet.
    app = FastAPI(
        title="Passline inspection", description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    _add_inspection(app, host)
    _add_status(app, host)
    add_api_page(app)
    app.add_exception_handler(HTTPException, _http_problem)
    return app


def _add_inspection(app: FastAPI, host: InspectionHost) -> None:
    async def inspect(request: Request, trace: Trace) -> Response:
        inspection = (await inspect_request(host, request, trace)).inspection
        return Response(inspection.model_dump_json(), media_type="application/json", headers=_about(inspection))

    async def inspect_annotated(request: Request, trace: Trace) -> Response:
        kind = _wanted_kind(request.headers.get("accept", ""))
        inspected = await inspect_request(host, request, trace)
        with trace.stage("annotate"):
            picture = await host.in_pool(lambda: annotate(host, inspected, kind))
        return Response(picture, media_type=f"image/{kind}", headers=_about(inspected.inspection))

    @app.post(
        "/v1/inspect",
        summary="Inspect one picture",
        response_model=Inspection,
        responses=PROBLEMS,
        openapi_extra={"requestBody": PICTURE_BODY},
        tags=["Inspection"],
    )
    async def _inspect(request: Request) -> Response:
        """Verdict and boxes, in pixels of the displayed picture."""
        return await _answer(host, request, "/v1/inspect", inspect)

    @app.post(
        "/v1/inspect/annotated",
        summary="Inspect one picture and draw what was found",
        response_class=Response,
        responses={
            200: {"description": "The picture with boxes.", "content": {"image/png": {}, "image/jpeg": {}}},
            **PROBLEMS,
        },
        openapi_extra={"requestBody": PICTURE_BODY},
        tags=["Inspection"],
    )
    async def _inspect_annotated(request: Request) -> Response:
        """PNG, or JPEG where `Accept` prefers it. The verdict is in `X-Passline-Verdict`."""
        return await _answer(host, request, "/v1/inspect/annotated", inspect_annotated)


def _add_status(app: FastAPI, host: InspectionHost) -> None:
    @app.get("/v1/release", summary="What this worker answers with", response_model=ReleaseStatus, tags=["Status"])
    async def _release() -> Response:
        return Response(host.releases.status().model_dump_json(), media_type="application/json")

    @app.get("/livez", summary="The process is up", tags=["Status"])
    async def _livez() -> Response:
        return JSONResponse({"live": True})

    @app.get("/readyz", summary="Pictures can be inspected", responses={503: PROBLEMS[503]}, tags=["Status"])
    async def _readyz(request: Request) -> Response:
        try:
            ref = host.releases.serving().ref
        except NotReady as error:
            return response_for(error, _request_id(request), {})
        return JSONResponse({"ready": True, "release": ref.digest, "version": ref.version})


async def _answer(host: InspectionHost, request: Request, route: str, handler: Handler) -> Response:
    """Run a handler; whatever happens becomes an answer with request id, timings and release, and is counted."""
    trace = Trace(_request_id(request))
    try:
        response = await handler(request, trace)
    except Exception as error:  # noqa: BLE001  (the one mapping of errors to answers; unknown ones are logged there)
        response = response_for(error, trace.request_id, _release_headers(host))
        if isinstance(error, Overloaded):
            host.metrics.overloaded.inc()
    response.headers["X-Request-Id"] = trace.request_id
    response.headers["Server-Timing"] = ", ".join(f"{name};dur={ms}" for name, ms in trace.milliseconds().items())
    _count(host, route, response, trace)
    return response


def _count(host: InspectionHost, route: str, response: Response, trace: Trace) -> None:
    verdict = response.headers.get("X-Passline-Verdict", "")
    host.metrics.requests.labels(route, str(response.status_code), verdict).inc()
    if response.status_code != CLIENT_GONE:
        for name, seconds in trace.stages.items():
            host.metrics.stage_seconds.labels(name).observe(seconds)


def _about(inspection: Inspection) -> dict[str, str]:
    return {
        "X-Passline-Verdict": inspection.verdict.value,
        "X-Passline-Release": inspection.release.digest,
        "X-Passline-Version": inspection.release.version,
    }


def _release_headers(host: InspectionHost) -> dict[str, str]:
    """The release that is active now, for answers that belong to none."""
    try:
        ref = host.releases.serving().ref
    except NotReady:
        return {}
    return {"X-Passline-Release": ref.digest, "X-Passline-Version": ref.version}


def _request_id(request: Request) -> str:
    """The client's id where it is sane, so that both sides' logs can be joined; else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


def _wanted_kind(accept: str) -> str:
    """ "jpeg" where `Accept` puts it before PNG, else "png".

    >>> _wanted_kind("image/png;q=0.5, image/jpeg")
    'jpeg'
    """
    weights = {"png": 0.0, "jpeg": 0.0}
    for part in accept.split(","):
        kind, _, options = part.strip().partition(";")
        name = kind.strip().lower().removeprefix("image/").replace("jpg", "jpeg")
        if name in weights:
            found = re.search(r"q=([01](?:\.\d{0,3})?)", options)
            weights[name] = float(found[1]) if found else 1.0
    return "jpeg" if weights["jpeg"] > weights["png"] else "png"


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for this kind)
    request_id = _request_id(request)
    headers = {**(error.headers or {}), "X-Request-Id": request_id}
    return problem_response(error.status_code, error.detail, error.detail, request_id, headers)
