"""Pictures through the door: every nasty file, and several pictures in one request (A12, A16, A18, A19)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import builders
from data_contracts.inspection import Inspection, InspectionList, PictureProblem
from door import ANNOTATED, INSPECT, Door, problem
from fakes import counted

# --- the nasty files ----------------------------------------------------------------------------------------------

REFUSED = {
    "bad_width.bmp": 413,
    "bomb_30000x30000_1bit.png": 413,
    "zero_bytes.jpg": 400,
    "truncated_progressive.jpg": 422,
    "truncated.png": 422,
    "broken_stream.png": 422,
    "bad_crc.png": 422,
    "tiny_1px.png": 422,
}
"""Status of what the manifest does not demand to be accepted; everything else is a kind that we do not read: 415."""

DISPLAYED_WH = {
    "exif_orientation_3.jpg": (1200, 1800), "exif_orientation_6.jpg": (1200, 1800),
    "exif_orientation_3.png": (512, 512), "tiff_1bit_orientation_6.tif": (590, 88), "exif_broken.jpg": (500, 500),
    "cmyk_adobe.jpg": (100, 100), "gray16.png": (32, 32), "rgb16.tiff": (100, 40), "palette.png": (32, 32),
    "palette_transparent.png": (64, 64), "rgba16.png": (32, 32), "rgba.png": (200, 150), "bit1.png": (32, 32),
    "interlaced16.png": (32, 32), "progressive.jpg": (256, 160), "junk_header.jpg": (1024, 768),
    "trailing_garbage.jpg": (480, 360), "mpo_as_jpg.jpg": (640, 480), "really_png.jpg": (128, 128),
    "plain.bmp": (127, 64), "plain.webp": (128, 128),
}  # fmt: skip
"""Width and height as displayed, from the manifest; the renamed copies of one picture are 128 x 128."""


@pytest.fixture
def open_door(opened: Door) -> Door:
    """With the limits that a host has by default."""
    opened.start(max_bytes=32 * 2**20, max_pixels=64_000_000)
    return opened


def nasty() -> tuple[Path, list[dict[str, Any]]]:
    folder = builders.shared_data() / "nasty"
    entries: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert len(entries) > 40
    return folder, entries


def test_every_nasty_file_gets_what_its_manifest_calls_right(open_door: Door) -> None:
    folder, entries = nasty()
    for entry in entries:
        name, data = entry["file"], (folder / entry["file"]).read_bytes()
        response = open_door.inspect(content=data, headers={"content-type": "image/jpeg"})
        if response.status_code == 200:
            assert entry["expect"].startswith("accept"), name
            answer = Inspection.model_validate_json(response.content)
            assert answer.image_wh == DISPLAYED_WH.get(name, (128, 128)), name
        else:
            assert entry["expect"] != "accept", f"{name}: {response.text}"
            assert len(problem(response, REFUSED.get(name, 415)).detail) > 20, name


def test_the_name_in_a_form_matters_to_nobody(open_door: Door) -> None:
    """As browsers, curl and httpx write names with quotes, percent signs and other alphabets."""
    folder, entries = nasty()
    data = (folder / "plain.bmp").read_bytes()
    expected = open_door.inspect(content=data).json()["detections"]
    for entry in entries:
        name = entry["file"]
        escaped = name.replace("%", "%25").replace('"', "%22")
        raw_utf8 = f'Content-Disposition: form-data; name="image"; filename="{escaped}"\r\n\r\n'.encode()
        bodies = [
            httpx.Request("POST", "http://x", files={"image": (name, data, "text/html")}).read(),
            b"--e\r\n" + raw_utf8 + data + b"\r\n--e--\r\n",
        ]
        for body in bodies:
            assert open_door.inspect(content=body).json()["detections"] == expected, name


def test_what_is_refused_is_refused_in_a_form_too(open_door: Door) -> None:
    folder, _ = nasty()
    for name, status in REFUSED.items():
        data = (folder / name).read_bytes()
        problem(open_door.inspect(files={"image": ("a.png", data, "image/png")}), status)
        problem(open_door.inspect(json={"image": base64.b64encode(data).decode()}), status)


# --- several pictures ---------------------------------------------------------------------------------------------

RED = builders.encode(builders.plate((64, 48), ((0, 0, 64, 48), builders.RED)))
GREEN = builders.encode(builders.plate((33, 77), ((0, 0, 33, 77), builders.GREEN)))
PLAIN = builders.encode(builders.plate((160, 120)))
BAD, TEXT = RED[:60], b"no picture at all, sorry"
MIXED = [RED, BAD, GREEN, TEXT, PLAIN, b"", RED]
STATUS = [200, 422, 200, 415, 200, 400, 200]


def as_form(pictures: list[bytes]) -> dict[str, Any]:
    return {"files": [("image", ("a.png", data, "image/png")) for data in pictures]}


def as_json(pictures: list[bytes]) -> dict[str, Any]:
    return {"json": {"images": [base64.b64encode(data).decode() for data in pictures]}}


def listed(response: httpx.Response) -> tuple[Inspection | PictureProblem, ...]:
    assert response.status_code == 200, response.text
    return InspectionList.model_validate_json(response.content).inspections


@pytest.mark.parametrize("way", [as_form, as_json])
def test_each_picture_gets_its_own_answer_and_no_bad_one_touches_its_neighbours(door: Door, way: Any) -> None:
    response = door.inspect(**way(MIXED), headers={"X-Request-Id": "part-7"})
    answers = listed(response)
    assert [answer.status if isinstance(answer, PictureProblem) else 200 for answer in answers] == STATUS
    for index, (answer, data) in enumerate(zip(answers, MIXED, strict=True)):
        assert answer.request_id == f"part-7.{index}"
        if isinstance(answer, PictureProblem):
            assert answer.index == index
            assert len(answer.detail) > 10
            continue
        alone = door.inspect(content=data).json()
        assert answer.model_dump(mode="json")["detections"] == alone["detections"]
        assert [*answer.image_wh] == alone["image_wh"]
        assert answer.verdict.value == alone["verdict"]
    assert response.headers["x-passline-release"] == door.bundle.digest
    assert "x-passline-verdict" not in response.headers


def test_they_go_through_the_engine_together(door: Door) -> None:
    listed(door.inspect(**as_json([RED] * 8)))
    assert sum(door.engine.sizes) == 8
    assert len(door.engine.sizes) < 8


def test_a_list_of_one_is_a_list_and_a_form_of_one_is_not(door: Door) -> None:
    assert len(listed(door.inspect(**as_json([RED])))) == 1
    assert Inspection.model_validate_json(door.inspect(**as_form([RED])).content).image_wh == (64, 48)


@pytest.mark.parametrize("way", [as_form, as_json])
def test_more_than_the_limit_is_refused_by_its_number(door: Door, way: Any) -> None:
    door.start(max_pictures=2)
    assert len(listed(door.inspect(**way([RED] * 2)))) == 2
    found = problem(door.inspect(**way([RED] * 3)), 413)
    assert "at most 2 pictures" in found.detail
    assert door.engine.sizes in ([2], [1, 1])


def test_only_one_picture_can_be_drawn_on(door: Door) -> None:
    assert "one picture" in problem(door.ask("POST", ANNOTATED, **as_json([RED, RED])), 400).detail
    assert door.engine.sizes == []


def test_overload_and_failure_stay_with_their_pictures(door: Door) -> None:
    door.start(max_queue=1, max_batch=1)
    answers = listed(response := door.inspect(**as_json([RED] * 6)))
    refused = [answer for answer in answers if isinstance(answer, PictureProblem)]
    assert 0 < len(refused) < 6
    assert {answer.status for answer in refused} == {503}
    assert int(response.headers["retry-after"]) >= 1
    assert counted(door.host.metrics, "passline_overloaded_total") == len(refused)


def test_a_deadline_stays_with_the_pictures_that_it_passes(door: Door) -> None:
    door.start(deadline_s=0.4, max_batch=1)
    door.engine.delay_s = 0.25
    answers = listed(door.inspect(**as_json([RED] * 3)))
    assert {answer.status if isinstance(answer, PictureProblem) else 200 for answer in answers} <= {200, 503, 504}
    assert isinstance(answers[0], Inspection)
    assert any(isinstance(answer, PictureProblem) for answer in answers)


def test_a_failing_engine_is_never_an_empty_answer_in_a_list(door: Door) -> None:
    door.engine.short_by = 1
    for answer in listed(door.inspect(**as_json([RED] * 3))):
        assert isinstance(answer, PictureProblem)
        assert answer.status == 500


def test_frames_and_files_may_be_mixed(door: Door) -> None:
    frame = builders.plate((64, 48), ((0, 0, 64, 48), builders.RED))[..., ::-1].tobytes()
    item = {"shape": [48, 64, 3], "order": "bgr", "data": base64.b64encode(frame).decode()}
    one, two = listed(door.inspect(json={"images": [base64.b64encode(RED).decode(), item]}))
    assert isinstance(one, Inspection)
    assert isinstance(two, Inspection)
    assert one.detections == two.detections != ()


def test_the_list_is_in_the_metrics_and_timings(door: Door) -> None:
    response = door.inspect(**as_form([RED, GREEN]))
    assert counted(door.host.metrics, "passline_requests_total", route=INSPECT, status="200", verdict="") == 1
    assert counted(door.host.metrics, "passline_stage_seconds_count", stage="infer") == 2
    assert {part.split(";")[0] for part in response.headers["server-timing"].split(", ")} == {
        "receive",
        "decode",
        "total",
    }
