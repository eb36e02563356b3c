"""Calibration pictures: of the training split, of all kinds, prepared as the service does (A14)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from builders import model_spec, noisy_plate
from data_contracts.dataset import Split
from fakes import FakeEngine
from quantise_fakes import working_copy
from serving.bundle import hash_file
from serving.detector import Detector
from serving.images import ImageLimits, read_image
from tasks.ground_truth import TRUTH_FILE, read_ground_truth
from tasks.quantising.calibration import calibration_tensors, choose_calibration


@pytest.mark.parametrize("wh", [(64, 64), (640, 200), (200, 640), (61, 97)], ids=str)
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_calibration_tensors_are_those_of_the_service_bit_by_bit(tmp_path: Path, wh: tuple[int, int], suffix: str):
    """Neither 0-255, nor blue first, nor stretched: any of these would differ."""
    file = tmp_path / f"part{suffix}"
    assert cv2.imwrite(str(file), noisy_plate(wh)[:, :, ::-1])
    spec = model_spec(wh=(96, 64))
    (tensor,) = calibration_tensors([file], spec)
    served = Detector(spec, FakeEngine()).prepare(read_image(file, ImageLimits(2**24, 2**24))).tensor
    assert tensor.dtype == served.dtype == np.float32
    assert tensor.shape == (1, 3, 64, 96)
    assert tensor[0].tobytes() == served.tobytes()


def test_all_kinds_are_among_them_and_each_is_named_with_its_hash(tmp_path: Path):
    copy = working_copy(tmp_path)
    chosen = choose_calibration(copy, 3)
    kinds = {one.picture: tuple(one.class_ids) for one in read_ground_truth(copy, Split.TRAIN)}
    assert sorted(kinds[file] for file in chosen.files) == [(), (0,), (1,)]
    for file, named in zip(chosen.files, chosen.pictures, strict=True):
        assert copy / named.picture == file
        assert named.sha256 == hash_file(file).sha256
    assert choose_calibration(copy, 3) == chosen


def test_only_training_pictures_are_taken(tmp_path: Path):
    chosen = choose_calibration(working_copy(tmp_path), 500)
    assert sorted(one.picture for one in chosen.pictures) == [f"images/train/train{number}.png" for number in range(8)]


@pytest.mark.parametrize("split", [Split.VAL, Split.TEST])
def test_a_training_picture_that_lies_in_another_split_too_is_left_out(tmp_path: Path, split: Split):
    copy = working_copy(tmp_path)
    shutil.copyfile(copy / f"images/{split}/{split}0.png", copy / "images/train/train0.png")
    chosen = choose_calibration(copy, 500)
    assert sorted(file.name for file in chosen.files) == [f"train{number}.png" for number in range(1, 8)]


def test_an_empty_training_split_gives_none(tmp_path: Path):
    copy = working_copy(tmp_path)
    stored = json.loads((copy / TRUTH_FILE).read_text())
    stored["splits"]["train"] = []
    (copy / TRUTH_FILE).write_text(json.dumps(stored))
    assert choose_calibration(copy, 5).files == ()
