from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fakes import FakeReleases
from serving.status import is_live, is_ready, service_status

ANSWERS: dict[str, tuple[int, str]] = {}


class Service(BaseHTTPRequestHandler):
    """Answers what the test put down."""

    def do_GET(self) -> None:
        status, text = ANSWERS.get(self.path, (404, ""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "text", "known"),
    [
        (200, FakeReleases().status().model_dump_json(), True),
        (200, '{"another": "service"}', False),
        (200, "<html>", False),
        (500, FakeReleases().status().model_dump_json(), False),
        (404, "", False),
    ],
    ids=["ours", "another service's JSON", "no JSON", "broken", "not found"],
)
def test_only_a_passline_service_counts(url: str, status: int, text: str, *, known: bool) -> None:
    ANSWERS.clear()
    ANSWERS["/v1/release"] = (status, text)
    assert (service_status(url) is not None) == known


def test_live_is_not_ready(url: str) -> None:
    ANSWERS.clear()
    ANSWERS.update({"/livez": (200, "{}"), "/readyz": (503, "{}")})
    assert is_live(url)
    assert not is_ready(url)


def test_nobody_there() -> None:
    assert service_status("http://127.0.0.1:9", timeout_s=1.0) is None
    assert not is_live("http://127.0.0.1:9", timeout_s=1.0)


def test_a_proxy_in_the_environment_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ANSWERS.clear()
    ANSWERS["/livez"] = (200, "{}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert is_live(url)
