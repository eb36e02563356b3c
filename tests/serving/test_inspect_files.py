from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import builders
from builders import BLUE, LIMITS, RED, encode, plate
from data_contracts.detections import Detection, Verdict
from data_contracts.errors import BundleError, InvalidInput
from data_contracts.inspection import Inspection, ProblemDetails, ReleaseRef
from serving.images import read_image
from serving.inspect_files import inspect_files


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return builders.first_bundle(tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def pictures(tmp_path) -> list[Path]:
    files = {
        "red.png": encode(plate((64, 48), background=RED)),
        "broken.jpg": encode(plate(), "jpeg")[:-100],
        "blue.png": encode(plate((32, 80), background=BLUE)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in (*files, "missing.png")]


def test_a_bad_file_is_reported_by_name_and_the_others_go_on(bundle, pictures):
    red, broken, blue, missing = inspect_files(pictures, bundle=bundle)
    assert (red.answer.verdict, red.answer.image_wh) == (Verdict.NG, (64, 48))
    assert {found.class_name for found in red.answer.detections} == {"red"}
    assert red.answer.release.digest == bundle.name
    assert (blue.answer.verdict, blue.answer.detections) == (Verdict.OK, ())
    assert "cut off" in broken.error
    assert "No such file" in missing.error
    assert [one.file for one in (red, broken, blue, missing)] == [str(path) for path in pictures]
    assert (broken.answer, missing.answer) == (None, None)


def test_drawings_are_written_under_names_of_their_own(bundle, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.png").write_bytes(encode(plate((64, 48), background=RED)))
    paths = [tmp_path / "a" / "part.png", tmp_path / "b" / "part.png"]
    before = paths[0].read_bytes()
    answers = inspect_files(paths, bundle=bundle, annotate_dir=tmp_path / "a")
    assert [Path(answer.annotated).name for answer in answers] == ["part-inspected.png", "part-inspected-2.png"]
    assert read_image(Path(answers[0].annotated), LIMITS).shape[1] == 64 * 7
    assert paths[0].read_bytes() == before


def test_a_bad_bundle_is_refused_before_any_picture(pictures, tmp_path):
    with pytest.raises(BundleError):
        inspect_files(pictures, bundle=tmp_path / "none")


@pytest.mark.parametrize("places", [{}, {"url": "http://x", "bundle": Path("b")}], ids=["neither", "both"])
def test_exactly_one_place_to_ask(places):
    with pytest.raises(InvalidInput, match="Give one of the two"):
        inspect_files([], **places)


ANSWER = Inspection(
    request_id="r",
    verdict=Verdict.NG,
    detections=(Detection(class_id=0, class_name="red", score=0.9, box_xyxy_px=(0, 0, 9, 9)),),
    image_wh=(64, 48),
    release=ReleaseRef(digest="a" * 64, name="plates", version="1"),
    batch_size=1,
    timings_ms={},
)


class FakeService(BaseHTTPRequestHandler):
    """Answers every picture that starts like a PNG, refuses the others, and knows one path."""

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/inspect":
            status, body = 404, "<html>not here</html>"
        elif data.startswith(b"\x89PNG"):
            status, body = 200, ANSWER.to_json()
        else:
            problem = ProblemDetails(title="Undecodable", status=422, detail="it is cut off", request_id="r")
            status, body = 422, problem.model_dump_json()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeService) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_service_answers(service, pictures):
    red, broken, *_ = inspect_files(pictures, url=f"{service}/")
    assert red.answer.verdict == Verdict.NG
    assert red.answer.detections == ANSWER.detections
    assert broken.error == "Undecodable (422): it is cut off"


def test_another_server_s_answer_is_not_taken_for_one(service, pictures):
    (red,) = inspect_files(pictures[:1], url=f"{service}/elsewhere")
    assert "status 404" in red.error
    assert "address of a Passline service" in red.error


def test_a_service_that_is_down_is_named(pictures):
    (red,) = inspect_files(pictures[:1], url="http://127.0.0.1:9")
    assert "http://127.0.0.1:9/v1/inspect" in red.error
