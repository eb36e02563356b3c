"""Candidates that are bad in a known way, really trained, exported and judged: each is refused for the right reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(1600)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("candidates")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "ORT_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bad_candidates_driver.py"), str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report = json.loads((folder / "report.json").read_text())
    print(json.dumps(report["seconds"]))
    result: dict[str, Any] = report["found"]
    return result


def test_the_champion_is_good_enough_for_its_losses_to_show(found):
    assert found["champion"]["refusals"] == {}
    assert found["champion"]["map50"] > 0.7


@pytest.mark.parametrize(
    ("candidate", "check", "words"),
    [
        pytest.param("labels shuffled", "map50", "at least 0.7 is needed", id="labels shuffled: the floor"),
        pytest.param(
            "labels shuffled", "map50 against the champion", "The candidate is worse", id="labels shuffled: worse"
        ),
        pytest.param("class removed", "yellow: known", "the candidate lacks it", id="a class removed: unknown"),
        pytest.param("class removed", "class list", "lost yellow, new nothing", id="a class removed: the class list"),
        pytest.param("colours swapped", "parity", "the bundle differs from the trained weights", id="colours swapped"),
        pytest.param("letterbox removed", "parity", "the bundle differs from the trained weights", id="no letterbox"),
        pytest.param("half the classes", "blue: forgotten", "is every picture of blue still in", id="forgotten: blue"),
        pytest.param("half the classes", "yellow: forgotten", "of yellow still in the training data", id="and yellow"),
    ],
)
def test_a_bad_candidate_is_refused_for_the_right_reason(found, candidate, check, words):
    assert not found[candidate]["accepted"]
    assert words in found[candidate]["refusals"][check]


def test_what_was_trained_on_is_not_called_forgotten(found):
    refused = found["half the classes"]["refusals"]
    assert {"red: forgotten", "green: forgotten"} <= set(found["half the classes"]["checks"])
    assert not {"red: forgotten", "green: forgotten"} & set(refused)


def test_the_classes_that_stayed_are_not_called_lost(found):
    refused = found["class removed"]["refusals"]
    assert not {"red: known", "green: known", "blue: known", "parity"} & set(refused)


@pytest.mark.parametrize("candidate", ["labels shuffled", "class removed", "half the classes"])
def test_a_badly_trained_one_is_not_said_to_be_badly_exported(found, candidate):
    assert "parity" in found[candidate]["checks"]
    assert "parity" not in found[candidate]["refusals"]


def test_lost_numbers_are_refused_before_anything_is_sealed(found):
    assert "got NaN" in found["nan weights"]


def test_int8_that_was_calibrated_on_0_to_255_does_not_ship(found):
    assert found["calibrated well"] == {
        "shipped": True, "reason": "it holds its limits on the validation split",
    }  # fmt: skip
    wrong = found["calibrated on 0-255"]
    assert not wrong["shipped"]
    assert "the best scores of the pictures shrink" in wrong["reason"]
    assert all(f"{name}: AP50 " in wrong["reason"] for name in ("red", "green", "blue", "yellow"))


def test_a_slightly_better_one_passes_and_may_be_promoted(found):
    better = found["better"]
    assert better["refusals"] == {}
    assert 0 < better["map50"] - found["champion"]["map50"] < 0.15
    assert better["promotable"], better["promotion"]
