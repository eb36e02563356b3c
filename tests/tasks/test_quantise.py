"""INT8 that is right or absent: decided before the seal, sealed and served, or left out with the reason (A13, A14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import GREEN, RED, colour_stub, provenance
from data_contracts.bundle import INT8_MODEL_FILE, BuildWish, ModelSpec, ProbeLimit, Tolerance, VerdictRule
from data_contracts.dataset import Split
from data_contracts.errors import EngineError
from quantise_fakes import config, exported, working_copy
from serving.bundle import hash_file, open_bundle
from serving.detector import check_golden, open_detector
from serving.engines import EngineOptions
from tasks import quantise as module
from tasks.evaluate import evaluate
from tasks.ground_truth import read_ground_truth
from tasks.quantise import outcome_words, quantise
from tasks.quantising import int8_tries
from tasks.quantising.quantised import Quantised
from tasks.seal import SealConfig, SealedBundle, seal
from training_fakes import EVALUATE

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.4, 0.4), chosen_on="a test")
LOW = RULE.model_copy(update={"thresholds": (0.3, 0.3)})
FAINT = (RED, (68, 150, 68))
"""A green that scores 0.32 beside a red that scores 1. A scale that is far too coarse makes 0 or 1 of it."""
MIXED = ((240, 30, 20), (25, 235, 30))
"""Colours whose scores 8 bits do not hit exactly."""
NEAR, FAR = Tolerance(box_px=0.5, score=0.01), Tolerance(box_px=2.0, score=0.1)
STRICT = ProbeLimit(max_flip_share=0.0, min_box_share=1.0)
SEAL = SealConfig(
    name="plates", golden_pictures=3, golden_score_floor=0.05, tolerances={"fp32": NEAR, "int8": FAR},
    probe_pictures=8, probe_limits={"fp32": STRICT, "int8": STRICT},
)  # fmt: skip
INT8 = EngineOptions(provider="cpu", allow_fallback=False, threads=1, precision="int8")


def run(folder: Path, said: list[str] | None = None, model: bytes | None = None, **changes: Any) -> Quantised:
    """Quantise in `folder`; `seal`, `colours` and `rule` replace those of this file, the rest the job's fields."""
    seal_config, colours = changes.pop("seal", SEAL), changes.pop("colours", (RED, GREEN))
    rule = changes.pop("rule", RULE)
    copy = working_copy(folder / "copy", colours=colours)
    log: list[str] = [] if said is None else said
    one = exported(folder / "export", model)
    return quantise(one, rule, copy, config(**changes), EVALUATE, seal_config, folder / "int8", log.append)


def sealed(folder: Path, quantised: Quantised, seal_config: SealConfig = SEAL) -> SealedBundle:
    truth = read_ground_truth(folder / "copy", Split.VAL)
    one = exported(folder / "export")
    return seal(one, RULE, truth, provenance(), seal_config, folder / "bundles", quantised)


def test_what_holds_its_limits_ships_with_its_calibration_list(tmp_path: Path):
    said: list[str] = []
    made = run(tmp_path, said).made
    assert made is not None
    assert made.shipped
    assert (made.head_nodes, made.quantised_nodes, made.further_float_nodes, made.tries) == (7, 3, (), 1)
    assert [(one.name, one.instances) for one in made.classes] == [("red", 3), ("green", 3)]
    assert len(made.calibration) == 6
    for one in made.calibration:
        assert one.picture.startswith("images/train/")
        assert hash_file(tmp_path / "copy" / one.picture).sha256 == one.sha256
    assert said == ["INT8, try 1, 0 operators in float beside the head: it holds its limits"]


def test_the_bundle_with_int8_loads_serves_and_is_measured(tmp_path: Path):
    quantised = run(tmp_path)
    bundle = open_bundle(sealed(tmp_path, quantised).path)
    assert bundle.manifest.quantisation == quantised.made
    assert bundle.manifest.model.output.layout == "raw"
    detector = open_detector(bundle, INT8)
    assert detector.engine.precision == "int8"
    check_golden(detector, bundle)
    test = read_ground_truth(tmp_path / "copy", Split.TEST)
    results = [
        evaluate(bundle.path, test, ("red", "green"), Split.TEST, EVALUATE, one).result for one in ("fp32", "int8")
    ]
    assert [one.precision for one in results] == ["fp32", "int8"]
    assert results[1].map50 == results[0].map50 == 1.0


def test_the_same_training_gives_the_same_model(tmp_path: Path):
    first, second = run(tmp_path / "one"), run(tmp_path / "two")
    assert first.model is not None
    assert second.model is not None
    assert first.model.read_bytes() == second.model.read_bytes()
    assert first.made == second.made


