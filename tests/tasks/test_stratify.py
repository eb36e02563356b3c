from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.splitting.stratify import PICTURES, UnitCounts, stratify

NOTHING = UnitCounts(0, {}, {})
DRAWN, VAL_ONLY = (0.7, 0.2, 0.1), (0.8, 0.2)


def _unit(*pictures: list[int]) -> UnitCounts:
    """A unit of pictures given as the class ids of their boxes; -1 stands for a picture without."""
    boxes, showing = Counter(), Counter()
    for class_ids in pictures:
        boxes.update(class_ids)
        showing.update(set(class_ids) or {-1})
    return UnitCounts(len(pictures), boxes, showing)


def _shares(units: list[UnitCounts], parts: list[int], number: int) -> dict[tuple[str, int], list[float]]:
    """Feature to the share that each part has of it."""
    per_part = [Counter() for _ in range(number)]
    for unit, part in zip(units, parts, strict=True):
        per_part[part].update(unit.features())
    total = sum(per_part, Counter())
    return {name: [counts[name] / count for counts in per_part] for name, count in total.items()}


def _balanced(rng: random.Random) -> list[UnitCounts]:
    return [_unit([rng.randrange(6)] * rng.randint(1, 5)) for _ in range(300)]


def _skewed(rng: random.Random) -> list[UnitCounts]:
    return [_unit(rng.choices(range(8), [2.0**-n for n in range(8)], k=rng.randint(0, 6))) for _ in range(600)]


def _crowded(rng: random.Random) -> list[UnitCounts]:
    """Most pictures show one defect, a few show a hundred."""
    return [_unit([0] * min(100, int(rng.paretovariate(1.1)))) for _ in range(150)]


def _lots(rng: random.Random) -> list[UnitCounts]:
    """Each lot has a class of its own that most of its boxes show."""

    def lot() -> UnitCounts:
        weights = [rng.random() ** 3 for _ in range(5)]
        return _unit(*(rng.choices(range(5), weights, k=rng.randint(0, 4)) for _ in range(rng.randint(2, 14))))

    return [lot() for _ in range(120)]


def _one_large(rng: random.Random) -> list[UnitCounts]:
    return [_unit(*([rng.randrange(3)] for _ in range(100))), *(_unit([rng.randrange(3)]) for _ in range(100))]


@pytest.mark.parametrize("shares", [DRAWN, VAL_ONLY], ids=["val and test", "val"])
@pytest.mark.parametrize("make", [_balanced, _skewed, _crowded, _lots, _one_large])
def test_every_class_is_within_two_points_where_counts_allow(make, shares):
    units = make(random.Random(5))
    found = _shares(units, stratify(units, [NOTHING] * len(shares), shares), len(shares))
    for name, reached in found.items():
        total = sum(unit.features().get(name, 0) for unit in units)
        if name == PICTURES or (name[0] == "boxes" and total >= 25):
            assert reached == pytest.approx(shares, abs=0.0201), name


RARE = {
    "one unit trains": (1, [1, 0, 0]),
    "two train and choose": (2, [1, 1, 0]),
    "ten as wished": (10, [7, 2, 1]),
}


@pytest.mark.parametrize(("count", "parts"), RARE.values(), ids=RARE)
def test_where_few_units_of_a_class_go(count, parts):
    units = [_unit([0, 1]) for _ in range(count)] + [_unit([0]) for _ in range(90)]
    chosen = stratify(units, [NOTHING] * 3, DRAWN)
    assert [chosen[:count].count(part) for part in range(3)] == parts


def test_what_a_part_has_already_counts():
    held = [_unit(*([0] for _ in range(70))), NOTHING, _unit(*([0] for _ in range(10)))]
    parts = stratify([_unit([0]) for _ in range(20)], held, DRAWN)
    assert parts == [1] * 20


def test_nothing_to_share_out():
    assert stratify([], [NOTHING] * 3, DRAWN) == []


_pictures = st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=4)


@settings(max_examples=10, deadline=None)
@given(st.lists(_pictures, min_size=1, max_size=25), st.sampled_from([DRAWN, VAL_ONLY]))
def test_each_unit_gets_one_part_every_time_the_same(pictures, shares):
    units = [_unit(*unit) for unit in pictures]
    parts = stratify(units, [NOTHING] * len(shares), shares)
    assert len(parts) == len(units)
    assert set(parts) <= set(range(len(shares)))
    assert stratify(units, [NOTHING] * len(shares), shares) == parts


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-1, 4), min_size=1, max_size=30), st.sampled_from([DRAWN, VAL_ONLY]))
def test_no_class_is_judged_without_being_trained(class_ids, shares):
    units = [_unit([name] if name >= 0 else []) for name in class_ids]
    parts = stratify(units, [NOTHING] * len(shares), shares)
    trained = {name for unit, part in zip(units, parts, strict=True) for name in unit.showing if part == 0}
    assert trained == {name for unit in units for name in unit.showing}
