from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.answers import agreement, boxes_in, check_answer
from benchmarks.http_answer import status_and_body, whole_length
from benchmarks.load import (
    LoadResult,
    Pictures,
    Target,
    loader,
    poisson_schedule,
    request_bytes,
    run_closed,
    run_open,
    slope_per_s,
    takt_schedule,
)

BODIES = tuple(bytes([65 + index]) * 50_000 for index in range(3))
BOXES = tuple(np.array([[0, 0, 10 + 50 * index, 10, 0.9, index]], np.float32) for index in range(3))


class Handler(BaseHTTPRequestHandler):
    """Answers with the box that belongs to the picture that came; `stall_s` and `mixed_up` make it misbehave."""

    protocol_version = "HTTP/1.1"
    stall_s: ClassVar[float] = 0.0
    mixed_up: ClassVar[int] = 0
    status: ClassVar[int] = 200
    hang_up: ClassVar[bool] = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert len(set(body)) == 1
        if type(self).stall_s:
            time.sleep(type(self).stall_s)
        if type(self).hang_up:
            self.close_connection = True
            return
        index = (body[0] - 65 + type(self).mixed_up) % 3
        answer = json.dumps({"detections": BOXES[index].tolist()}).encode()
        self.send_response(type(self).status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Handler], Target]]:
    handler = type("Own", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, Target(http.server_address[1])
        http.shutdown()
        thread.join()


def test_a_closed_loop_sends_all_and_every_answer_belongs_to_its_picture(server: tuple[type[Handler], Target]) -> None:
    result = run_closed(server[1], Pictures(BODIES, BOXES), clients=4, requests=40)
    assert (result.count, result.statuses, result.failed) == (40, {200: 40}, 0)
    assert len(result.latencies_s) == len(result.answered_at_s) == 40
    assert (result.latencies_s > 0).all()
    assert (np.diff(result.answered_at_s) >= 0).all()
    assert result.throughput_per_s > 0


def test_answers_of_other_pictures_are_found_out(server: tuple[type[Handler], Target]) -> None:
    server[0].mixed_up = 1
    result = run_closed(server[1], Pictures(BODIES, BOXES), clients=2, requests=12)
    assert (result.statuses, result.wrong, result.failed) == ({200: 12}, 12, 12)


def test_refusals_are_counted_by_status(server: tuple[type[Handler], Target]) -> None:
    server[0].status = 503
    result = run_closed(server[1], Pictures(BODIES), clients=2, requests=6)
    assert (result.statuses, result.wrong, result.failed) == ({503: 6}, 0, 6)


def test_a_broken_connection_counts_and_is_replaced(server: tuple[type[Handler], Target]) -> None:
    server[0].hang_up = True
    result = run_closed(server[1], Pictures(BODIES), clients=2, requests=6)
    assert (result.statuses, result.failed) == ({0: 6}, 6)


def test_an_open_loop_does_not_forgive_a_stall(server: tuple[type[Handler], Target]) -> None:
    """Due every 10 ms from one connection, answered after 50 ms: more connections open, and nothing is sent late."""
    server[0].stall_s = 0.05
    due_s = np.arange(10) * 0.01
    result = run_open(server[1], Pictures(BODIES, BOXES), due_s, connections=1)
    assert (result.count, result.failed) == (10, 0)
    assert result.latencies_s.min() >= 0.05
    assert result.last_sent_at_s >= due_s[-1]


def test_the_loader_sends_from_another_process(server: tuple[type[Handler], Target]) -> None:
    with loader() as load:
        result = load.closed(server[1], Pictures(BODIES, BOXES), 2, 8)
    assert (result.count, result.failed) == (8, 0)
    assert result.sender_cpu_s >= 0


def test_boxes_without_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="3 pictures, got 1"):
        Pictures(BODIES, BOXES[:1])


def test_the_request_is_whole() -> None:
    request = request_bytes(Target(3000), b"picture")
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b"picture"
    assert head.startswith(b"POST /v1/inspect HTTP/1.1\r\nHost: 127.0.0.1:3000")
    assert b"Content-Length: 7" in head


