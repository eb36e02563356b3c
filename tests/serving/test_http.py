from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

import builders
from data_contracts.errors import EngineError
from data_contracts.inspection import Inspection
from door import ANNOTATED, INSPECT, Door, problem
from fakes import counted
from serving.api_page import PAGE, POLICY, SCRIPT
from serving.detector import Detector
from serving.engine_threads import FOREVER
from serving.images import decode_image
from serving.verdict import judge, score_floor

WH = (64, 48)
PLATE = builders.plate(WH, ((0, 0, 32, 24), builders.RED))
RED = builders.encode(PLATE)
SCOPE = {"type": "http", "method": "POST", "path": INSPECT, "query_string": b"", "headers": []}


def json_body(picture: bytes, front: str = "") -> dict[str, Any]:
    return {"json": {"image": front + base64.b64encode(picture).decode()}}


BGR = PLATE[..., ::-1].tobytes()
FRAME = "shape=48,64,3; order="
JSON = json.dumps(json_body(RED)["json"]).encode()
FORM = httpx.Request("POST", "http://x", files={"image": ("no name at all.txt", RED, "text/plain")}).read()
WAYS: dict[str, dict[str, Any]] = {
    "raw, no type": {"content": RED},
    "raw, image/png": {"content": RED, "headers": {"content-type": "image/png"}},
    "raw, wrong type": {"content": RED, "headers": {"content-type": "image/jpg"}},
    "raw, curl's default type": {"content": RED, "headers": {"content-type": "application/x-www-form-urlencoded"}},
    "raw, as JSON": {"content": RED, "headers": {"content-type": "application/json"}},
    "raw, as multipart": {"content": RED, "headers": {"content-type": "multipart/form-data"}},
    "multipart": {"files": {"image": ("a.png", RED, "image/png")}},
    "multipart, wrong type": {"files": {"x": ("a.jpg", RED, "image/jpg")}},
    "multipart, no type": {"content": FORM},
    "multipart, without boundary": {"content": FORM, "headers": {"content-type": "multipart/form-data"}},
    "multipart, as a picture": {"content": FORM, "headers": {"content-type": "image/jpeg"}},
    "JSON": json_body(RED),
    "JSON, no type": {"content": JSON},
    "JSON, as a picture": {"content": JSON, "headers": {"content-type": "image/jpeg"}},
    "JSON, as multipart": {"content": JSON, "headers": {"content-type": "multipart/form-data; boundary=e"}},
    "JSON, data URL": json_body(RED, "data:image/png;base64,"),
    "JSON, wrapped": {"json": {"image": base64.encodebytes(RED).decode()}},
    "JSON, URL-safe, no padding": {"json": {"image": base64.urlsafe_b64encode(RED).decode().rstrip("=")}},
    "frame, rgb": {"content": PLATE.tobytes(), "headers": {"X-Passline-Frame": FRAME + "rgb"}},
    "frame, bgr": {"content": BGR, "headers": {"X-Passline-Frame": FRAME + "bgr", "content-type": "image/jpeg"}},
    "frame in a form": {
        "files": [("frame", ("f", BGR, "application/octet-stream", {"X-Passline-Frame": FRAME + "bgr"}))]
    },
    "frame in JSON": {
        "json": {"image": {"shape": [48, 64, 3], "order": "bgr", "data": base64.b64encode(BGR).decode()}}
    },
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_to_send_a_picture_gives_the_detectors_own_answer(door: Door, way: dict[str, Any]) -> None:
    response = door.inspect(**way)
    answer = Inspection.model_validate_json(response.content)
    rule = door.bundle.manifest.verdict
    (found,) = door.detector.detect([decode_image(RED, builders.LIMITS)], score_floor(rule))
    verdict, over = judge(found, rule)
    assert answer.detections == over.records(door.bundle.manifest.model.class_names)
    assert len(answer.detections) > 0
    assert (answer.verdict, answer.image_wh, answer.batch_size) == (verdict, WH, 1)


def test_an_answer_says_who_gave_it_and_how_long_it_took(door: Door) -> None:
    response = door.inspect(content=RED, headers={"X-Request-Id": "line-7:part-42"})
    body = response.json()
    assert body["request_id"] == response.headers["x-request-id"] == "line-7:part-42"
    assert body["release"] == {"digest": door.bundle.digest, "name": "plates", "version": "1"}
    assert response.headers["x-passline-release"] == door.bundle.digest
    assert response.headers["x-passline-version"] == "1"
    assert response.headers["x-passline-verdict"] == body["verdict"] == "NG"
    stages = {"receive", "decode", "preprocess", "queue", "infer", "postprocess", "total"}
    assert set(body["timings_ms"]) == stages
    assert {part.split(";")[0] for part in response.headers["server-timing"].split(", ")} == stages
    assert all(value >= 0 for value in body["timings_ms"].values())
    assert counted(door.host.metrics, "passline_requests_total", route=INSPECT, status="200", verdict="NG") == 1
    assert counted(door.host.metrics, "passline_stage_seconds_count", stage="infer") == 1


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, "a\tb", "<script>", "-x"])
def test_an_insane_request_id_is_replaced(door: Door, given: str) -> None:
    response = door.inspect(content=RED, headers={"X-Request-Id": given})
    assert response.json()["request_id"] != given
    assert len(response.json()["request_id"]) == 32