def wrong(change: Any) -> Any:
    """Calibration tensors with a mistake that people make."""
    right = module.calibration_tensors

    def tensors(files: Sequence[Path], spec: ModelSpec) -> Iterator[np.ndarray]:
        return (change(tensor) for tensor in right(files, spec))

    return tensors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda tensor: tensor * 255, "3 of 6 boxes differ beyond the tolerance", id="0-255"),
        # With red and blue swapped the trunk never feels any red, and clips it at the faint green's value.
        pytest.param(
            lambda tensor: np.ascontiguousarray(tensor[:, ::-1]),
            "3 of 6 boxes differ beyond the tolerance",
            id="blue first",
        ),
        pytest.param(np.zeros_like, "3 of 6 boxes differ beyond the tolerance", id="black pictures"),
    ],
)
def test_a_model_that_was_calibrated_wrongly_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, words: str
):
    assert run(tmp_path / "right", colours=FAINT, rule=LOW, max_rounds=1).model is not None
    monkeypatch.setattr(module, "calibration_tensors", wrong(change))
    quantised = run(tmp_path / "wrong", colours=FAINT, rule=LOW, max_rounds=1)
    assert quantised.model is None
    assert quantised.made is not None
    assert words in quantised.made.reason
    assert outcome_words(quantised) == f"INT8 is left out, the bundle has FP32 only: {quantised.made.reason}"


def test_a_model_quantised_as_a_whole_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Boxes up to 56 px and scores share one scale of 0.22."""
    assert run(tmp_path / "right", colours=FAINT, rule=LOW, max_rounds=1).model is not None
    monkeypatch.setattr(int8_tries, "head_nodes", lambda _: ())
    quantised = run(tmp_path / "whole", colours=FAINT, rule=LOW, max_rounds=1)
    assert quantised.model is None
    assert quantised.made is not None
    assert quantised.made.head_nodes == 0
    assert (
        "it does not run: model output: expected scores between 0 and 1, got a score of 1.09" in quantised.made.reason
    )


def test_the_search_leaves_more_in_float_until_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without its first operator in float this model never pleases."""
    right = int8_tries.objections

    def objections(*arguments: Any) -> tuple[str, ...]:
        return ("not yet",) if len(asked) == 1 else right(*arguments)

    asked: list[Any] = []
    write = int8_tries.write_int8

    def counted(model: Any, target: Path, ranges: Any, floats: Any) -> None:
        if target.name == INT8_MODEL_FILE:
            asked.append(floats)
        write(model, target, ranges, floats)

    monkeypatch.setattr(int8_tries, "objections", objections)
    monkeypatch.setattr(int8_tries, "write_int8", counted)
    made = run(tmp_path).made
    assert made is not None
    assert made.shipped
    assert (made.tries, made.quantised_nodes, len(made.further_float_nodes)) == (2, 2, 1)
    assert asked[1] - asked[0] == set(made.further_float_nodes)
    assert sorted(path.name for path in (tmp_path / "int8").iterdir()) == [INT8_MODEL_FILE]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"seal": SEAL.model_copy(update={"probe_limits": {}})}, "seal.probe_limits need int8", id="no limit"
        ),
        pytest.param(
            {"seal": SEAL.model_copy(update={"tolerances": {}})}, "seal.probe_limits need int8", id="no tolerance"
        ),
        pytest.param({"model": colour_stub()[:-40]}, "ONNX Runtime cannot quantise this model", id="broken file"),
    ],
)
def test_where_it_cannot_be_had_the_reason_is_kept(tmp_path: Path, changes: dict[str, Any], words: str):
    quantised = run(tmp_path, **changes)
    assert quantised.model is None
    assert quantised.made is not None
    assert words in quantised.made.reason
    assert len(quantised.made.calibration) == 6


def test_it_is_left_out_when_golden_pictures_or_probe_set_refuse_it(tmp_path: Path):
    """They are fewer than the validation split, so that they may say otherwise."""
    quantised = run(tmp_path, colours=MIXED)
    assert quantised.model is not None
    nearer = SEAL.tolerances | {"int8": Tolerance(box_px=2.0, score=1e-9)}
    bundle = open_bundle(sealed(tmp_path, quantised, SEAL.model_copy(update={"tolerances": nearer})).path)
    made = bundle.manifest.quantisation
    assert made is not None
    assert not made.shipped
    assert "boxes differ by more than 2 px or 1e-09 in score" in made.reason
    assert INT8_MODEL_FILE not in bundle.manifest.files
    with pytest.raises(EngineError, match=INT8_MODEL_FILE):
        check_golden(open_detector(bundle, INT8), bundle)


def test_not_wished_for_nothing_is_made_and_the_manifest_is_as_before(tmp_path: Path):
    quantised = run(tmp_path, wished=False)
    assert quantised == Quantised()
    assert outcome_words(quantised) == "INT8 was not asked for: the bundle has FP32 only"
    one = sealed(tmp_path, quantised)
    assert not one.int8
    stored = (one.path / "bundle.json").read_text()
    assert "quantisation" not in stored
    assert "build_wishes" not in stored


def test_build_wishes_are_recorded_not_built(tmp_path: Path):
    wishes = (BuildWish(provider="tensorrt", precision="fp16"),)
    one = sealed(tmp_path, run(tmp_path, wished=False, build_wishes=wishes))
    bundle = open_bundle(one.path)
    assert bundle.manifest.build_wishes == wishes
    assert set(bundle.manifest.files) == {
        "model.onnx",
        "golden/golden.json",
        "golden/0.png",
        "golden/1.png",
        "golden/2.png",
    }


def test_a_manifest_that_contradicts_its_files_is_refused(tmp_path: Path):
    quantised = run(tmp_path)
    with pytest.raises(ValueError, match=r"quantisation\.shipped: True, against files: model\.int8\.onnx"):
        sealed(tmp_path, Quantised(None, quantised.made))