@pytest.mark.parametrize(
    ("data", "length"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n", -1, id="headers not complete"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 41, id="body to come"),
        pytest.param(b"HTTP/1.1 204 No\r\n\r\n", 19, id="no body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", -1, id="chunks to come"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 58, id="last chunk"),
    ],
)
def test_where_an_answer_ends(data: bytes, length: int) -> None:
    assert whole_length(data) == length


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", (200, b"ab"), id="length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
            (200, b"abc"),
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nab", (0, b"ab"), id="neither: nobody knows where it ends"),
        pytest.param(b"nonsense", (0, b""), id="no answer"),
    ],
)
def test_what_an_answer_says(answer: bytes, read: tuple[int, bytes]) -> None:
    assert status_and_body(answer) == read


def result(times: list[float], clients: int, last_sent_at_s: float) -> LoadResult:
    return LoadResult(np.array(times), np.array(times), {200: len(times)}, 0, last_sent_at_s, clients, 0.1)


def test_throughput_leaves_out_the_ramp_and_the_end() -> None:
    """Two clients: a slow first answer each, then ten a second, then a slow end when nothing is sent any more."""
    busy = [2.0 + 0.1 * index for index in range(11)]
    assert result([1.5, 1.9, *busy, 9.0, 10.0], 2, 3.05).throughput_per_s == pytest.approx(10.0)


def test_throughput_does_not_depend_on_how_answers_are_bunched() -> None:
    single = [0.1 * index for index in range(80)]
    bunched = [0.8 * (index // 8) for index in range(80)]
    assert slope_per_s(np.array(single)) == pytest.approx(10.0)
    assert slope_per_s(np.array(bunched)) == pytest.approx(10.0, rel=0.02)
    assert np.isnan(slope_per_s(np.array([1.0])))


def test_percentiles_are_in_milliseconds() -> None:
    assert result([0.1, 0.2, 0.3], 1, 1.0).percentile_ms(50) == pytest.approx(200.0)


def test_schedules() -> None:
    assert takt_schedule(3, 1.5, 3.0).tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    due_s = poisson_schedule(50.0, 20.0, seed=3)
    assert 800 < len(due_s) < 1200
    assert (np.diff(due_s) > 0).all()
    assert due_s[-1] < 20.0
    assert due_s.tolist() == poisson_schedule(50.0, 20.0, seed=3).tolist()


def boxes(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float32).reshape(-1, 6)


ONE, FAR = (0, 0, 50, 50, 0.9, 1), (200, 200, 250, 250, 0.9, 1)


@pytest.mark.parametrize(
    ("found", "expected", "share"),
    [
        pytest.param(boxes(), boxes(), 1.0, id="nothing in nothing"),
        pytest.param(boxes(ONE), boxes(), 1.0, id="more than expected is for the other direction"),
        pytest.param(boxes(), boxes(ONE), 0.0, id="missing"),
        pytest.param(boxes(ONE, FAR), boxes(FAR, ONE), 1.0, id="order does not matter"),
        pytest.param(boxes(ONE), boxes(ONE, FAR), 0.5, id="half"),
        pytest.param(boxes((0, 0, 50, 50, 0.9, 2)), boxes(ONE), 0.0, id="another class"),
    ],
)
def test_agreement(found: np.ndarray, expected: np.ndarray, share: float) -> None:
    assert agreement(found, expected) == share


def test_both_forms_of_an_answer_are_read() -> None:
    objects = {"detections": [{"box_xyxy_px": [0, 0, 50, 50], "score": 0.9, "class_id": 1, "class_name": "x"}]}
    rows = {"detections": [list(ONE)]}
    assert boxes_in(json.dumps(objects).encode()).tolist() == boxes_in(json.dumps(rows).encode()).tolist()
    assert check_answer(json.dumps(rows).encode(), boxes(ONE))
    assert not check_answer(json.dumps(rows).encode(), boxes())
    assert not check_answer(b"no JSON", boxes(ONE))
    assert not check_answer(b"{}", boxes())
