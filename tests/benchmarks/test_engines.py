from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine_accuracy import Accuracy, compare, measure_accuracy
from benchmarks.engine_models import Subject, given, with_int8
from benchmarks.engine_report import Findings, choose, conclude
from benchmarks.engine_speed import REFERENCE, Kind, Speed, Way, fastest, gain, measure_speeds, open_ways, ways
from benchmarks.engines import FULL, cpu_flags, main
from builders import make_bundle, model_spec, noisy_plate, tiny_onnx, write_mini_dataset
from data_contracts.bundle import INT8_MODEL_FILE, VerdictRule
from data_contracts.detections import Detections
from data_contracts.tuning import EngineChoice, TunedCandidate, Tuning
from fakes import FakeEngine
from serving.bundle import hash_file, open_bundle, write_manifest
from serving.engines import EngineOptions, EnginePossibility, open_engine

BF16: Kind = ("openvino", "bf16")
INT8: Kind = ("openvino", "int8")
SUBJECTS = tuple(Subject(name, Path("bundle"), Path("files")) for name in ("made up", "trained"))


def accuracy(loss: float | None) -> Accuracy:
    return Accuracy(map50_95=0.5, loss_points=loss, flips=1, pictures=60, boxes=90, box_px=2.0, score=0.04)


def findings(
    *, bf16_rate: float = 20.0, loss: float | None = 0.2, flags: tuple[str, ...] = ("avx512_bf16",), **more: object
) -> Findings:
    """FP32 gives 10 pictures/s with a thread per stream and 8 with both threads for one call; INT8 is the fastest."""
    speeds = {
        Way(REFERENCE, 1, 2): Speed([10.0, 10.0, 11.0], [90.0, 91.0, 92.0]),
        Way(REFERENCE, 2, 1): Speed([8.0, 8.0, 8.0], [60.0, 60.0, 60.0]),
        Way(BF16, 1, 2): Speed([bf16_rate] * 3, [48.0] * 3),
        Way(INT8, 1, 2): Speed([30.0] * 3, [40.0] * 3),
    }
    judged = {REFERENCE: accuracy(0.0), BF16: accuracy(loss), INT8: accuracy(3.0)}
    return Findings({"made up": speeds, "trained": speeds}, accuracy=judged, flags=flags, **more)


def tuning(provider: str, precision: str) -> Tuning:
    chosen = EngineChoice(provider=provider, precision=precision, threads=1, streams=2)
    row = TunedCandidate(engine=chosen.model_copy(update={"precision": "int8"}), refused="too many boxes moved")
    return Tuning(chosen=chosen, policy="throughput", how="measured", candidates=(row, row))


CONCLUSIONS = {
    "fast and harmless": (findings(), False, (2.0, True), (0.2, True)),
    "fast at a price": (findings(loss=0.6), False, (1.0, False), (0.0, True)),
    "harmless but slow": (findings(bf16_rate=14.0), False, (1.4, False), (0.2, True)),
    "nothing to compare": (findings(loss=None), False, (1.0, False), (0.0, True)),
    "quick": (findings(), True, (2.0, None), (0.2, None)),
    "an old CPU": (findings(flags=()), False, (2.0, None), (0.2, None)),
    "the tuner says no": (findings(tuned={"trained": tuning("cpu", "fp32")}), False, (1.0, False), (0.0, True)),
    "the tuner says yes": (findings(loss=0.9, tuned={"trained": tuning(*BF16)}), False, (2.0, True), (0.9, False)),
}


@pytest.mark.parametrize(("found", "quick", "expected_gain", "expected_loss"), CONCLUSIONS.values(), ids=CONCLUSIONS)
def test_conclusions(
    found: Findings, quick: bool, expected_gain: tuple[float, bool | None], expected_loss: tuple[float, bool | None]
) -> None:
    bars = {bar.name: bar for bar in conclude(found, SUBJECTS, FULL, quick=quick).bars}
    assert (bars["engine_gain"].value, bars["engine_gain"].holds) == (pytest.approx(expected_gain[0]), expected_gain[1])
    assert (bars["map_loss"].value, bars["map_loss"].holds) == (pytest.approx(expected_loss[0]), expected_loss[1])
    assert (bars["engine_gain"].limit, bars["map_loss"].limit) == (1.5, 0.5)


def test_the_report_says_what_was_not_possible_and_why() -> None:
    found = findings(impossible={"openvino bf16": "no BF16 instructions"}, tuned={"trained": tuning("cpu", "fp32")})
    measured = conclude(found, SUBJECTS, FULL, quick=False)
    text = "\n".join(measured.notes)
    assert "not possible here: openvino bf16: no BF16 instructions" in text
    assert text.count("too many boxes moved") == 1
    speed, _, judged = measured.tables
    assert ("openvino bf16", "1 x 2", "20.0", "20.0 - 20.0", "48.0", "2.00") in speed.rows
    assert ("openvino bf16", "0.5000", "+0.20", "1 of 60", "90", "2.00", "0.040") in judged.rows


def test_an_unknown_choice_of_the_tuner_is_not_taken_for_a_measured_one() -> None:
    found = findings(tuned={"trained": tuning("tensorrt", "fp16")})
    assert choose(found, "trained")[0] == BF16


# --- speed --------------------------------------------------------------------------------------------------------


def test_usable_engines_in_both_layouts() -> None:
    possible = [EnginePossibility("cpu", "fp32"), EnginePossibility("openvino", "bf16", "no BF16 instructions")]
    assert ways(possible, 4) == (Way(REFERENCE, 1, 4), Way(REFERENCE, 4, 1))
    assert ways(possible, 1) == (Way(REFERENCE, 1, 1),)


