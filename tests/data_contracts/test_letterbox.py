from __future__ import annotations

import numpy as np
import pytest

from data_contracts.letterbox import ULTRALYTICS_LETTERBOX, boxes_to_image, fit_letterbox

# Worked by hand: scale = smaller ratio, sides rounded, left and top = round(padding / 2 - 0.1).
HAND_WORKED = {
    "square as it is": ((160, 160), (160, 160), (160, 160), (0, 0)),
    "wide, even padding": ((640, 200), (160, 160), (160, 50), (0, 55)),
    "tall, even padding": ((200, 640), (160, 160), (50, 160), (55, 0)),
    "odd padding goes below": ((640, 196), (160, 160), (160, 49), (0, 55)),
    "odd padding goes right": ((196, 640), (160, 160), (49, 160), (55, 0)),
    "61 rows left over": ((160, 99), (160, 160), (160, 99), (0, 30)),
    "one row left over goes below": ((160, 159), (160, 160), (160, 159), (0, 0)),
    "half rounds to even side": ((320, 101), (160, 160), (160, 50), (0, 55)),
    "odd picture, odd input": ((641, 333), (160, 160), (160, 83), (0, 38)),
    "enlarged": ((40, 30), (160, 160), (160, 120), (0, 20)),
    "one pixel": ((1, 1), (160, 160), (160, 160), (0, 0)),
    "thread of one row stays visible": ((3000, 1), (160, 160), (160, 1), (0, 79)),
    "input that is not square": ((640, 480), (320, 160), (213, 160), (53, 0)),
    "camera, five megapixels": ((2448, 2048), (640, 640), (640, 535), (0, 52)),
}


@pytest.mark.parametrize(("image_wh", "input_wh", "resized_wh", "pad"), HAND_WORKED.values(), ids=HAND_WORKED)
def test_place_in_the_input(image_wh, input_wh, resized_wh, pad):
    placed = fit_letterbox(image_wh, input_wh, ULTRALYTICS_LETTERBOX)
    assert (placed.resized_wh, placed.pad_xy_px) == (resized_wh, pad)


def test_without_enlarging_a_small_picture_keeps_its_size():
    rule = ULTRALYTICS_LETTERBOX.model_copy(update={"scale_up": False})
    placed = fit_letterbox((40, 30), (160, 160), rule)
    assert (placed.resized_wh, placed.pad_xy_px, placed.scale) == ((40, 30), (60, 65), 1.0)


def test_boxes_come_back_to_the_whole_picture_on_every_axis():
    """A strip of 2448x100 becomes 160x7, not 160x6.54: dividing by the wished scale would be 7 pixels off."""
    placed = fit_letterbox((2448, 100), (160, 160), ULTRALYTICS_LETTERBOX)
    boxes = np.array([[0, 76, 160, 83], [80, 76, 160, 79.5]], np.float32)
    np.testing.assert_allclose(
        boxes_to_image(boxes, placed), [[0, 0, 2448, 100], [1224, 0, 2448, 50]], atol=1e-3, rtol=0
    )


def test_boxes_over_the_edge_are_clipped_to_the_picture():
    placed = fit_letterbox((640, 200), (160, 160), ULTRALYTICS_LETTERBOX)
    boxes = np.array([[-9, 50, 200, 170]], np.float32)
    assert boxes_to_image(boxes, placed).tolist() == [[0, 0, 640, 200]]


def test_no_boxes_stay_no_boxes():
    placed = fit_letterbox((640, 200), (160, 160), ULTRALYTICS_LETTERBOX)
    assert boxes_to_image(np.zeros((0, 4), np.float32), placed).shape == (0, 4)


@pytest.mark.parametrize("seed", range(5))
def test_there_and_back_again(seed):
    """Any box of the picture, moved into the input by the letterbox, comes back within a hundredth of a pixel."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        image_wh = tuple(int(side) for side in rng.integers(1, 3000, 2))
        input_wh = tuple(int(side) * 32 for side in rng.integers(1, 40, 2))
        placed = fit_letterbox(image_wh, input_wh, ULTRALYTICS_LETTERBOX)
        corners = np.sort(rng.random((2, 2)), axis=0) * image_wh
        moved = corners * placed.resized_wh / np.array(image_wh) + placed.pad_xy_px
        back = boxes_to_image(moved.reshape(1, 4).astype(np.float32), placed)
        np.testing.assert_allclose(back, corners.reshape(1, 4), atol=max(image_wh) * 1e-5, rtol=0)
        assert all(
            pad >= 0 and pad + inner <= outer
            for pad, inner, outer in zip(placed.pad_xy_px, placed.resized_wh, input_wh, strict=True)
        )
