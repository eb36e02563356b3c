from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import builders
from builders import BLUE, CPU, GREEN, LIMITS, RED, encode, encode_mode, plate
from data_contracts.bundle import GoldenPicture, GoldenSet, Tolerance, VerdictRule
from data_contracts.detections import Detection, Detections, Verdict
from data_contracts.errors import BundleError, EngineError
from serving.bundle import open_bundle
from serving.detector import Detector, check_golden, open_detector
from serving.golden import compare, compare_decisions
from serving.images import decode_image


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return open_bundle(builders.first_bundle(tmp_path_factory.mktemp("bundles")))


@pytest.fixture(scope="module")
def detector(bundle):
    return open_detector(bundle, CPU)


def facts(found: Detections) -> list[tuple[str, float, tuple[float, ...]]]:
    names = builders.COLOUR_NAMES
    return [(one.class_name, round(one.score, 2), one.box_xyxy_px) for one in found.records(names)]


def test_boxes_are_in_pixels_of_the_picture(detector):
    (found,) = detector.detect([plate((128, 64), ((96, 32, 128, 64), RED))], 0.25)
    # 128x64 in 64x64: scale 0.5, 16 rows above. The grid cell of columns 48-63, rows 32-47 is fully red.
    assert facts(found) == [("red", 1.0, (96, 32, 128, 64))]


SQUARES = plate((64, 48), ((0, 0, 32, 48), RED), ((32, 0, 64, 48), BLUE))
SENT_AS = {
    "jpeg": encode(SQUARES, "jpeg"),
    "png": encode(SQUARES),
    "rgba": encode_mode(SQUARES, "RGBA"),
    "palette": encode_mode(SQUARES, "P"),
    "webp": encode(SQUARES, "webp"),
    "tiff": encode(SQUARES, "tiff"),
    "16 bit": builders.encode_16bit(SQUARES[..., ::-1].astype(np.uint16) << 8),
}


@pytest.mark.parametrize("data", SENT_AS.values(), ids=SENT_AS)
def test_red_is_found_where_it_is_in_every_kind_of_file(detector, data):
    (found,) = detector.detect([decode_image(data, LIMITS)], 0.25)
    assert set(found.class_ids.tolist()) == {0}
    assert found.boxes_xyxy_px[:, 2].max() <= 32


@pytest.mark.parametrize(("orientation", "wh", "corner"), [(6, (40, 80), "right top"), (8, (40, 80), "left bottom")])
def test_boxes_lie_in_the_displayed_picture(detector, orientation, wh, corner):
    stored = plate((80, 40), ((0, 0, 20, 10), RED))
    image = decode_image(encode(stored, "jpeg", orientation), LIMITS)
    assert (image.shape[1], image.shape[0]) == wh
    (found,) = detector.detect([image], 0.1)
    centre_x, centre_y = (found.boxes_xyxy_px[0, :2] + found.boxes_xyxy_px[0, 2:]) / 2
    assert f"{'left' if centre_x < 20 else 'right'} {'top' if centre_y < 40 else 'bottom'}" == corner


def test_each_answer_belongs_to_its_picture_whatever_the_batch(detector):
    colours = [RED, GREEN, BLUE, RED, GREEN, BLUE, RED]
    pictures = [plate((40 + 9 * n, 90 - 7 * n), background=colour) for n, colour in enumerate(colours)]
    alone = [facts(detector.detect([picture], 0.25)[0]) for picture in pictures]
    for batch in (1, 2, 3, 8):
        assert [facts(found) for found in detector.detect(pictures, 0.25, batch)] == alone
    assert [{name for name, _, _ in found} for found in alone] == [
        {"red"}, {"green"}, set(), {"red"}, {"green"}, set(), {"red"}]  # fmt: skip


def test_no_pictures_no_answers(detector):
    assert detector.detect([], 0.25) == []


class FaultyEngine:
    """Changes what a good engine answers."""

    provider, precision, threads, degraded = "cpu", "fp32", 1, ""

    def __init__(self, engine, change) -> None:
        self._engine, self._change = engine, change

    def run(self, batch):
        return self._change(self._engine.run(batch))


def faulty(detector, change) -> Detector:
    return Detector(detector.spec, FaultyEngine(detector.engine, change))


def test_an_engine_that_answers_too_few_is_an_error_never_an_empty_answer(detector):
    with pytest.raises(EngineError, match="expected 2 outputs, got 1"):
        faulty(detector, lambda outputs: outputs[:-1]).detect([plate(), plate()], 0.25)


def test_the_golden_pictures_are_reproduced(bundle, detector):
    check_golden(detector, bundle)


