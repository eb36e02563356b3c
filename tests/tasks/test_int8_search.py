"""The search for what must stay in float, with tries and harm that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.quantising.int8_search import Found, output_change, search

SECTIONS = [("a",), ("b", "c"), ("d",)]
HARM = {("a",): 0.1, ("b", "c"): 0.9, ("d",): 0.1}


def run(cures: set[str] | None, rounds: int = 9, clock: int = 99) -> tuple[Found, list[tuple[str, ...]]]:
    """A search where INT8 holds as soon as `cures` are all in float, None never; `clock` questions are in time."""
    tried, asked = [], iter(range(clock))

    def attempt(left_out: tuple[str, ...]) -> tuple[str, ...]:
        tried.append(left_out)
        return () if cures is not None and cures <= set(left_out) else ("worse",)

    return search(attempt, HARM.__getitem__, SECTIONS, rounds, lambda: next(asked, None) is not None), tried


@pytest.mark.parametrize(
    ("cures", "rounds", "left_out", "tries", "holds"),
    [
        pytest.param(set(), 9, (), 1, True, id="nothing beside the head"),
        pytest.param({"b"}, 9, ("b", "c"), 2, True, id="the most harmful section"),
        pytest.param({"a", "c"}, 9, ("b", "c", "a"), 3, True, id="of equal ones the earlier"),
        pytest.param({"d"}, 9, ("b", "c", "a"), 3, False, id="never all of them"),
        pytest.param({"a"}, 2, ("b", "c"), 2, False, id="no more rounds than allowed"),
        pytest.param({"b"}, 1, (), 1, False, id="one round"),
    ],
)
def test_the_most_harmful_sections_go_to_float_until_it_holds(cures, rounds, left_out, tries, holds):
    found, tried = run(cures, rounds)
    assert (found.left_out, found.tries, not found.objections) == (left_out, tries, holds)
    assert len(tried) == tries
    assert tried[-1] == left_out
    assert not found.stopped


@pytest.mark.parametrize("clock", [0, 2, 4], ids=["at once", "while measuring", "between two tries"])
def test_out_of_time_it_says_so_with_what_spoke_against_the_last_try(clock: int):
    found, tried = run(None, clock=clock)
    assert found.stopped == "the time for the search was up"
    assert found.objections == ("worse",)
    assert len(tried) == found.tries == (2 if clock == 4 else 1)


def raw(box: float, *scores: float) -> np.ndarray:
    """One picture, one anchor per score."""
    output = np.full((1, 5, len(scores)), box, np.float32)
    output[0, 4] = scores
    return output


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(raw(50, 0.5, 0.5), raw(50, 0.5, 0.5), 0.0, id="same"),
        pytest.param(raw(50, 1.0, 0.0), raw(50, 0.8, 0.5), 0.2, id="only where FP32 sees something"),
        pytest.param(raw(50, 1.0), raw(55, 1.0), 0.1, id="boxes by the largest coordinate"),
        pytest.param(raw(50, 0.0), raw(50, 0.0), 0.0, id="nothing seen"),
    ],
)
def test_the_change_of_an_output(first, second, expected):
    assert output_change(first, second, "raw") == pytest.approx(expected)


def test_final_boxes_are_compared_by_their_scores():
    first = np.array([[[0, 0, 9, 9, 0.8, 1], [0, 0, 5, 5, 0.2, 0]]], np.float32)
    second = np.array([[[0, 0, 5, 5, 0.7, 0], [0, 0, 9, 9, 0.1, 1]]], np.float32)
    assert output_change(first, second, "end_to_end") == pytest.approx(0.1)
