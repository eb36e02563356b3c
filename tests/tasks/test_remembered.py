"""The forgetting guard over several champions: what an earlier one found must still be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders import make_bundle, plate
from made_case import store_truth
from made_results import NAMES, made_detections, made_truth, measured
from tasks.evaluate import write_result
from tasks.evaluation.picture_scores import SCORES_FILE, load_scores
from tasks.gating.golden_slices import forgetting_checks, golden_slices
from tasks.gating.remembered import (
    REMEMBERED,
    EarlierChampion,
    FoundDefects,
    Memory,
    Remembered,
    ask_earlier_champions,
    defect_keys,
    earlier_champion,
    hand_on,
    memory_checks,
    read_remembered,
)
from tasks.ground_truth import GroundTruth
from tasks.seal import add_attestation
from training_fakes import gate_policy, patch_picture

RED = (200, 0, 0)
BOXES = [(10, 10, 30, 30), (40, 40, 60, 60), (70, 10, 90, 30)]
NAMED = ("scratch", "pit")


def split(folder: Path, *pictures: Sequence[int]) -> list[GroundTruth]:
    """Pictures that all differ, each with a box per class id."""
    folder.mkdir(exist_ok=True)
    return [
        patch_picture(folder, f"{row}.png", (100 + row, 100), *((BOXES[i], RED, id_) for i, id_ in enumerate(ids)))
        for row, ids in enumerate(pictures)
    ]


def test_a_defect_keeps_its_key_when_pictures_are_renamed_or_join_the_split(tmp_path: Path):
    before = split(tmp_path / "a", [0, 1], [0])
    renamed = [replace(one, picture=one.picture.rename(tmp_path / f"new-{one.picture.name}")) for one in before]
    after = [*split(tmp_path / "b", [0, 1], [0], [1, 1])[2:], *reversed(renamed)]
    keys = defect_keys(renamed, NAMED)
    assert len(set(keys)) == 3
    assert defect_keys(after, NAMED)[2:] == [keys[2], *keys[:2]]


@pytest.mark.parametrize("change", ["box", "class", "content"])
def test_a_defect_that_was_labelled_anew_is_another_one(tmp_path: Path, change: str):
    (one,) = split(tmp_path, [0])
    (key,) = defect_keys([one], NAMED)
    if change == "box":
        one = replace(one, boxes_xyxy_px=one.boxes_xyxy_px + 1)
    elif change == "class":
        one = replace(one, class_ids=one.class_ids + 1)
    else:
        one.picture.write_bytes(one.picture.read_bytes() + b"x")
    assert defect_keys([one], NAMED) != [key]


def test_a_class_is_known_by_its_name_not_by_its_place(tmp_path: Path):
    (one,) = split(tmp_path, [1])
    assert defect_keys([one], NAMED) == defect_keys([replace(one, class_ids=one.class_ids - 1)], ("pit",))


def test_each_listed_defect_of_today_s_split_is_followed():
    keys = ["a", "b", "c", "d"]
    before = FoundDefects.model_construct(champion="e" * 64, defects=("a", "b", "gone"))
    one = earlier_champion(before, keys, [0, 0, 0, 1], [True, False, True, True], NAMED)
    assert [(part.name, part.instances, part.champion_found, part.still_found, part.newly_found)
            for part in one.slices] == [("scratch", 3, 2, 1, 1), ("pit", 1, 0, 0, 1)]  # fmt: skip


def lists(*champions: str) -> Remembered:
    return Remembered(champions=tuple(FoundDefects(champion=letter * 64, defects=()) for letter in champions))


@pytest.mark.parametrize(
    ("before", "champion", "most", "after"),
    [
        ("", "a", 3, "a"),
        ("bcd", "a", 3, "abc"),
        ("bad", "a", 3, "abd"),
        ("bcd", "a", 0, ""),
    ],
    ids=["the first", "the oldest is dropped", "a champion that came back", "none is wished"],
)
def test_lists_are_handed_on_latest_first(before: str, champion: str, most: int, after: str):
    (today,) = lists(champion).champions
    assert hand_on(today, lists(*before), most) == lists(*after)


def earlier(champion: str, **found: tuple[int, int]) -> EarlierChampion:
    """By class what it found, and what is still found."""
    slices = [
        {"name": name, "instances": 99, "champion_found": then, "still_found": now, "newly_found": 0}
        for name, (then, now) in found.items()
    ]
    return EarlierChampion.model_validate({"champion": champion * 64, "slices": slices})


@pytest.mark.parametrize(
    ("champions", "refused"),
    [
        pytest.param([], [], id="no earlier champion"),
        pytest.param([earlier("a", pit=(10, 8))], [], id="at the limit"),
        pytest.param([earlier("a", pit=(10, 7))], ["pit: forgotten since aaaaaaaaaaaa"], id="over it"),
        pytest.param([earlier("a", pit=(10, 8)), earlier("b", pit=(10, 5))], ["pit: forgotten since bbbbbbbbbbbb"],
                     id="the worst of several is named"),
        pytest.param([earlier("a", pit=(2, 0))], [], id="too few to tell"),
        pytest.param([earlier("a", pit=(9, 9), dent=(9, 0))], ["dent: forgotten since aaaaaaaaaaaa"], id="one class"),
    ],
)  # fmt: skip
def test_no_class_may_be_forgotten_of_any_earlier_champion(champions: list[EarlierChampion], refused: list[str]):
    checks = list(memory_checks(champions, gate_policy(max_forgotten=0.2, min_slice=3)))
    assert [check.name for check in checks if not check.holds] == refused


# --- over nights ---------------------------------------------------------------------------------------------------


class Nights:
    """One test split; each night a bundle that finds some of it becomes champion."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.policy = folder, gate_policy(remembered_champions=2, max_forgotten=0.3, min_slice=3)
        made = made_truth(24, len(NAMES))
        for number, one in enumerate(made):
            (folder / one.picture.name).write_bytes(plate((100 + number, 100)).tobytes())
        self.truth = [replace(one, picture=folder / one.picture.name) for one in made]
        store_truth(folder, self.truth)

    def evaluated(self, night: int, without: range) -> Path:
        """A measurement in which the defects of some pictures are missed."""
        found = made_detections(self.truth, len(NAMES), seed=1, miss=0.0, jitter_px=0.5)
        seen = [one.where(np.full(len(one), row not in without)) for row, one in enumerate(found)]
        target = self.folder / f"evaluation-{night}"
        write_result(measured(self.truth, seen, "c"), target)
        return target

    def ask(self, candidate: Path, champion: Path, bundle: Path) -> Memory:
        return ask_earlier_champions.fn(candidate, champion, bundle, self.folder, NAMES, self.policy)


