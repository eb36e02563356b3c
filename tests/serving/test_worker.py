from __future__ import annotations

import asyncio

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.worker import OwnRoutesFirst, app


def named(name: str, reached: list[str]) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(name)

    return answer


async def nothing() -> dict[str, object]:
    return {}


async def nowhere(message: object) -> None:
    pass


@pytest.mark.parametrize(
    ("kind", "path", "name"),
    [
        pytest.param("http", "/v1/inspect", "own", id="inspection"),
        pytest.param("http", "/v1/nothing", "own", id="our 404 is a problem document"),
        pytest.param("http", "/metrics", "own", id="metrics"),
        pytest.param("http", "/readyz", "own", id="ready"),
        pytest.param("http", "/docs.json", "bentoml", id="BentoML's description"),
        pytest.param("http", "/v1", "bentoml", id="no path of ours"),
        pytest.param("lifespan", "", "bentoml", id="start and stop"),
        pytest.param("websocket", "/v1/inspect", "bentoml", id="not HTTP"),
    ],
)
def test_who_answers(kind: str, path: str, name: str) -> None:
    reached: list[str] = []
    both = OwnRoutesFirst(named("bentoml", reached), own=named("own", reached))
    asyncio.run(both({"type": kind, "path": path}, nothing, nowhere))
    assert reached == [name]


def test_the_app_has_all_that_it_is_sent() -> None:
    paths = set(app.openapi()["paths"])
    assert {"/v1/inspect", "/v1/inspect/annotated", "/v1/release", "/livez", "/readyz", "/metrics"} <= paths
