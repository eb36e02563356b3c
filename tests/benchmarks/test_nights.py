"""Simulated nights: candidates are as good as they are said to be, and the gates' own rules decide."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.night_simulation import Pool, decide_night, gain_of, lean_for, make_pool, simulate
from benchmarks.nights import GAIN, PARAMS, STORED, Cell, bars, measure_pool, pools, table
from deployments.params import load_params
from made_results import NAMES, made_detections, made_truth, measured
from training_fakes import gate_policy

POLICY = gate_policy()
TRUTH = made_truth(40, len(NAMES))


@pytest.fixture(scope="module")
def pool() -> Pool:
    one, other = (measured(TRUTH, made_detections(TRUTH, len(NAMES), seed), "a").scores for seed in (1, 2))
    return make_pool(one, other)


def test_drawn_evenly_both_are_equally_good(pool: Pool):
    assert gain_of(pool, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert pool.pictures == 40


def test_a_lean_makes_the_candidate_better_by_what_is_asked_for(pool: Pool):
    lean = lean_for(pool, GAIN)
    assert lean is not None
    assert 0 < lean < 1
    assert gain_of(pool, lean) == pytest.approx(GAIN, abs=1e-3)


def test_a_gain_that_the_results_do_not_hold_is_not_made_up(pool: Pool):
    assert lean_for(pool, 0.9) is None


def test_the_gates_promote_the_much_better_and_hardly_ever_the_equal(pool: Pool):
    equal = list(simulate(pool, 0.0, 40, 30, POLICY, 200, 0))
    better = list(simulate(pool, 1.0, 160, 30, POLICY, 200, 0))
    assert sum(night.promoted for night in equal) <= 4
    assert sum(night.promoted for night in better) >= 28


@pytest.mark.parametrize(
    ("measured_difference", "spread", "promoted", "admitted"),
    [
        pytest.param(0.03, 0.005, True, True, id="clearly better"),
        pytest.param(0.0, 0.005, False, True, id="equal"),
        pytest.param(-0.06, 0.005, False, False, id="worse"),
        pytest.param(0.03, 0.1, False, False, id="anything is possible"),
    ],
)
def test_a_night_is_decided_by_the_rules_of_the_gates(measured_difference, spread, promoted, admitted):
    drawn = measured_difference + spread * np.linspace(-2, 2, 401)
    night = decide_night(np.array([measured_difference, *drawn]), 100, POLICY)
    assert (night.promoted, night.admitted) == (promoted, admitted)


def test_the_stored_results_are_of_two_real_detectors_on_the_same_pictures():
    ((name, pool),) = pools(STORED)
    assert (name, pool.pictures) == ("plates", 300)
    lean = lean_for(pool, GAIN)
    assert lean is not None
    (cell, *_) = measure_pool(name, pool, load_params(PARAMS).job.gates, 2, ())
    assert (cell.gain, cell.pictures, cell.nights) == (0.0, 300, 2)


def cells(equal: float, better: float) -> list[Cell]:
    return [Cell("a", 0.0, 50, 500, equal, 0.9), Cell("a", 0.02, 50, 500, better, 1.0), Cell("a", 0.02, 100, 500, 1, 1)]


@pytest.mark.parametrize(
    ("equal", "better", "decided", "holds"),
    [
        pytest.param(0.03, 0.8, True, [True, True], id="both on their limits"),
        pytest.param(0.031, 0.79, True, [False, False], id="both missed, larger samples do not count"),
        pytest.param(0.0, 1.0, False, [None, None], id="a quick run decides nothing"),
    ],
)
def test_bars(equal: float, better: float, decided: bool, holds: list[bool | None]):
    assert [bar.holds for bar in bars(cells(equal, better), decided=decided)] == holds


def test_the_worst_pair_counts_and_the_table_shows_every_cell():
    both = [*cells(0.01, 0.9), Cell("b", 0.0, 10, 500, 0.05, 0.5), Cell("b", 0.02, 10, 500, 0.1, 0.5)]
    assert [bar.value for bar in bars(both, decided=True)] == [0.05, 0.1]
    assert table(both).rows[0] == ("a", "0 points", "50", "1.0%", "90.0%")
    assert len(table(both).rows) == 5
