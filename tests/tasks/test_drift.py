"""What changed between two revisions, and how far two distributions lie apart."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from scan_tables import Made, scan_of
from tasks.reporting.drift import Drift, compare_scans
from tasks.reporting.drift_text import drift_fields, drift_lists, drift_sentences, render_drift
from tasks.reporting.measures import MEASURES, bin_counts, is_more_than_chance, js_distance

PIT = (0, 0.5, 0.5, 0.1, 0.1)
SCRATCH = (1, 0.25, 0.25, 0.2, 0.05)
A, B, C = (Made(f"images/train/{name}.png", [PIT]) for name in "abc")
V = Made("images/val/v.png", [SCRATCH])


def change(picture: Made, **fields: object) -> Made:
    return dataclasses.replace(picture, **{"content": picture.path} | fields)  # type: ignore[arg-type]


PICTURES = {
    "nothing": ([A, B, V], [A, B, V], {}),
    "added": ([A, V], [A, B, V], {"added": ("images/train/b.png",)}),
    "removed": ([A, B, V], [A, V], {"removed": ("images/train/b.png",)}),
    "replaced": ([A, V], [change(A, content="other"), V], {"replaced": ("images/train/a.png",)}),
    "renamed": (
        [A, V],
        [change(A, path="images/train/z.png", content=A.path), V],
        {"renamed": (("images/train/a.png", "images/train/z.png"),)},
    ),
    "moved to another split": (
        [A, B, V],
        [A, change(B, path="images/val/b.png", content=B.path), V],
        {
            "renamed": (("images/train/b.png", "images/val/b.png"),),
            "moved": (("images/val/b.png", "train", "val"),),
        },
    ),
    "names swapped": (
        [A, B],
        [change(A, content=B.path), change(B, content=A.path)],
        {
            "renamed": (
                ("images/train/b.png", "images/train/a.png"),
                ("images/train/a.png", "images/train/b.png"),
            )
        },
    ),
    "one copy more": (
        [A, V],
        [A, change(B, content=A.path), V],
        {"added": ("images/train/b.png",)},
    ),
    "one of two copies gone": ([A, change(B, content=A.path)], [A], {"removed": ("images/train/b.png",)}),
    "from nothing": ([], [A], {"added": ("images/train/a.png",)}),
    "to nothing": ([A], [], {"removed": ("images/train/a.png",)}),
}


@pytest.mark.parametrize(("old", "new", "expected"), PICTURES.values(), ids=PICTURES)
def test_pictures_are_matched_by_content_then_by_path(old, new, expected):
    drift = compare_scans(scan_of(*old), scan_of(*new))
    found = {name: getattr(drift, name) for name in ("added", "removed", "replaced", "renamed", "moved")}
    assert {name: value for name, value in found.items() if value} == expected
    assert (drift.old_pictures, drift.new_pictures) == (len(old), len(new))
    assert drift.labels == ()
    assert drift.is_empty == (not expected)


LABELS = {
    "a box more": ([PIT], [PIT, SCRATCH], (1, 2, 0, 1)),
    "a box less": ([PIT, SCRATCH], [SCRATCH], (2, 1, 1, 0)),
    "another class": ([PIT], [(1, *PIT[1:])], (1, 1, 1, 1)),
    "a box moved": ([PIT], [(0, 0.51, 0.5, 0.1, 0.1)], (1, 1, 1, 1)),
    "the same box twice": ([PIT], [PIT, PIT], (1, 2, 0, 1)),
}


@pytest.mark.parametrize(("old", "new", "expected"), LABELS.values(), ids=LABELS)
def test_changed_labels_are_counted_per_picture(old, new, expected):
    drift = compare_scans(scan_of(change(A, boxes=old), V), scan_of(change(A, boxes=new), V))
    assert [dataclasses.astuple(found) for found in drift.labels] == [("images/train/a.png", *expected)]
    assert not drift.is_empty


def test_the_order_of_boxes_and_rounding_in_the_last_digit_are_no_change():
    old, new = change(A, boxes=[PIT, SCRATCH]), change(A, boxes=[SCRATCH, (0, 0.50000001, 0.5, 0.1, 0.1)])
    assert compare_scans(scan_of(old), scan_of(new)).is_empty


def test_labels_of_a_renamed_picture_are_compared_with_its_own():
    new = change(A, path="images/train/z.png", content=A.path, boxes=[SCRATCH])
    drift = compare_scans(scan_of(A, B), scan_of(new, B))
    assert [found.path for found in drift.labels] == ["images/train/z.png"]


CLASS_LISTS = {
    "reordered with the labels": (("scratch", "pit"), True, ["'scratch' had id 1 and has id 0 now", "'pit' had id 0"]),
    "reordered without the labels": (("scratch", "pit"), False, ["Labels of 2 pictures changed", "'scratch' had id 1"]),
    "renamed": (("pit", "scrape"), False, ["Class 1 was 'scratch' and is 'scrape' now", "Labels of 1 picture changed"]),
    "a new one": (("pit", "scratch", "dent"), False, ["Class 'dent' is new (id 2, 0 boxes)"]),
    "one gone": (("pit",), False, ["Class 'scratch' is gone (it had id 1, 1 box)"]),
}


@pytest.mark.parametrize(("names", "follow", "words"), CLASS_LISTS.values(), ids=CLASS_LISTS)
def test_changes_of_the_class_list_are_told_by_name(names, follow, words):
    ids = {0: 1, 1: 0} if follow else {0: 0, 1: 1}
    new = [
        change(picture, boxes=[(ids[box[0]], *box[1:]) for box in picture.boxes if ids[box[0]] < len(names)])
        for picture in (A, V)
    ]
    drift = compare_scans(scan_of(A, V), scan_of(*new, class_names=names))
    told = "\n".join(drift_sentences(drift))
    assert all(word in told for word in words), told
    assert ("Labels of" in told) == any("Labels of" in word for word in words) or names == ("pit",)
    assert not drift.is_empty


def many(split: str, count: int, prefix: str, **fields: object) -> list[Made]:
    return [Made(f"images/{split}/{prefix}{number}.png", **{"boxes": [PIT]} | fields) for number in range(count)]  # type: ignore[arg-type]


def shifts(drift: Drift, against: str) -> dict[str, bool]:
    return {shift.measure.name: shift.notable for shift in drift.shifts if shift.against == against}


def test_darker_pictures_are_told_also_where_few_were_added():
    old = many("train", 400, "o", brightness=120.0)
    drift = compare_scans(scan_of(*old), scan_of(*old, *many("train", 5, "n", brightness=40.0)))
    assert not any(shifts(drift, "the new revision").values())
    told = shifts(drift, "the added pictures")
    assert [name for name, notable in told.items() if notable] == ["brightness"]
    (sentence,) = [sentence for sentence in drift_sentences(drift) if "Brightness" in sentence]
    assert "median 120 before, 40 in the added pictures, distance 1.00" in sentence


def test_larger_boxes_are_told():
    old, new = many("train", 60, "p"), many("train", 60, "p", boxes=[(0, 0.5, 0.5, 0.8, 0.8)])
    drift = compare_scans(scan_of(*old), scan_of(*new))
    assert [name for name, notable in shifts(drift, "the new revision").items() if notable] == ["box size"]


def test_a_moved_class_mix_is_told_with_the_shares():
    old = [*many("train", 90, "p"), *many("train", 10, "s", boxes=[SCRATCH])]
    new = [*many("train", 50, "p"), *many("train", 50, "s", boxes=[SCRATCH])]
    drift = compare_scans(scan_of(*old), scan_of(*new))
    assert drift.class_mix_notable
    assert drift.class_mix_distance == pytest.approx(js_distance(np.array([90.0, 10]), np.array([50.0, 50])))
    assert any("scratch 10.0% to 50.0%" in sentence for sentence in drift_sentences(drift))


def test_pictures_that_cannot_be_read_and_sets_without_boxes_are_compared_too():
    blind = [change(A, wh=None, boxes=()), Made("images/val/e.png")]
    drift = compare_scans(scan_of(*blind), scan_of(*blind, B))
    assert drift.added == ("images/train/b.png",)
    assert not any(shift.notable for shift in drift.shifts)
    assert render_drift(drift)


def test_a_picture_in_two_splits_counts_once():
    scan = scan_of(A, V)
    twice = dataclasses.replace(scan, pictures=scan.pictures.loc[[0, 0, 1]].reset_index(drop=True))
    twice.pictures.loc[1, "split"] = "val"
    drift = compare_scans(scan, twice)
    assert drift.new_pictures == 2
    assert drift.moved == (("images/train/a.png", "train", "train, val"),)


def test_the_text_shortens_lists_and_the_fields_hold_all():
    drift = compare_scans(scan_of(V), scan_of(*many("train", 30, "n"), V))
    text = render_drift(drift, shown=5)
    assert "pictures added (30)" in text
    assert ".. and 25 more" in text
    fields = json.loads(json.dumps(drift_fields(drift)))
    assert len(fields["added"]) == 30
    assert fields["changed"] is True
    assert {"measure", "distance", "notable"} <= set(fields["shifts"][0])
    assert drift_lists(drift) == {"pictures added": list(drift.added)}
    assert render_drift(compare_scans(scan_of(V), scan_of(V))).startswith("Nothing changed")


DISTANCES = {
    "equal shares": ([1, 3], [10, 30], 0.0),
    "nothing in common": ([5, 0], [0, 1], 1.0),
    "half gone": ([1, 1], [1, 0], 0.557923),
    "empty bins": ([0, 2, 0], [0, 9, 0], 0.0),
}


@pytest.mark.parametrize(("old", "new", "expected"), DISTANCES.values(), ids=DISTANCES)
def test_the_distance_has_its_known_values(old, new, expected):
    there, back = (js_distance(*map(np.array, pair)) for pair in ((old, new), (new, old)))
    assert there == pytest.approx(expected, abs=1e-6)
    assert there == pytest.approx(back)


CHANCE = {
    "few values": ([3, 2], [2, 3], False),
    "many values": ([300, 200], [200, 300], True),
    "one side empty": ([0, 0], [5, 5], False),
    "all in one bin": ([7, 0], [9, 0], False),
}


@pytest.mark.parametrize(("old", "new", "expected"), CHANCE.values(), ids=CHANCE)
def test_few_values_differ_by_chance(old, new, expected):
    assert is_more_than_chance(np.array(old, float), np.array(new, float)) is expected


def test_every_value_falls_into_a_bin():
    for measure in MEASURES:
        assert list(measure.edges) == sorted(set(measure.edges))
        values = np.array([-1e9, measure.edges[0], measure.edges[-1], 1e9])
        counts = bin_counts(values, measure.edges)
        assert (counts[0], counts[-1], counts.sum()) == (2, 2, 4)
