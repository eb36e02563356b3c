"""The service and the agent as real processes (field cases A16, A18, A19, A20, A21, A22)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import builders
from data_contracts.bundle import MODEL_FILE
from data_contracts.inspection import Inspection
from picture_files import READ, REFUSED
from servers import LiveHost, wait_until
from serving.bundle import open_bundle, write_manifest
from serving.detector import open_detector
from serving.fingerprint import serving_fingerprint
from serving.images import decode_image
from serving.settings import HostSettings
from serving.verdict import judge, score_floor

RED = builders.encode(builders.plate((64, 48), ((0, 0, 32, 24), builders.RED)))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return builders.first_bundle(folder), builders.second_bundle(folder)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, bundles: tuple[Path, Path]) -> Iterator[LiveHost]:
    """One service with two workers, and its agent; every test leaves it with the first bundle active."""
    live = LiveHost(tmp_path_factory.mktemp("host"), service_workers=2, max_bytes=2_000_000)
    try:
        live.start()
        wait_until(lambda: len(live.store.workers()) == 2, 30, "two workers report")
        yield live
        live.stop()
        assert live.store.workers() == (), "a worker left its report behind"
        assert not list((live.root / "home").iterdir()), "something was written to the home folder"
    finally:
        live.kill()


@pytest.fixture
def active(host: LiveHost, bundles: tuple[Path, Path]) -> LiveHost:
    outcome = host.redeploy(bundles[0])
    assert outcome.status == "converged", outcome.message
    return host


def test_it_is_live_but_not_ready_until_a_release_is_active(host: LiveHost, bundles: tuple[Path, Path]) -> None:
    """A20; this test comes first, on the empty store."""
    assert host.store.desired().active is None
    refused = host.get("/readyz")
    assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
    assert "redeploy" in refused.json()["detail"]
    assert host.post(RED).status_code == 503
    outcome = host.redeploy(bundles[0])
    assert outcome.status == "converged", outcome.message
    assert host.ready()
    assert {worker.active for worker in host.store.workers()} == {bundles[0].name}


def test_every_way_gives_the_answer_of_the_detector_in_process(active: LiveHost, bundles: tuple[Path, Path]) -> None:
    """A16, A19; squares and strips, displayed orientation."""
    bundle = open_bundle(bundles[0])
    detector, rule = open_detector(bundle, builders.CPU), bundle.manifest.verdict
    for wh, orientation in (((640, 200), None), ((200, 640), 6), ((97, 61), 3), ((64, 64), None)):
        picture = builders.encode(builders.noisy_plate(wh), "jpeg", orientation)
        red = builders.encode(builders.plate(wh, ((0, 0, wh[0] // 2, wh[1] // 2), builders.RED)), "jpeg", orientation)
        for data in (picture, red):
            (found,) = detector.detect([decode_image(data, builders.LIMITS)], score_floor(rule))
            expected = judge(found, rule)[1].records(bundle.manifest.model.class_names)
            text = base64.b64encode(data).decode()
            ways: list[dict[str, Any]] = [
                {"content": data},
                {"content": data, "headers": {"content-type": "image/jpeg"}},
                {"files": {"image": ("a.jpg", data, "image/jpg")}},
                {"json": {"image": text}},
                {"json": {"image": f"data:image/jpeg;base64,{text}"}},
                {"content": data, "headers": {"content-type": "application/json"}},
                {"content": json.dumps({"image": text}).encode(), "headers": {"content-type": "image/jpeg"}},
            ]
            for way in ways:
                response = httpx.post(active.url + "/v1/inspect", timeout=30, trust_env=False, **way)
                answer = Inspection.model_validate_json(response.content)
                assert answer.detections == expected
                assert answer.image_wh == (wh if orientation != 6 else wh[::-1])


def test_bad_input_is_never_a_500(active: LiveHost) -> None:
    json_type = {"headers": {"content-type": "application/json"}}
    table: dict[str, tuple[int, bytes, dict[str, Any]]] = {
        "nothing": (400, b"", {}),
        "torn JSON": (400, b"{", json_type),
        "no base64": (400, b'{"image": "***"}', json_type),
        "compressed": (415, b"\x1f\x8b\x08", {"headers": {"content-encoding": "gzip"}}),
        "frame that does not fit": (400, RED, {"headers": {"X-Passline-Frame": "shape=48,64,3; order=rgb"}}),
        "broken form": (400, b"x", {"headers": {"content-type": "multipart/form-data; boundary=e"}}),
        "text": (415, b"this is a text and not a picture", {}),
        "cut off": (422, RED[:90], {}),
        "too large": (413, b"\xff" * 3_000_000, {}),
        "too large for anything": (413, b"\xff" * 60_000_000, {}),
    }
    got = {name: active.post(body, **request) for name, (_, body, request) in table.items()}
    assert {name: answer.status_code for name, answer in got.items()} == {name: row[0] for name, row in table.items()}
    for answer in got.values():
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert active.get("/v1/nothing").headers["content-type"] == "application/problem+json"
    assert active.post(RED).status_code == 200


def test_a_frame_and_a_list_are_answered_as_pictures_are(active: LiveHost) -> None:
    plate = builders.plate((64, 48), ((0, 0, 32, 24), builders.RED))
    expected = active.post(RED).json()["detections"]
    header = {"X-Passline-Frame": "shape=48,64,3; order=bgr"}
    assert active.post(plate[..., ::-1].tobytes(), headers=header).json()["detections"] == expected
    text = base64.b64encode(RED).decode()
    listed = active.post(json.dumps({"images": [text, "***", text]}).encode()).json()["inspections"]
    assert [one.get("status", 200) for one in listed] == [200, 400, 200]
    assert listed[0]["detections"] == listed[2]["detections"] == expected


def test_bombs_are_refused_at_constant_memory(active: LiveHost) -> None:
    """A file of some bytes that claims gigabytes, in every way that we know."""
    workers = [psutil.Process(worker.pid) for worker in active.store.workers()]
    names = ["png: a chunk of 4 GB", "tiff: huge tiles", "jpeg: strip of 65535 x 65535", "png: text bomb"]
    bombs = [(REFUSED.get(name) or READ[name])[0] for name in names]
    peaks: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            peaks.append(max(worker.memory_info().rss for worker in workers))
            time.sleep(0.005)

    active.post(bombs[0])
    before = max(worker.memory_info().rss for worker in workers)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            statuses = [answer.status_code for answer in pool.map(active.post, bombs * 20)]
    finally:
        done.set()
        watcher.join()
    assert set(statuses) <= {200, 413, 422, 429, 503}
    assert max(peaks) - before < 64 * 2**20
    assert active.post(RED).status_code == 200


def test_every_nasty_file_gets_a_clear_answer(active: LiveHost) -> None:
    for file in sorted((builders.shared_data() / "nasty").glob("*.*")):
        answer = active.post(file.read_bytes())
        assert answer.status_code in (200, 400, 413, 415, 422), file.name
        assert answer.status_code == 200 or answer.json()["detail"], file.name


def test_a_chunked_flood_is_refused_while_it_is_still_sent(active: LiveHost) -> None:
    sent = 0

    def flood() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(4000):
            sent += 1
            yield b"\xff" * 100_000

    # The connection may be closed under the flood: as good, so long as it ends early.
    with suppress(httpx.WriteError, httpx.ReadError):
        assert active.post(flood()).status_code == 413
    assert sent < 2000


def test_eight_at_once_are_answered_in_fewer_engine_calls(active: LiveHost) -> None:
    # Slow decoding would spread the arrivals: many rounds, and one shared call is enough.
    before = active.sample("passline_engine_batch_size_count")

    async def rounds() -> list[int]:
        sizes: list[int] = []
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            for _ in range(20):
                posts = (client.post(active.url + "/v1/inspect", content=RED) for _ in range(8))
                sizes += [answer.json()["batch_size"] for answer in await asyncio.gather(*posts)]
        return sizes

    sizes = asyncio.run(rounds())
    assert max(sizes) > 1
    assert active.sample("passline_engine_batch_size_count") - before < len(sizes)
    assert active.sample("passline_engine_batch_size_sum") >= len(sizes)


def test_neighbours_of_a_bad_picture_get_their_own_answers(active: LiveHost) -> None:
    """A18."""
    sizes = [(64, 48), (48, 64), (100, 20), (20, 100), (33, 77), (160, 120)]
    colours = [builders.RED, builders.GREEN] * 3
    plates = [builders.plate(wh, ((0, 0, *wh), colour)) for wh, colour in zip(sizes, colours, strict=True)]
    pictures = [*map(builders.encode, plates), RED[:60], b"no picture, sorry"]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            answers = list(pool.map(active.post, pictures))
            assert [answer.status_code for answer in answers] == [200] * 6 + [422, 415]
            for answer, wh, colour in zip(answers, sizes, colours, strict=False):
                body = answer.json()
                assert body["image_wh"] == list(wh)
                assert {found["class_name"] for found in body["detections"]} == {
                    "red" if colour == builders.RED else "green"
                }


class Load:
    """Clients that post all the time, and what they got, with the time at which each request was sent."""

    def __init__(self, host: LiveHost, second: str, clients: int = 4) -> None:
        self.host, self.second = host, second
        self.answers: list[tuple[float, int, str]] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._post) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _post(self) -> None:
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self._stop.is_set():
                sent_at = time.monotonic()
                try:
                    answer = client.post(self.host.url + "/v1/inspect", content=RED)
                except httpx.HTTPError as error:
                    self.answers.append((sent_at, 0, repr(error)))
                    continue
                body = answer.json()
                digest, classes = body.get("release", {}).get("digest", ""), body.get("detections", [{}])[0]
                expected = "crimson" if digest == self.second else "red"
                right = classes.get("class_name") == expected
                self.answers.append((sent_at, answer.status_code if right else -1, digest))

    def wait_for(self, count: int) -> None:
        goal = len(self.answers) + count
        wait_until(lambda: len(self.answers) >= goal, 60, f"{count} more answers")


def test_a_swap_under_load_fails_no_request_and_reaches_every_worker(
    active: LiveHost, bundles: tuple[Path, Path]
) -> None:
    """A21."""
    first, second = bundles[0].name, bundles[1].name
    with Load(active, second) as load:
        load.wait_for(100)
        outcome = active.redeploy(bundles[1])
        converged_at = time.monotonic()
        load.wait_for(200)
    assert outcome.status == "converged", outcome.message
    assert {status for _, status, _ in load.answers} == {200}
    assert {digest for _, _, digest in load.answers} == {first, second}
    assert {digest for sent_at, _, digest in load.answers if sent_at > converged_at} == {second}
    again = active.redeploy(bundles[1])
    assert (again.status, again.generation) == ("converged", outcome.generation)


def test_a_broken_candidate_is_refused_while_the_old_release_answers(
    active: LiveHost, bundles: tuple[Path, Path], tmp_path: Path
) -> None:
    """A20: broken in two ways; ready all the time, version unchanged, the metric counts."""
    before = active.store.desired()
    counted = active.sample("passline_release_refused_total")
    codes: list[int] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            codes.append(active.get("/readyz").status_code)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        # Damaged in the store after it was brought in: the agent itself sees it.
        broken = builders.make_bundle(tmp_path, version="rotten")
        active.store.add_bundle(broken, broken.name)
        (active.store.releases / broken.name / MODEL_FILE).write_bytes(b"rot")
        outcome = active.activate(broken.name)
        assert outcome.status == "refused"
        assert MODEL_FILE in outcome.message
        # Every byte as sealed, but it does not reproduce its golden pictures: the workers see it.
        liar = builders.make_bundle(tmp_path, version="liar", model=builders.colour_stub(gain=1.0))
        liar = reseal_with_model(liar, builders.colour_stub(gain=0.5))
        outcome = active.redeploy(liar)
        assert outcome.status == "failed"
        assert "refused release" in outcome.message
    finally:
        stop.set()
        poller.join()
    assert set(codes) == {200}
    after = active.store.desired()
    assert (after.active, after.previous, after.candidate) == (before.active, before.previous, None)
    assert active.post(RED).json()["release"]["digest"] == bundles[0].name
    assert active.sample("passline_release_refused_total") > counted


def reseal_with_model(bundle: Path, model: bytes) -> Path:
    """The same bundle around another model, sealed again, with the golden detections of the old one."""
    opened = open_bundle(bundle)
    draft = bundle.rename(bundle.with_name("draft-liar"))
    (draft / MODEL_FILE).write_bytes(model)
    files = {**opened.manifest.files, MODEL_FILE: builders.list_files(draft)[MODEL_FILE]}
    digest = write_manifest(draft, opened.manifest.model_copy(update={"files": files}))
    return draft.rename(draft.with_name(digest))


def test_rollback_returns_and_a_second_one_is_refused(active: LiveHost, bundles: tuple[Path, Path]) -> None:
    assert active.redeploy(bundles[1]).status == "converged"
    outcome = active.rollback()
    assert (outcome.status, outcome.active) == ("converged", bundles[0].name)
    assert active.post(RED).json()["release"]["digest"] == bundles[0].name
    assert active.rollback().status == "refused"


def test_an_agent_that_is_killed_takes_the_wish_up_again(active: LiveHost, bundles: tuple[Path, Path]) -> None:
    active.processes.pop("agent").kill()
    active.store.add_bundle(bundles[1], bundles[1].name)
    intent = active.hand_in(bundles[1].name)
    time.sleep(0.5)
    assert active.store.outcome(intent.intent_id) is None
    active.start("agent")
    wait_until(lambda: active.store.outcome(intent.intent_id), 60, "the wish is answered")
    assert active.post(RED).json()["release"]["digest"] == bundles[1].name


def test_a_torn_release_file_changes_nothing(active: LiveHost) -> None:
    whole = active.store.desired_file.read_bytes()
    active.store.desired_file.write_bytes(whole[:20])
    wait_until(lambda: active.status().degraded, 10, "the torn file is reported")
    assert active.ready()
    assert active.post(RED).status_code == 200
    assert active.sample("passline_release_state_unreadable_total") >= 1
    active.store.desired_file.write_bytes(whole)
    wait_until(lambda: not active.status().degraded, 10, "the mended file is taken up")


def test_metrics_are_summed_over_the_workers(active: LiveHost) -> None:
    before = active.sample("passline_requests_total")
    for _ in range(30):
        httpx.post(active.url + "/v1/inspect", content=RED, timeout=30, trust_env=False)  # a new connection each
    assert active.sample("passline_requests_total") == before + 30
    assert active.sample("passline_release_info") == 2
    assert active.get("/no-such-path").status_code == 404
    assert "no-such-path" not in active.get("/metrics").text, "anyone could fill the metrics with labels"


def test_the_operator_can_compare_the_fingerprint(active: LiveHost) -> None:
    settings = HostSettings.model_validate({**active.settings, "store": str(active.store.root)})
    status = active.status()
    assert status.fingerprint == serving_fingerprint(settings)
    assert status.threads >= 1  # A22: never ONNX Runtime's 0
    assert status.provider == "cpu"


def test_a_killed_worker_comes_back_and_serves(active: LiveHost, bundles: tuple[Path, Path]) -> None:
    victim = active.store.workers()[0].pid
    os.kill(victim, signal.SIGKILL)

    def replaced() -> bool:
        reports = active.store.workers()
        return len(reports) == 2 and all(report.pid != victim and report.active for report in reports)

    wait_until(replaced, 60, "a new worker serves")
    assert active.redeploy(bundles[0]).status == "converged"


def test_a_restart_needs_the_store_alone_and_work_in_flight_is_finished(
    active: LiveHost, bundles: tuple[Path, Path]
) -> None:
    active.stop("agent")
    results: list[int] = []

    def slow_upload() -> Iterator[bytes]:
        yield RED[:50]
        time.sleep(1.5)
        yield RED[50:]

    client = threading.Thread(target=lambda: results.append(active.post(slow_upload()).status_code))
    client.start()
    time.sleep(0.5)
    active.stop("service")
    client.join()
    assert results == [200]
    active.start("service")
    wait_until(active.ready, 60, "ready again")
    assert active.post(RED).json()["release"]["digest"] == bundles[0].name
    active.start("agent")


def test_the_api_page_is_ours_and_complete(active: LiveHost) -> None:
    page = active.get("/")
    assert "googletagmanager" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    for asset in ("swagger-ui.css", "swagger-ui-bundle.js"):
        assert active.get(f"/static_content/{asset}").status_code == 200
    assert "/v1/inspect" in active.get("/openapi.json").json()["paths"]
    assert "/v1/inspect" in active.get("/docs.json").json()["paths"]


def test_workers_end_when_their_arbiter_is_killed(active: LiveHost) -> None:
    service = active.processes.pop("service")
    workers = psutil.Process(service.popen.pid).children()
    assert len(workers) == 2
    service.popen.kill()
    service.popen.wait(10)
    _, alive = psutil.wait_procs(workers, timeout=30)
    service.kill()
    assert alive == []
    active.start("service")
    wait_until(active.ready, 60, "ready again")


def test_it_refuses_to_listen_to_others(tmp_path: Path) -> None:
    live = LiveHost(tmp_path, service_host="0.0.0.0")
    try:
        with pytest.raises(AssertionError):
            live.start("service")
        assert "PASSLINE_SERVICE_HOST" in live.output("service")
        assert live.processes["service"].popen.returncode == 1
    finally:
        live.kill()