def test_every_round_measures_every_engine() -> None:
    slow, fast = FakeEngine(delay_s=0.02), FakeEngine()
    speeds = measure_speeds(
        {Way(REFERENCE, 1, 1): slow, Way(BF16, 1, 2): fast}, np.zeros((1, 3, 8, 8), np.float32), 3, 0
    )
    assert [len(speed.rates) for speed in speeds.values()] == [3, 3]
    assert fastest(speeds, [REFERENCE, BF16]) == Way(BF16, 1, 2)
    assert (gain(speeds, Way(BF16, 1, 2)) or 0) > 1
    assert all(number >= 20 for number in speeds[Way(REFERENCE, 1, 1)].lone_ms)


def test_the_gain_is_over_the_best_layout_of_the_reference() -> None:
    speeds = findings().speeds["made up"]
    assert gain(speeds, Way(REFERENCE, 2, 1)) == pytest.approx(0.8)
    assert gain(speeds, None) is None


def test_an_engine_that_does_not_open_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(tiny_onnx())
    wanted = [Way(REFERENCE, 1, 1), Way(INT8, 1, 1)]
    opened, failed = open_ways(wanted, tmp_path, model_spec())
    assert (list(opened), list(failed)) == (wanted[:1], wanted[1:])
    assert "model.int8.onnx" in failed[wanted[1]]


# --- accuracy -----------------------------------------------------------------------------------------------------

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.5), chosen_on="a test")


def boxes(*rows: tuple[float, float, int]) -> Detections:
    """Square boxes of 10 px from (left, score, class)."""
    corners = [[left, 0, left + 10, 10] for left, _, _ in rows]
    return Detections(
        np.array(corners, np.float32).reshape(-1, 4),
        np.array([score for _, score, _ in rows], np.float32),
        np.array([class_id for _, _, class_id in rows], np.int64),
    )


def test_verdicts_boxes_and_scores_are_compared() -> None:
    """A box that moved by 3 px, one that fell below its threshold, and one of a class that was not found again."""
    first = [boxes((0, 0.9, 0), (40, 0.2, 0)), boxes((0, 0.6, 0)), boxes((5, 0.8, 1))]
    second = [boxes((3, 0.8, 0)), boxes((0, 0.4, 0)), boxes((5, 0.8, 0))]
    one = compare(first, second, RULE, 0.50, 0.48)
    assert (one.flips, one.pictures, one.boxes) == (1, 3, 2)
    assert one.loss_points == pytest.approx(2.0)
    assert one.box_px == pytest.approx(3.0, abs=0.2)
    assert one.score == pytest.approx(0.2)


def test_without_an_average_precision_there_is_no_loss() -> None:
    assert compare([boxes()], [boxes()], RULE, None, None).loss_points is None


# --- models and the rest ------------------------------------------------------------------------------------------


def test_the_head_of_a_quantised_model_stays_in_float(tmp_path: Path) -> None:
    """Quantised as a whole, boxes of hundreds of pixels and scores under 1 share one scale, and the scores are lost."""
    bundle = make_bundle(tmp_path / "bundles", model=tiny_onnx())
    files = with_int8(bundle, [noisy_plate((64, 64), seed) for seed in range(4)], tmp_path / "files")
    batch = np.random.default_rng(0).random((2, 3, 64, 64), np.float32)
    for provider in ("cpu", "openvino"):
        exact, quantised = (
            open_engine(files, model_spec(), EngineOptions(provider, allow_fallback=False, threads=1, precision=each))
            for each in ("fp32", "int8")
        )
        difference = np.abs(exact.run(batch) - quantised.run(batch))[:, 4:].mean()
        assert 0 < difference < 0.05, provider


def test_a_bundle_s_own_quantised_model_is_taken(tmp_path: Path) -> None:
    sealed = make_bundle(tmp_path / "bundles", model=tiny_onnx())
    manifest = open_bundle(sealed).manifest
    bundle = sealed.rename(tmp_path / "bundle")
    (bundle / INT8_MODEL_FILE).write_bytes(b"its own")
    listed = manifest.files | {INT8_MODEL_FILE: hash_file(bundle / INT8_MODEL_FILE)}
    write_manifest(bundle, manifest.model_copy(update={"files": listed}))
    files = with_int8(bundle, [], tmp_path / "files")
    assert (files / INT8_MODEL_FILE).read_bytes() == b"its own"


def test_instructions_of_the_cpu(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("flags : fpu avx512_vnni avx512_bf16\n")
    assert cpu_flags(file) == ("avx512_bf16", "avx512_vnni")
    assert cpu_flags(tmp_path / "none") == ()


def test_bundle_and_data_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--bundle", "somewhere"])
    assert "go together" in capsys.readouterr().err


def test_a_given_bundle_is_measured_on_given_data(tmp_path: Path) -> None:
    data = write_mini_dataset(tmp_path / "data", counts={"train": 12, "val": 4, "test": 5})
    bundle = make_bundle(tmp_path / "bundles", model=tiny_onnx(), class_names=data.class_names)
    subject, labelled = given(bundle, data.folder, tmp_path / "scratch")
    assert subject.probe is None
    judged = measure_accuracy([INT8, REFERENCE], bundle, subject.files, labelled.folder, labelled.class_names)
    assert list(judged) == [REFERENCE, INT8]
    assert {one.pictures for one in judged.values()} == {5}
    assert judged[REFERENCE].loss_points == 0.0