def test_forgetting_in_small_steps_is_seen_where_each_step_alone_is_not(tmp_path: Path):
    """Each night misses four pictures more; against the champion of the night before that is within the policy."""
    nights = Nights(tmp_path)
    first, second, third = (nights.evaluated(night, range(4 * night)) for night in range(3))
    bundles = [make_bundle(tmp_path / str(number), version=str(number)) for number in range(2)]
    memory = nights.ask(second, first, bundles[0])
    assert memory.earlier == ()
    add_attestation(bundles[1], REMEMBERED, memory.handed_on.model_dump(mode="json"))
    assert read_remembered(bundles[1]) == memory.handed_on

    memory = nights.ask(third, second, bundles[1])
    assert [one.champion for one in memory.earlier] == [bundles[0].name]
    assert [one.champion for one in memory.handed_on.champions] == [bundles[1].name, bundles[0].name]
    (one,) = memory.earlier
    lost = {part.name: 1 - part.still_found / part.champion_found for part in one.slices}
    assert max(lost.values()) > 0.3
    step = golden_slices(*(load_scores(folder / SCORES_FILE) for folder in (third, second)), NAMES)
    assert all(check.holds for check in forgetting_checks(step, nights.policy))
    refused = {check.name for check in memory_checks(memory.earlier, nights.policy) if not check.holds}
    assert refused == {f"{name}: forgotten since {bundles[0].name[:12]}" for name, share in lost.items() if share > 0.3}


def test_a_bundle_of_before_remembers_nothing(tmp_path: Path):
    assert read_remembered(make_bundle(tmp_path)) == Remembered()
