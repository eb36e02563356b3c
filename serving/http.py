"""The inspection endpoint as a FastAPI app. `serving.service` mounts it in BentoML."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from data_contracts.errors import NotReady, Overloaded
from data_contracts.inspection import Inspection, InspectionList, PictureProblem, ProblemDetails, ReleaseStatus
from serving.api_docs import FRAME_PARAMETER, ONE_PICTURE, PICTURES, PROBLEMS
from serving.api_page import DESCRIPTION, add_api_page
from serving.host import InspectionHost
from serving.inspecting import Item, annotate, inspect_request
from serving.picture_work import Inspected
from serving.problems import CLIENT_GONE, extra_headers, problem_of, problem_response, response_for
from serving.trace import Trace

_SANE_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,63}")
Handler = Callable[[Request, Trace], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class InspectionApp(FastAPI):
    """FastAPI with a way around its layers for the routes of pictures, which handle their errors themselves.

    The layers take 0.1 ms of the event loop per request. The routes are also registered the usual way, for the API page
    and for the answers to other methods.
    """

    direct: Mapping[str, Endpoint] = MappingProxyType({})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        endpoint = self.direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        response = await endpoint(Request(scope, receive))
        await response(scope, receive, send)


def make_app(host: InspectionHost, start: Callable[[], None] | None = None) -> FastAPI:
    """The app for `host`. `start` starts the host when the app starts; without it the caller has done so."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if start is not None:
            start()
        yield
        host.stop()

    # FastAPI's own pages load their assets from the internet.
    app = InspectionApp(
        title="Passline inspection",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.direct = _add_inspection(app, host)
    _add_status(app, host)
    add_api_page(app)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _unknown_problem)
    return app


def _add_inspection(app: FastAPI, host: InspectionHost) -> dict[str, Endpoint]:
    async def inspect(request: Request, trace: Trace) -> Response:
        answer = await inspect_request(host, request, trace, several=True)
        return _inspected(answer) if isinstance(answer, Inspected) else _listed(host, answer)

    async def inspect_annotated(request: Request, trace: Trace) -> Response:
        kind = _wanted_kind(request.headers.get("accept", ""))
        inspected = await inspect_request(host, request, trace, several=False)
        assert isinstance(inspected, Inspected)  # noqa: S101  (a list was refused)
        with trace.stage("annotate"):
            picture = await host.in_pool(lambda: annotate(host, inspected, kind))
        return Response(picture, media_type=f"image/{kind}", headers=_about(inspected.inspection))

    @app.post(
        "/v1/inspect",
        summary="Inspect one picture, or several",
        response_model=Inspection | InspectionList,
        responses=PROBLEMS,
        openapi_extra={"requestBody": PICTURES, "parameters": [FRAME_PARAMETER]},
        tags=["Inspection"],
    )
    async def _inspect(request: Request) -> Response:
        """Verdict and boxes, in pixels of the displayed picture.

        Several pictures are answered by a list in their order, with status 200: a picture that cannot be inspected has
        a problem with its status in its place, and takes nothing from its neighbours.
        """
        return await _answer(host, request, "/v1/inspect", inspect)

    @app.post(
        "/v1/inspect/annotated",
        summary="Inspect one picture and draw what was found",
        response_class=Response,
        responses={
            200: {"description": "The picture with boxes.", "content": {"image/png": {}, "image/jpeg": {}}},
            **PROBLEMS,
        },
        openapi_extra={"requestBody": ONE_PICTURE, "parameters": [FRAME_PARAMETER]},
        tags=["Inspection"],
    )
    async def _inspect_annotated(request: Request) -> Response:
        """PNG, or JPEG where `Accept` prefers it. The verdict is in `X-Passline-Verdict`."""
        return await _answer(host, request, "/v1/inspect/annotated", inspect_annotated)

    return {"/v1/inspect": _inspect, "/v1/inspect/annotated": _inspect_annotated}


def _inspected(answer: Inspected) -> Response:
    return Response(answer.content, media_type="application/json", headers=_about(answer.inspection))


def _listed(host: InspectionHost, items: tuple[Item, ...]) -> Response:
    """Status 200 whatever the items are; the longest Retry-After of them is the answer's."""
    listed: list[Inspection | PictureProblem] = []
    waits = []
    for index, item in enumerate(items):
        _observe(host, item.trace)
        if isinstance(item.outcome, Inspection):
            listed.append(item.outcome)
            continue
        problem = problem_of(item.outcome, item.trace.request_id)
        listed.append(PictureProblem(index=index, **problem.model_dump()))
        waits += [int(seconds) for seconds in extra_headers(item.outcome).values() if seconds.isdecimal()]
        _count_overload(host, item.outcome)
    headers = {**_release_headers(host), **({"Retry-After": str(max(waits))} if waits else {})}
    content = InspectionList(inspections=tuple(listed)).model_dump_json()
    return Response(content, media_type="application/json", headers=headers)


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
        _count_overload(host, error)
    response.headers["X-Request-Id"] = trace.request_id
    response.headers["Server-Timing"] = ", ".join(f"{name};dur={ms}" for name, ms in trace.milliseconds().items())
    verdict = response.headers.get("X-Passline-Verdict", "")
    host.metrics.requests.labels(route, str(response.status_code), verdict).inc()
    if response.status_code != CLIENT_GONE:
        _observe(host, trace)
    return response


def _observe(host: InspectionHost, trace: Trace) -> None:
    for name, seconds in trace.stages.items():
        host.metrics.stage_seconds.labels(name).observe(seconds)


def _count_overload(host: InspectionHost, error: Exception) -> None:
    if isinstance(error, Overloaded):
        host.metrics.overloaded.inc()


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
    return given if _SANE_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


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
    problem = ProblemDetails(
        title=error.detail, status=error.status_code, detail=error.detail, request_id=_request_id(request)
    )
    return problem_response(problem, {**(error.headers or {}), "X-Request-Id": problem.request_id})


async def _unknown_problem(request: Request, error: Exception) -> Response:
    request_id = _request_id(request)
    return response_for(error, request_id, {"X-Request-Id": request_id})