BAD: dict[str, tuple[int, dict[str, Any]]] = {
    "nothing": (400, {}),
    "nothing in JSON": (400, {"json": {"image": ""}}),
    "torn JSON": (400, {"content": b'{"image": "', "headers": {"content-type": "application/json"}}),
    "JSON without a picture": (400, {"json": {"img": "QUJD"}}),
    "JSON with no base64": (400, {"json": {"image": "***"}}),
    "form with no file": (400, {"content": b"image=x", "headers": {"content-type": "multipart/form-data; boundary=e"}}),
    "frame of another size": (400, {"content": RED, "headers": {"X-Passline-Frame": "shape=48,64,3; order=rgb"}}),
    "frame without an order": (400, {"content": RED, "headers": {"X-Passline-Frame": "640x480x3"}}),
    "frame over the limit": (413, {"content": b"x", "headers": {"X-Passline-Frame": "shape=9999,9999,3; order=rgb"}}),
    "compressed body": (415, {"content": RED, "headers": {"content-encoding": "gzip"}}),
    "gzip file": (415, {"content": b"\x1f\x8b\x08" + bytes(40)}),
    "text": (415, {"content": b"hello, this is no picture at all"}),
    "HTML": (415, {"content": b"<html><body>no</body></html>"}),
    "GIF": (415, {"content": builders.encode(builders.plate(), "gif")}),
    "text in JSON": (415, json_body(b"hello, this is no picture at all")),
    "truncated PNG": (422, {"content": RED[: len(RED) * 2 // 3]}),
    "truncated JPEG": (422, {"content": builders.encode(builders.noisy_plate((200, 200)), "jpeg")[:5000]}),
    "too many pixels": (413, {"content": builders.encode(builders.plate((400, 300)))}),
    "too many bytes": (413, {"content": b"\xff" * 200_001}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "request_"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("path", [INSPECT, ANNOTATED])
def test_bad_input_is_the_senders_fault_and_says_why(
    door: Door, path: str, status: int, request_: dict[str, Any]
) -> None:
    found = problem(door.ask("POST", path, **request_), status)
    assert len(found.detail) > 10
    assert "Traceback" not in found.detail
    assert door.engine.sizes == []


def test_a_compressed_body_is_told_what_is_accepted(door: Door) -> None:
    assert door.inspect(content=RED, headers={"content-encoding": "br"}).headers["accept-encoding"] == "identity"
    assert door.inspect(content=RED, headers={"content-encoding": "identity"}).status_code == 200


def test_an_endless_body_is_refused_before_its_end(door: Door) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"\xff" * 50_000

    async def post(client: httpx.AsyncClient) -> httpx.Response:
        request = client.build_request("POST", INSPECT, content=endless())
        stream = request.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        chunks = aiter(stream)
        answer: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await anext(chunks), "more_body": True}

        async def send(message: dict[str, Any]) -> None:
            answer.setdefault("sent_when_answered", sent)
            answer.setdefault("status", message.get("status"))

        task = asyncio.ensure_future(door.app(dict(SCOPE), receive, send))
        await asyncio.wait({task}, timeout=0.5)
        task.cancel()
        return httpx.Response(answer["status"], extensions=answer)

    response = door.run(post)
    assert response.status_code == 413
    assert response.extensions["sent_when_answered"] == 5


def test_exif_orientation_is_what_the_answer_speaks_of(door: Door) -> None:
    turned = builders.plate((80, 40), ((0, 0, 20, 20), builders.RED))
    body = door.inspect(content=builders.encode(turned, "jpeg", orientation=6)).json()
    assert body["image_wh"] == [40, 80]
    best = body["detections"][0]["box_xyxy_px"]
    assert (best[0] + best[2]) / 2 > 20
    assert (best[1] + best[3]) / 2 < 40


def test_one_bad_picture_never_touches_its_neighbours(door: Door) -> None:
    sizes = [(64, 48), (48, 64), (100, 20), (20, 100), (33, 77), (160, 120)]
    colours = [builders.RED, builders.GREEN] * 3
    good = [
        builders.encode(builders.plate(wh, ((0, 0, *wh), colour))) for wh, colour in zip(sizes, colours, strict=True)
    ]
    bad = [RED[:60], b"no picture at all, sorry"]

    async def burst(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.post(INSPECT, content=picture) for picture in [*good, *bad]))

    answers = door.run(burst)
    assert [answer.status_code for answer in answers] == [200] * 6 + [422, 415]
    for answer, wh, colour in zip(answers, sizes, colours, strict=False):
        body = answer.json()
        assert body["image_wh"] == list(wh)
        assert {found["class_name"] for found in body["detections"]} == {"red" if colour == builders.RED else "green"}


def hold_engine(door: Door, count: int, **settings: Any) -> list[httpx.Response]:
    """One request holds the engine while `count` others arrive; all answers."""
    if settings:
        door.start(**settings)
    door.engine.gate = threading.Event()

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        first = asyncio.ensure_future(client.post(INSPECT, content=RED))
        await asyncio.to_thread(door.engine.entered.wait, 10)
        rest = [asyncio.ensure_future(client.post(INSPECT, content=RED)) for _ in range(count)]
        await asyncio.sleep(0.3)
        assert door.engine.gate is not None
        door.engine.gate.set()
        return [await first, *await asyncio.gather(*rest)]

    return door.run(story)


def test_eight_at_once_share_an_engine_call(door: Door) -> None:
    answers = hold_engine(door, 8)
    assert [answer.json()["batch_size"] for answer in answers] == [1] + [8] * 8
    assert door.engine.sizes == [1, 8]


def test_overload_is_said_at_once_and_passes(door: Door) -> None:
    answers = hold_engine(door, 6, max_queue=2, max_batch=1)
    # One is with the engine and two wait; the others are told before their pictures are decoded.
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503, 503, 503]
    for answer in answers:
        if answer.status_code != 200:
            assert int(answer.headers["retry-after"]) >= 1
            assert problem(answer, answer.status_code).title in ("Overloaded", "Too many requests")
    assert counted(door.host.metrics, "passline_overloaded_total") == 4
    assert door.inspect(content=RED).status_code == 200


def test_more_requests_than_can_wait_are_refused_before_their_body_is_read(door: Door) -> None:
    door.start(max_queue=1, max_batch=1)
    with door.host.admitted(), door.host.admitted(), door.host.admitted():
        refused = door.inspect(content=b"")
    assert problem(refused, 429).title == "Too many requests"
    assert int(refused.headers["retry-after"]) >= 1
    assert problem(door.inspect(content=b""), 400).title == "No picture"


def test_a_deadline_that_passes_is_504(door: Door) -> None:
    door.start(deadline_s=0.1)
    door.engine.delay_s = 0.5
    assert problem(door.inspect(content=RED), 504).title == "Deadline passed"


@pytest.mark.parametrize(
    ("engine", "title"),
    [
        ({"short_by": 1}, "The engine failed"),
        ({"error": RuntimeError("/secret/path")}, "The engine failed"),
        ({"error": EngineError("/secret/path")}, "The engine failed"),
    ],
    ids=["one answer too few", "any error", "own error"],
)
def test_a_failing_engine_is_500_and_never_an_empty_answer(
    door: Door, engine: dict[str, Any], title: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in engine.items():
        setattr(door.engine, name, value)

    async def burst(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.post(INSPECT, content=RED) for _ in range(4)))

    with caplog.at_level(logging.ERROR):
        answers = door.run(burst)
    for answer in answers:
        found = problem(answer, 500)
        assert found.title == title
        assert "secret" not in answer.text
        assert any(found.request_id in record.getMessage() for record in caplog.records)


def test_an_unknown_error_is_logged_and_tells_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object) -> None:
        raise KeyError("/secret/path")

    monkeypatch.setattr(Detector, "prepare", explode)
    with caplog.at_level(logging.ERROR):
        found = problem(door.inspect(content=RED), 500)
    assert found.title == "Internal error"
    assert "secret" not in found.detail
    assert any(record.exc_info for record in caplog.records)


def test_a_client_that_left_is_dropped_before_the_engine(door: Door) -> None:
    door.engine.gate = threading.Event()
    leave = asyncio.Event()
    body = [{"type": "http.request", "body": RED, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(_: dict[str, Any]) -> None:
        pass

    async def story(client: httpx.AsyncClient) -> httpx.Response:
        first = asyncio.ensure_future(client.post(INSPECT, content=RED))
        await asyncio.to_thread(door.engine.entered.wait, 10)
        leaver = asyncio.ensure_future(door.app(dict(SCOPE), receive, send))
        await asyncio.sleep(0.3)
        leave.set()
        await leaver
        assert door.engine.gate is not None
        door.engine.gate.set()
        return await first

    assert door.run(story).status_code == 200
    assert door.engine.sizes == [1]
    assert counted(door.host.metrics, "passline_requests_total", route=INSPECT, status="499", verdict="") == 1


@pytest.mark.parametrize("provider", ["cpu", "tensorrt"])
def test_a_request_whose_client_leaves_while_it_waits_is_never_decoded(
    provider: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU it waits for the engine's thread, which decodes; beside a GPU for the picture threads."""
    decoded: list[int] = []
    monkeypatch.setattr("serving.picture_work.decode_image", lambda data, _: decoded.append(len(data)) or PLATE.copy())
    door.engine.provider = provider
    gate = threading.Event()

    async def story(client: httpx.AsyncClient) -> httpx.Response:
        held = [asyncio.ensure_future(door.host.in_pool(lambda: gate.wait(20))) for _ in range(64)]
        batcher = door.releases.serving().batcher
        with batcher._lock:  # nothing is taken from the queue meanwhile
            monkeypatch.setattr(batcher._threads, "_take", lambda _: FOREVER)
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(client.post(INSPECT, content=RED))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        monkeypatch.setattr(batcher._threads, "_take", batcher._take)
        gate.set()
        await asyncio.gather(*held)
        assert decoded == []
        return await client.post(INSPECT, content=RED)

    assert door.run(story).status_code == 200
    assert decoded == [len(RED)]


@pytest.mark.parametrize("provider", ["cpu", "openvino", "cuda", "tensorrt"])
def test_pictures_take_either_way_to_the_same_answer(provider: str, door: Door) -> None:
    by_the_engines_thread = door.inspect(content=RED).json()
    door.engine.provider = provider
    answer = door.inspect(content=RED).json()
    for field in ("verdict", "detections", "image_wh", "release"):
        assert answer[field] == by_the_engines_thread[field]
    assert answer["detections"]
    assert set(answer["timings_ms"]) == set(by_the_engines_thread["timings_ms"])
    problem(door.inspect(content=RED[: len(RED) // 2]), 422)


def test_a_grey_frame_is_the_grey_picture(door: Door) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (48, 64), dtype=np.uint8)
    picture = door.inspect(content=builders.encode(np.repeat(grey[..., None], 3, axis=2))).json()
    frame = door.inspect(content=grey.tobytes(), headers={"X-Passline-Frame": "shape=48,64; order=gray"}).json()
    assert frame["detections"] == picture["detections"]
    assert frame["image_wh"] == [64, 48]


def test_a_frame_can_be_drawn_on(door: Door) -> None:
    frame = door.ask("POST", ANNOTATED, content=BGR, headers={"X-Passline-Frame": FRAME + "bgr"})
    assert frame.content == door.ask("POST", ANNOTATED, content=RED).content


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "png"),
        ("*/*", "png"),
        ("image/jpeg", "jpeg"),
        ("image/png;q=0.5, image/jpeg", "jpeg"),
        ("image/jpeg;q=0.2, image/png;q=0.9", "png"),
        ("text/html", "png"),
    ],
)
def test_the_annotated_picture_comes_as_asked(door: Door, accept: str, kind: str) -> None:
    response = door.ask("POST", ANNOTATED, content=RED, headers={"accept": accept})
    assert response.headers["content-type"] == f"image/{kind}"
    assert response.headers["x-passline-verdict"] == "NG"
    assert response.headers["x-passline-release"] == door.bundle.digest
    drawn = decode_image(response.content, builders.LIMITS)
    assert drawn.shape[1] >= WH[0]
    assert drawn.std() > 1


class TestStatus:
    def test_ready(self, door: Door) -> None:
        assert door.ask("GET", "/livez").status_code == 200
        response = door.ask("GET", "/readyz")
        assert (response.status_code, response.json()["release"]) == (200, door.bundle.digest)
        assert door.ask("GET", "/v1/release").json()["active"]["digest"] == door.bundle.digest

    def test_not_ready_is_live_and_says_why(self, door: Door) -> None:
        door.releases.resident = None
        door.releases.reason = "no release is active"
        assert door.ask("GET", "/livez").status_code == 200
        for response in (door.ask("GET", "/readyz"), door.inspect(content=RED)):
            assert response.status_code == 503
            assert response.headers["retry-after"]
            assert response.json()["detail"] == "no release is active"
        assert door.ask("GET", "/v1/release").json()["ready"] is False

    def test_unknown_paths_and_methods_are_problems_too(self, door: Door) -> None:
        problem(door.ask("GET", "/v1/nothing"), 404)
        problem(door.ask("POST", INSPECT + "/", content=RED), 404)

    @pytest.mark.parametrize("path", [INSPECT, ANNOTATED])
    @pytest.mark.parametrize("method", ["GET", "OPTIONS", "PUT", "DELETE", "BREW"])
    def test_other_methods_are_problems_that_name_the_right_one(self, door: Door, method: str, path: str) -> None:
        response = door.ask(method, path)
        problem(response, 405)
        assert response.headers["allow"] == "POST"

    def test_head_is_refused_too(self, door: Door) -> None:
        assert door.ask("HEAD", INSPECT).status_code == 405

    def test_an_error_in_another_route_is_a_problem(self, door: Door, caplog: pytest.LogCaptureFixture) -> None:
        door.releases.status = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]

        async def ask(_: httpx.AsyncClient) -> httpx.Response:
            transport = httpx.ASGITransport(app=door.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
                return await client.get("/v1/release")

        assert "division" not in problem(door.run(ask), 500).detail


class TestDescription:
    def test_it_documents_the_bodies_and_the_problems(self, door: Door) -> None:
        paths = door.ask("GET", "/openapi.json").json()["paths"]
        assert set(paths) == {INSPECT, ANNOTATED, "/v1/release", "/livez", "/readyz"}
        for path in (INSPECT, ANNOTATED):
            post = paths[path]["post"]
            assert {"image/*", "multipart/form-data", "application/json"} <= set(post["requestBody"]["content"])
            for status in ("400", "413", "415", "422", "429", "500", "503", "504"):
                assert "application/problem+json" in post["responses"][status]["content"]

    def test_the_page_needs_nothing_from_elsewhere(self, door: Door) -> None:
        response = door.ask("GET", "/")
        assert response.headers["content-security-policy"] == POLICY
        assert "default-src 'self'" in POLICY
        assert "://" not in PAGE + SCRIPT
        assert door.ask("GET", "/api-page.js").headers["content-type"].startswith("text/javascript")
        assert door.ask("GET", "/docs").status_code == door.ask("GET", "/redoc").status_code == 404

    def test_the_schema_of_an_answer_is_the_contract(self, door: Door) -> None:
        schema = door.ask("GET", "/openapi.json").json()["components"]["schemas"]["Inspection"]
        assert set(schema["properties"]) == set(Inspection.model_fields)
        assert json.dumps(schema)
