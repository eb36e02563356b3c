"""Which pictures become the probe set, and what is recorded about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import GREEN, RED, colour_stub, model_spec
from data_contracts.bundle import MODEL_FILE, VerdictRule
from data_contracts.detections import Verdict
from data_contracts.errors import DatasetError
from serving.bundle import hash_file
from serving.probe_files import ProbeFolder
from tasks.ground_truth import GroundTruth
from tasks.pictures import draft_detector
from tasks.probe import choose_probe, make_probe_set
from training_fakes import patch_picture, truth

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.25, 0.25), chosen_on="a test")


def split(good: int = 0, zeros: int = 0, ones: int = 0, both: int = 0) -> list[GroundTruth]:
    rows = {
        "good": (),
        "zero": ((0, 0, 5, 5, 0),),
        "one": ((0, 0, 5, 5, 1),),
        "both": ((0, 0, 5, 5, 0), (5, 5, 9, 9, 1)),
    }
    counts = {"good": good, "zero": zeros, "one": ones, "both": both}
    return [truth(*rows[kind], picture=f"{kind}{number}") for kind in rows for number in range(counts[kind])]


def counts_of(chosen: tuple[GroundTruth, ...]) -> dict[str, int]:
    kinds = [one.picture.name.rstrip("0123456789") for one in chosen]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


@pytest.mark.parametrize(
    ("pictures", "count", "expected"),
    [
        pytest.param(split(100, 100, 2), 9, {"good": 4, "zero": 3, "one": 2}, id="worked example"),
        pytest.param(split(2, 2, 2), 200, {"good": 2, "zero": 2, "one": 2}, id="fewer than wished for"),
        pytest.param(split(0, 9, 0), 3, {"zero": 3}, id="one class, no backgrounds"),
        pytest.param(split(0, 9, 0, 1), 4, {"zero": 3, "both": 1}, id="two classes stand for the rarest"),
        pytest.param(split(50, 1, 1), 3, {"good": 1, "zero": 1, "one": 1}, id="as many as groups"),
    ],
)
def test_backgrounds_and_every_class_are_among_them(pictures, count, expected):
    assert counts_of(choose_probe(pictures, count)) == expected


def test_the_same_split_gives_the_same_choice_spread_over_it():
    chosen = [one.picture.name for one in choose_probe(split(100), 4)]
    assert chosen == ["good0", "good25", "good50", "good75"]


def test_an_empty_split_is_refused():
    with pytest.raises(DatasetError, match="probe set: expected pictures"):
        choose_probe([], 5)


@pytest.fixture
def made(tmp_path: Path) -> ProbeFolder:
    pictures = [
        patch_picture(tmp_path, "red.png", (64, 64), ((0, 0, 32, 32), RED, 0)),
        patch_picture(tmp_path, "green.JPG", (128, 48), ((64, 0, 128, 48), GREEN, 1)),
        patch_picture(tmp_path, "good.png", (64, 64)),
    ]
    return make(tmp_path, pictures)


def make(tmp_path: Path, pictures: list[GroundTruth]) -> ProbeFolder:
    model = tmp_path / MODEL_FILE
    model.write_bytes(colour_stub())
    detector = draft_detector(model, model_spec())
    return make_probe_set(pictures, 200, detector, hash_file(model).sha256, RULE, tmp_path / "probes")


def test_pictures_keep_their_bytes_and_answers_are_those_of_the_reference(made: ProbeFolder, tmp_path: Path):
    assert [picture.file for picture in made.probe.pictures] == [
        "pictures/000.png", "pictures/001.png", "pictures/002.jpg",
    ]  # fmt: skip
    sources = ("good.png", "red.png", "green.JPG")
    for picture, source in zip(made.probe.pictures, sources, strict=True):
        assert (made.path / picture.file).read_bytes() == (tmp_path / source).read_bytes()
    assert [picture.verdict for picture in made.probe.pictures] == [Verdict.OK, Verdict.NG, Verdict.NG]
    assert {found.class_name for found in made.probe.pictures[2].detections} == {"green"}


def test_making_it_again_gives_the_same_one(made: ProbeFolder, tmp_path: Path):
    pictures = [
        truth((0, 0, 32, 32, 0), picture=tmp_path / "red.png", wh=(64, 64)),
        truth((64, 0, 128, 48, 1), picture=tmp_path / "green.JPG", wh=(128, 48)),
        truth(picture=tmp_path / "good.png", wh=(64, 64)),
    ]
    assert make(tmp_path, pictures).digest == made.digest
    assert [folder.name for folder in made.path.parent.iterdir()] == [made.digest]
