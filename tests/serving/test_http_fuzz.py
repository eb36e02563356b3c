"""Some hundred damaged requests, the same ones each time, good pictures between them; `benchmarks.fuzz` runs longer."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import httpx
import pytest

import builders
from benchmarks.fuzz import check, memory_growth_mb
from benchmarks.mutations import cases, damaged_picture, mutate, seed_pictures, with_checksums
from benchmarks.tiny_bundle import make_tiny_bundle
from door import INSPECT, Door
from serving.bundle import open_bundle
from serving.detector import check_golden, open_detector

RED = builders.encode(builders.plate((64, 48), ((0, 0, 32, 24), builders.RED)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_damage_breaks_the_service(opened: Door, seed: int) -> None:
    opened.start(max_bytes=4 * 2**20, max_pixels=4_000_000, deadline_s=30.0)

    async def story(client: httpx.AsyncClient) -> list[int]:
        expected = (await client.post(INSPECT, content=RED)).json()["detections"]
        statuses = []
        for number, case in enumerate(itertools.islice(cases(seed), 150)):
            answer = await client.post(case.path, content=case.body, headers=case.headers)
            items = check(answer.status_code, answer.headers["content-type"], answer.content)
            statuses += [answer.status_code, *items]
            if number % 10 == 0:
                assert (await client.post(INSPECT, content=RED)).json()["detections"] == expected
        return statuses

    statuses = opened.run(story)
    assert 500 not in statuses
    assert {200, 400, 415, 422} <= set(statuses), "the requests do not reach all of the door"


def test_the_same_seed_gives_the_same_requests() -> None:
    assert list(itertools.islice(cases(7), 40)) == list(itertools.islice(cases(7), 40))
    assert next(cases(7)) != next(cases(8))


def test_nearly_every_seed_picture_is_whole(opened: Door) -> None:
    statuses = [opened.inspect(content=picture).status_code for picture in seed_pictures()]
    assert statuses.count(415) == 3  # a transparent TIFF, a GIF and a text
    assert statuses.count(200) == len(statuses) - 3


def test_checksums_are_mended() -> None:
    png = next(picture for picture in seed_pictures() if picture.startswith(b"\x89PNG"))
    assert with_checksums(png) == png
    assert with_checksums(png[:20] + b"\x01" + png[21:])[29:33] != png[29:33]


@pytest.mark.parametrize("data", [b"", b"x"])
def test_nothing_can_be_damaged_too(data: bytes) -> None:
    for seed in range(20):
        mutate(random.Random(seed), data)
        assert isinstance(damaged_picture(random.Random(seed)), bytes)


@pytest.mark.parametrize(
    ("status", "content_type", "content"),
    [
        (302, "", b""),
        (200, "application/json", b'{"verdict": "OK"}'),
        (422, "application/json", b'{"title": "t", "status": 422, "detail": "d", "request_id": "r"}'),
        (422, "application/problem+json", b'{"title": "t", "status": 400, "detail": "d", "request_id": "r"}'),
        (422, "application/problem+json", b"<html>"),
    ],
    ids=["redirect", "half an inspection", "wrong type", "wrong status", "HTML"],
)
def test_a_malformed_answer_is_seen(status: int, content_type: str, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        check(status, content_type, content)


def test_growth_is_that_of_the_second_half() -> None:
    assert memory_growth_mb([50.0] * 10 + [100.0] * 10) == 0
    assert memory_growth_mb([50.0] * 10 + [float(value) for value in range(100, 110)]) == 8.0
    assert memory_growth_mb([1.0] * 4) is None


def test_the_tiny_bundle_is_a_whole_one(tmp_path: Path) -> None:
    bundle = open_bundle(make_tiny_bundle(tmp_path))
    check_golden(open_detector(bundle, builders.CPU), bundle)
    assert any(picture.detections for picture in bundle.golden.pictures)
