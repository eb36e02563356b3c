from __future__ import annotations

import numpy as np
import pytest

from builders import BLUE, GREEN, RED, model_spec, noisy_plate, plate
from data_contracts.bundle import InputSpec
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX, fit_letterbox
from serving.preprocess import letterbox_image, to_tensor

RULE = ULTRALYTICS_LETTERBOX


def test_padding_has_the_rule_s_grey_and_surrounds_the_picture():
    image = plate((64, 20), background=RED)
    fitted = letterbox_image(image, fit_letterbox((64, 20), (64, 64), RULE), RULE)
    assert fitted.shape == (64, 64, 3)
    assert (fitted[22:42] == RED).all()
    assert (fitted[:22] == 114).all()
    assert (fitted[42:] == 114).all()


def test_odd_padding_goes_below():
    fitted = letterbox_image(plate((64, 19), background=RED), fit_letterbox((64, 19), (64, 64), RULE), RULE)
    assert np.flatnonzero((fitted == RED).all(axis=(1, 2))).tolist() == list(range(22, 41))


def test_a_picture_of_the_input_s_size_is_not_touched():
    image = noisy_plate((64, 64))
    np.testing.assert_array_equal(letterbox_image(image, fit_letterbox((64, 64), (64, 64), RULE), RULE), image)


@pytest.mark.parametrize("image_wh", [(1, 1), (3000, 1), (1, 3000), (641, 333), (64, 64), (63, 65)])
def test_every_size_fits(image_wh):
    tensor, letterbox = to_tensor(plate(image_wh), model_spec())
    assert tensor.shape == (3, 64, 64)
    assert tensor.dtype == np.float32
    assert tensor.flags.c_contiguous
    assert letterbox.image_wh == image_wh


def test_channels_are_red_green_blue_and_scaled_to_one():
    image = plate((64, 64), ((0, 0, 16, 64), RED), ((16, 0, 32, 64), GREEN), ((32, 0, 64, 64), BLUE))
    tensor, _ = to_tensor(image, model_spec())
    assert tensor[:, 0, 0].tolist() == [1, 0, 0]
    assert tensor[:, 0, 20].tolist() == [0, 1, 0]
    assert tensor[:, 0, 40].tolist() == [0, 0, 1]


def test_every_level_is_divided_as_the_trainer_divides():
    levels = np.arange(256, dtype=np.uint8)
    image = np.repeat(levels.reshape(16, 16)[..., None], 3, axis=2)
    spec = model_spec(wh=(16, 16))
    expected = levels.astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(to_tensor(image, spec)[0][0].ravel(), expected)


def test_the_divisor_is_the_bundle_s():
    spec = model_spec(input=InputSpec(tensor="images", wh=(64, 64), colour_order="rgb", dtype="float32", divisor=1.0))
    assert to_tensor(plate((64, 64)), spec)[0].max() == 114


def test_the_given_picture_stays_as_it_is():
    image = noisy_plate((50, 40))
    before = image.copy()
    to_tensor(image, model_spec())
    np.testing.assert_array_equal(image, before)
