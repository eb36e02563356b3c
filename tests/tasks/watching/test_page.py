"""The page of a training: curves as a picture that stands alone, and tables."""

from __future__ import annotations

import base64
import math
import re
from xml.etree import ElementTree

import pytest

from tasks.training.events import EpochDone
from tasks.watching.curves import MOST_POINTS, curves_svg, epoch_ticks, tick_values
from tasks.watching.page import best_epoch, curves_markdown, epochs_table, samples_markdown
from tasks.watching.progress import Progress

BLUE = "#2b6ca3"


def epoch(number: int, map50: float = 0.5, **more: float) -> EpochDone:
    metrics = {"metrics/mAP50(B)": map50, "metrics/mAP50-95(B)": map50 / 2, "train/box_loss": 3 / number}
    return EpochDone(number, 10, metrics | {name.replace("_", "/", 1): value for name, value in more.items()}, 2.0)


def lines_of(svg: str) -> list[str]:
    """The drawn curves of both panels."""
    return [
        path.attrib["d"]
        for path in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}path")  # noqa: S314  our own text
        if path.attrib.get("stroke-linejoin") == "round"
    ]


def texts_of(svg: str) -> list[str]:
    return [
        text.text or ""
        for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314  our own text
    ]


@pytest.mark.parametrize(
    ("epochs", "curves"),
    [
        pytest.param([], 0, id="none yet"),
        pytest.param([epoch(1)], 3, id="one epoch is a dot"),
        pytest.param([epoch(1), epoch(2)], 3, id="two"),
        pytest.param([epoch(1), epoch(2, val_box_loss=2.0, val_dis_loss=1.0)], 5, id="losses as the model has them"),
        pytest.param([epoch(1, math.nan), epoch(2, math.nan)], 1, id="no numbers, no curve"),
        pytest.param([epoch(1, 0.0), epoch(2, 0.0)], 3, id="all zero"),
        pytest.param([epoch(1), epoch(2, math.inf), epoch(3)], 3, id="infinite is left out"),
    ],
)
def test_curves(epochs: list[EpochDone], curves: int) -> None:
    svg = curves_svg(epochs, 10)
    assert len(lines_of(svg)) == curves
    assert "nan" not in svg
    assert "inf" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_a_curve_goes_where_its_values_are() -> None:
    """mAP50 rises from 0 to 1 over ten epochs: from the lower left to the upper right corner of the panel."""
    svg = curves_svg([epoch(number, (number - 1) / 9) for number in range(1, 11)], 10)
    points = re.findall(r"[ML]([\d.]+) ([\d.]+)", lines_of(svg)[0])
    assert [points[0], points[-1]] == [("52.0", "216.0"), ("570.0", "30.0")]
    assert "mAP50 1" in texts_of(svg)


def test_a_training_brought_back_begins_at_its_first_epoch() -> None:
    svg = curves_svg([epoch(7), epoch(8)], 10)
    assert re.findall(r'text-anchor="middle">(\d+)<', svg) == ["7", "8", "9", "10"] * 2


def test_one_value_far_above_is_cut_and_said() -> None:
    epochs = [epoch(number, val_cls_loss=80.0 if number == 5 else 3.0) for number in range(1, 21)]
    svg = curves_svg(epochs, 20)
    assert "Loss by epoch, cut above 5" in texts_of(svg)
    tops = [float(y) for line in lines_of(svg) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
    assert min(tops) >= 30
    assert "Validation by epoch" in texts_of(svg)


def test_a_long_training_makes_no_heavy_picture() -> None:
    svg = curves_svg([epoch(number) for number in range(1, 3001)], 3000)
    assert max(line.count("L") for line in lines_of(svg)) < MOST_POINTS
    assert len(svg) < 50_000


@pytest.mark.parametrize("highest", [1e-7, 0.004, 0.99, 1.0, 1.01, 7.3, 250.0, 123456.0])
def test_ticks_cover_the_values(highest: float) -> None:
    values = tick_values(highest)
    assert values[0] == 0
    assert values[-2] < highest <= values[-1] * 1.001
    assert 3 <= len(values) <= 7


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 2), (1, 20), (3, 50), (299, 300), (1, 10_000)])
def test_epoch_ticks_are_whole_and_few(first: int, last: int) -> None:
    ticks = epoch_ticks(first, last)
    assert (ticks[0], ticks[-1]) == (first, last)
    assert len(ticks) <= 7
    assert ticks == sorted(set(ticks))


def test_the_pages_carry_their_pictures() -> None:
    page = curves_markdown(Progress(epochs=10, done=1, epochs_done=(epoch(1),)), "epoch 2 of 10")
    assert page.startswith("## Training\n\nEpoch 2 of 10.")
    svg = re.search(r"data:image/svg\+xml;base64,([\w+/=]+)", page)
    assert svg is not None
    assert base64.b64decode(svg[1]).startswith(b"<svg ")
    samples = samples_markdown(3, b"\xff\xd8")
    assert "data:image/jpeg;base64,/9g=" in samples
    assert "After epoch 3" in samples


def test_before_the_first_epoch_there_is_only_the_state() -> None:
    assert curves_markdown(Progress(), "the training begins") == "## Training\n\nThe training begins."


def test_the_page_says_what_the_curves_lack() -> None:
    page = curves_markdown(Progress(epochs=10, first_epoch=7, starts=3, done=6), "epoch 7 of 10")
    assert "before 7" in page
    assert "started 3 times" in page


def test_the_best_epoch_stays_in_the_table() -> None:
    epochs = [epoch(number, 0.9 if number == 2 else 0.4) for number in range(1, 21)]
    assert best_epoch(epochs) is epochs[1]
    rows = epochs_table(epochs).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {n}" for n in (20, 19, 18, 17, 16, 15, 14, 13, 2)]
    assert [row.endswith("| best |") for row in rows] == [False] * 8 + [True]


def test_epochs_without_numbers_have_no_best_one() -> None:
    assert best_epoch([epoch(1, math.nan)]) is None
    assert "nan" in epochs_table([epoch(1, math.nan)])