@pytest.mark.parametrize("kind", ["tiny", "end_to_end"])
def test_golden_pictures_of_other_models(tmp_path, kind):
    more = {"model": builders.tiny_onnx()} if kind == "tiny" else {"layout": "end_to_end"}
    opened = open_bundle(builders.make_bundle(tmp_path, **more))
    check_golden(open_detector(opened, CPU), opened)


def shifted(outputs, by_px):
    moved = outputs.copy()
    moved[:, 0] += by_px
    return moved


def channels_swapped(outputs):
    return outputs[:, [0, 1, 2, 3, 5, 4]]


FAULTS = {
    "boxes moved": lambda outputs: shifted(outputs, 2),
    "scores too low": lambda outputs: np.concatenate([outputs[:, :4], outputs[:, 4:] * 0.9], axis=1),
    "no boxes": lambda outputs: outputs * 0,
    "classes swapped": channels_swapped,
    "answers in another order": lambda outputs: outputs[::-1],
}


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS)
def test_an_engine_that_answers_differently_does_not_pass(bundle, detector, change):
    with pytest.raises(BundleError, match="Do not serve this bundle on this engine"):
        check_golden(faulty(detector, change), bundle)


WRONG_IN_ANY_PRECISION = {name: FAULTS[name] for name in ("no boxes", "classes swapped", "answers in another order")}


@pytest.mark.parametrize(
    "change",
    [*WRONG_IN_ANY_PRECISION.values(), lambda outputs: shifted(outputs, 20)],
    ids=[*WRONG_IN_ANY_PRECISION, "boxes moved far"],
)
def test_in_bf16_wrong_answers_do_not_pass_either(tmp_path, change):
    opened, detector = rough(tmp_path, change)
    with pytest.raises(BundleError, match="Do not serve this bundle on this engine"):
        check_golden(detector, opened)


def test_in_bf16_only_what_is_decided_must_be_the_same(tmp_path):
    def softer(outputs):
        return np.concatenate([outputs[:, :4], outputs[:, 4:] * 0.8], axis=1)

    opened, detector = rough(tmp_path, softer)
    check_golden(detector, opened)
    detector.engine.precision = "fp32"
    with pytest.raises(BundleError, match="of its score"):
        check_golden(detector, opened)


def rough(folder, change):
    """A bundle with a tolerance for BF16, and a detector that works in it and changes its outputs."""
    opened = open_bundle(builders.probed_bundle(folder)[0])
    detector = faulty(open_detector(opened, CPU), change)
    detector.engine.precision = "bf16"
    return opened, detector


def test_a_small_difference_passes(bundle, detector):
    check_golden(faulty(detector, lambda outputs: shifted(outputs, 0.1)), bundle)


def test_a_precision_without_tolerance_is_refused(bundle, detector):
    engine = FaultyEngine(detector.engine, lambda outputs: outputs)
    engine.precision = "fp16"
    with pytest.raises(BundleError, match="tolerances: expected one for fp16, got fp32"):
        check_golden(Detector(detector.spec, engine), bundle)


# --- comparison rule, on values -----------------------------------------------------------------------------------

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.5), chosen_on="a test")
TOLERANCE = Tolerance(box_px=1.0, score=0.02)
FLOOR = 0.2


def found(*rows: tuple[float, float, int]) -> Detections:
    """Boxes of 10x10 from (left, score, class id)."""
    return Detections.from_records(records(*rows))


def records(*rows: tuple[float, float, int]) -> tuple[Detection, ...]:
    return tuple(
        Detection(class_id=class_id, class_name="ab"[class_id], score=score, box_xyxy_px=(left, 0, left + 10, 10))
        for left, score, class_id in rows
    )


COMPARED = {
    "equal": ([(0, 0.9, 0)], [(0, 0.9, 0)], []),
    "within tolerance": ([(0, 0.9, 0)], [(0.9, 0.89, 0)], []),
    "too far": ([(0, 0.9, 0)], [(1.5, 0.9, 0)], ["1.50 px away", "beyond the recorded"]),
    "score too far": ([(0, 0.9, 0)], [(0, 0.87, 0)], ["score 0.8700"]),
    "another class": ([(0, 0.9, 0)], [(0, 0.9, 1)], ["got nothing", "beyond the recorded"]),
    "lost": ([(0, 0.9, 0), (50, 0.4, 0)], [(0, 0.9, 0)], ["got nothing"]),
    "lost close to the floor": ([(0, 0.9, 0), (50, 0.21, 0)], [(0, 0.9, 0)], []),
    "new": ([(0, 0.9, 0)], [(0, 0.9, 0), (50, 0.4, 0)], ["beyond the recorded"]),
    "new close to the floor": ([(0, 0.9, 0)], [(0, 0.9, 0), (50, 0.21, 0)], []),
    "each box pairs once": ([(0, 0.9, 0), (0.5, 0.89, 0)], [(0, 0.9, 0)], ["got nothing"]),
    "nearest pairs": ([(0, 0.9, 0), (0.8, 0.88, 0)], [(0.8, 0.88, 0), (0, 0.9, 0)], []),
}


