from __future__ import annotations

import numpy as np
import pytest

from builders import LIMITS, noisy_plate, plate
from data_contracts.detections import Detection, Verdict
from serving import annotate
from serving.annotate import (
    MIN_FONT_PX,
    VERDICT_COLOURS,
    _overlap,
    class_colour,
    draw_detections,
    encode_image,
    enlargement,
    label_text,
)
from serving.images import decode_image
from serving.lettering import can_draw, fit_text, line_height, text_width


def box(class_id=0, name="pit", score=0.9, place=(10, 10, 30, 30)) -> Detection:
    return Detection(class_id=class_id, class_name=name, score=score, box_xyxy_px=place)


def drawing_of(picture, *records, verdict=Verdict.NG):
    """The drawn picture without the strip above it, and the strip."""
    drawn = draw_detections(picture, records, verdict)
    height = picture.shape[0] * enlargement((picture.shape[1], picture.shape[0]))
    return drawn[-height:], drawn[:-height]


SIZES = {"one pixel": (1, 1), "tiny": (64, 64), "flat": (640, 20), "thread": (3, 900), "full": (800, 600)}


@pytest.mark.parametrize("wh", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", ["pit", "a class name that is far too long for any small picture"])
def test_every_size_is_drawn_with_frame_and_label(wh, name):
    picture = plate(wh)
    drawing, banner = drawing_of(picture, box(name=name, place=(0, 0, *wh)))
    factor = enlargement(wh)
    assert drawing.shape == (wh[1] * factor, wh[0] * factor, 3)
    assert banner.shape[1] == drawing.shape[1]
    assert (drawing == class_colour(0)).all(axis=2).sum() > 10, "no frame"
    assert (banner == VERDICT_COLOURS[Verdict.NG]).all(axis=2).any()


def test_a_label_lies_within_the_picture_and_beside_its_box():
    """Box in the upper right corner: no room above it nor to the right, so the label goes below and to the left."""
    drawing, _ = drawing_of(plate((400, 400)), box(place=(380, 0, 400, 10)))
    rows, columns = np.nonzero((drawing == class_colour(0)).all(axis=2))
    assert rows.max() > 12 + MIN_FONT_PX
    assert columns.min() < 380 - MIN_FONT_PX
    assert (drawing[5:8, 383:395] == 114).all(), "the defect is covered"


def test_labels_do_not_cover_each_other():
    boxes = [box(number, f"class{number}", 0.9 - number / 100, (100, 100, 120, 120)) for number in range(2)]
    drawing, _ = drawing_of(plate((400, 400)), *boxes)
    areas = [(drawing == class_colour(number)).all(axis=2).sum() for number in range(2)]
    alone = [(drawing_of(plate((400, 400)), one)[0] == class_colour(one.class_id)).all(axis=2).sum() for one in boxes]
    assert areas[0] == pytest.approx(alone[0], rel=0.1)
    assert areas[1] > alone[1] / 2


def test_in_a_crowd_no_label_covers_another_and_the_strip_counts_the_rest(monkeypatch):
    places = []
    monkeypatch.setattr(annotate, "draw_text", lambda canvas, at, text, size, ink: places.append((at, text)))
    crowd = [box(0, "pit", 0.9 - number / 1000, (50, 50, 60 + number, 60)) for number in range(100)]
    draw_detections(plate((400, 400)), crowd, Verdict.NG)
    *labels, (_, words) = places
    assert 5 < len(labels) < 100
    assert words == f"NG  100 boxes, {100 - len(labels)} without label"
    assert labels[0][1] == "pit 0.90", "the best box has a label"
    spans = [(x, y, x + text_width(text, MIN_FONT_PX), y + line_height(MIN_FONT_PX)) for (x, y), text in labels]
    assert not any(_overlap(one, other) for index, one in enumerate(spans) for other in spans[:index])


def test_the_inside_of_a_box_is_left_alone():
    picture = noisy_plate((400, 400))
    drawing, _ = drawing_of(picture, box(place=(100, 100, 300, 300)))
    np.testing.assert_array_equal(drawing[103:297, 103:297], picture[103:297, 103:297])
    assert not (drawing[98:100, 150:250] == picture[98:100, 150:250]).all(axis=2).any()


def test_the_given_picture_stays_as_it_is():
    picture = plate((400, 400))
    draw_detections(picture, (box(),), Verdict.NG)
    assert (picture == 114).all()


def test_nothing_found_leaves_every_pixel():
    picture = noisy_plate((400, 330))
    drawing, banner = drawing_of(picture, verdict=Verdict.OK)
    np.testing.assert_array_equal(drawing, picture)
    assert (banner == VERDICT_COLOURS[Verdict.OK]).all(axis=2).any()


def test_small_pictures_keep_square_pixels():
    picture = noisy_plate((64, 64))
    drawing, _ = drawing_of(picture, verdict=Verdict.OK)
    np.testing.assert_array_equal(drawing[::5, ::5], picture)


def test_lettering_grows_with_the_picture():
    heights = [drawing_of(plate(wh), box())[1].shape[0] for wh in ((320, 320), (1600, 1200), (4000, 3000))]
    assert heights[0] < heights[1] < heights[2]


def test_class_colours_are_distinct():
    colours = np.array([class_colour(class_id) for class_id in range(24)], float)
    distances = np.linalg.norm(colours[:, None] - colours[None], axis=2) + np.eye(24) * 999
    assert distances.min() > 20


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("scratch", "scratch 0.87"),
        ("Größe", "Größe 0.87"),
        ("царапина", "царапина 0.87"),
        ("划痕", "划痕 0.87"),
        ("why?", "why? 0.87"),
        ("รอย", "class 3 0.87"),
        ("🙂", "class 3 0.87"),
        ("a\nb", "class 3 0.87"),
    ],
)
def test_names_are_drawn_or_replaced_by_the_class_id(name, label):
    assert label_text(box(3, name, 0.87)) == label


def test_a_missing_letter_is_known_beforehand():
    assert can_draw("Kratzer Ω 划痕")
    assert not can_draw("pit ก")


def test_long_text_gets_smaller_letters_first_then_fewer():
    assert fit_text("pit 0.87", 40, 10, 1000) == ("pit 0.87", 40)
    text, size = fit_text("a long class name 0.87", 40, 10, 200)
    assert (text, size) == ("a long class name 0.87", size)
    assert size < 40
    shortened, smallest = fit_text("a long class name 0.87", 40, 10, 60)
    assert smallest == 10
    assert shortened.endswith("… 0.87")
    assert text_width(shortened, smallest) <= 60


@pytest.mark.parametrize(("kind", "tolerance"), [("png", 0), ("jpeg", 60)])
def test_encoded_pictures_keep_their_colours(kind, tolerance):
    picture = plate((64, 64), ((0, 0, 32, 64), (255, 0, 0)))
    again = decode_image(encode_image(picture, kind), LIMITS)
    assert np.abs(again.astype(int) - picture).max() <= tolerance
