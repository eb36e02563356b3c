from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import builders
from builders import BLUE, LIMITS, RED, encode, plate
from data_contracts.detections import Detection, Verdict
from data_contracts.errors import BundleError, InvalidInput, OutsideSystemError
from data_contracts.inspection import Inspection, ProblemDetails, ReleaseRef
from deployments.cli import app
from serving.images import read_image
from serving.inspect_files import FileInspection, inspect_files


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


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://127.0.0.1:9/", "127.0.0.1:9", "http://[", ""])
def test_nobody_answering_is_said_once_and_before_any_picture(pictures, url):
    with pytest.raises(OutsideSystemError, match="Is the service up"):
        inspect_files(pictures, url=url)


def test_a_folder_stands_for_its_pictures(bundle, pictures, tmp_path):
    (tmp_path / "labels.txt").write_text("0 0.5 0.5 1 1")
    (tmp_path / "._red.png").write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "deeper").mkdir()
    answers = inspect_files([tmp_path, pictures[0]], bundle=bundle)
    assert [Path(answer.file).name for answer in answers] == ["blue.png", "broken.jpg", "red.png", "red.png"]


def odd_files(folder: Path) -> dict[Path, str]:
    """Files that are no pictures, and words of what is said about them."""
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "text.jpg").write_text("<html>404</html>")
    (folder / "nothing.jpg").touch()
    with (folder / "huge.png").open("wb") as file:
        file.truncate(2**31)
    return {
        folder / "empty": "picture files in it",
        folder / "pipe.png": "a plain file",
        folder / "text.jpg": "text starting with",
        folder / "nothing.jpg": "no bytes",
        folder / "huge.png": "at most 1073741824 bytes",
        folder / "missing.png": "No such file or directory: ",
    }


def test_every_odd_file_is_reported_and_none_stops_the_others(bundle, pictures, tmp_path):
    odd = odd_files(tmp_path)
    answers = inspect_files([*odd, pictures[0]], bundle=bundle)
    for answer, (path, words) in zip(answers, odd.items(), strict=False):
        assert answer.file == str(path)
        assert words in answer.error
    assert answers[-1].answer.verdict == Verdict.NG


def test_a_name_that_is_no_text_can_be_printed(bundle, tmp_path):
    file = tmp_path / os.fsdecode(b"part-\xff.png")
    file.write_bytes(encode(plate((64, 48), background=RED)))
    (answer,) = inspect_files([file], bundle=bundle, annotate_dir=tmp_path)
    assert answer.file.endswith("part-\ufffd.png")
    assert answer.answer.verdict == Verdict.NG
    assert json.dumps(answer.model_dump(mode="json"))


def test_an_answer_is_kept_when_only_its_drawing_fails(bundle, pictures, tmp_path):
    (tmp_path / "taken").touch()
    (answer,) = inspect_files(pictures[:1], bundle=bundle, annotate_dir=tmp_path / "taken")
    assert answer.answer.verdict == Verdict.NG
    assert str(tmp_path / "taken") in answer.error


class TestCommand:
    @staticmethod
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["inspect", *map(str, arguments)])

    def test_all_well_is_exit_0(self, bundle, pictures):
        result = self.run(pictures[0], pictures[2], "--bundle", bundle)
        assert result.exit_code == 0
        red, blue = result.stdout.splitlines()
        assert red.startswith(f"{pictures[0]}: NG  red ")
        assert blue == f"{pictures[2]}: OK  no defect"

    def test_one_bad_file_is_exit_1_and_all_are_reported(self, bundle, pictures):
        result = self.run(*pictures, "--bundle", bundle)
        assert result.exit_code == 1
        assert len(result.stdout.splitlines()) == 2
        assert "broken.jpg: not inspected: " in result.stderr
        assert "missing.png: not inspected: No such file" in result.stderr

    def test_json_is_one_list_also_with_errors(self, bundle, pictures, tmp_path):
        result = self.run(*pictures, "--bundle", bundle, "--json", "--annotate", tmp_path / "out")
        assert result.exit_code == 1
        listed = [FileInspection.model_validate(one) for one in json.loads(result.stdout)]
        assert [one.answer is not None for one in listed] == [True, False, True, False]
        assert Path(listed[0].annotated).is_file()

    def test_nobody_answering_is_a_plain_error(self, pictures):
        result = self.run(pictures[0], "--url", "http://127.0.0.1:9")
        assert isinstance(result.exception, OutsideSystemError)  # `main` makes exit 2 of it