@pytest.mark.parametrize(("recorded", "got", "words"), COMPARED.values(), ids=COMPARED)
def test_comparison(recorded, got, words):
    picture = GoldenPicture(file="golden/0.png", verdict=Verdict.NG, detections=records(*recorded))
    problems = compare(picture, found(*got), RULE, TOLERANCE, FLOOR)
    nearest = [problem for problem in map(str, problems) if "its nearest box" not in problem or "px away" in problem]
    assert len(nearest) == len(words)
    assert all(word in problem for word, problem in zip(words, nearest, strict=True))


DECIDED = {
    "equal": ([(0, 0.9, 0)], [(0, 0.9, 0)], []),
    "scored lower, still over the threshold": ([(0, 0.60, 0)], [(0, 0.50, 0)], []),
    "scored under the threshold": ([(0, 0.60, 0)], [(0, 0.49, 0)], ["nothing over", "verdict NG"]),
    "lost close to the threshold": ([(0, 0.9, 0), (50, 0.58, 0)], [(0, 0.9, 0)], []),
    "new close to the threshold": ([(0, 0.9, 0)], [(0, 0.9, 0), (50, 0.58, 0)], []),
    "lost": ([(0, 0.9, 0), (50, 0.6, 0)], [(0, 0.9, 0)], ["nothing over"]),
    "new": ([(0, 0.9, 0)], [(0, 0.9, 0), (50, 0.6, 0)], ["no defect beyond"]),
    "low-scored boxes come and go": ([(0, 0.9, 0), (50, 0.4, 0)], [(0, 0.9, 0), (80, 0.4, 0)], []),
    # Boxes of 10 x 10 that are 3 px apart overlap by 70 / 130 = 0.54; 4 px apart, by 60 / 140 = 0.43.
    "suppression kept the other of two": ([(0, 0.9, 0)], [(3, 0.88, 0)], []),
    "too far to be the same defect": ([(0, 0.9, 0)], [(4.5, 0.9, 0)], ["nothing over", "no defect beyond"]),
    "another class": ([(0, 0.9, 0)], [(0, 0.9, 1)], ["nothing over", "no defect beyond"]),
    "everything new": ([], [(0, 0.9, 0)], ["no defect beyond", "verdict OK"]),
    "nothing on both sides": ([], [], []),
}


@pytest.mark.parametrize(("recorded", "got", "words"), DECIDED.values(), ids=DECIDED)
def test_what_must_be_decided_alike_in_other_precisions(recorded, got, words):
    """Threshold 0.5, tolerance 0.09: a box counts from 0.59 on."""
    verdict = Verdict.NG if recorded else Verdict.OK
    picture = GoldenPicture(file="golden/0.png", verdict=verdict, detections=records(*recorded))
    for box_px in (1.0, 4.0):  # whether by pixels or by overlap
        tolerance = Tolerance(box_px=box_px, score=0.09)
        problems = [str(one) for one in compare_decisions(picture, found(*got), RULE, tolerance, 0.5)]
        assert len(problems) == len(words), problems
        assert all(word in problem for word, problem in zip(words, problems, strict=True))


VERDICTS = {
    "stands": (0.9, 0.9, Verdict.NG, 0),
    "flips close to the threshold": (0.505, 0.495, Verdict.NG, 0),
    "recorded verdict is wrong": (0.9, 0.9, Verdict.OK, 1),
}


@pytest.mark.parametrize(("recorded", "got", "verdict", "count"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_must_stand(recorded, got, verdict, count):
    picture = GoldenPicture(file="golden/0.png", verdict=verdict, detections=records((0, recorded, 0)))
    assert len(compare(picture, found((0, got, 0)), RULE, TOLERANCE, FLOOR)) == count


def test_a_golden_picture_that_cannot_be_read_is_named(bundle, detector, tmp_path):
    golden = GoldenSet(
        score_floor=0.1,
        pictures=(GoldenPicture(file="golden/golden.json", verdict=Verdict.OK, detections=()),),
    )
    broken = type(bundle)(bundle.path, bundle.manifest, bundle.digest, golden)
    with pytest.raises(BundleError, match=r"golden\.json"):
        check_golden(detector, broken)


def test_the_detector_imports_without_server_or_training():
    code = (
        "import sys, serving.detector, serving.inspect_files\n"
        "banned = {'bentoml', 'torch', 'ultralytics', 'prefect', 'mlflow', 'dvc', 'pandas', 'onnx'}\n"
        "sys.exit(', '.join(sorted(banned & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
