"""The probe set: verified as a whole, and a judge of engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import builders
from data_contracts.bundle import ProbeLimit, Tolerance, VerdictRule
from data_contracts.detections import Detection, Detections, Verdict
from data_contracts.errors import BundleError, ReleaseError
from data_contracts.probe import PROBE_FILE, ProbePicture, ProbeSet
from serving.bundle import open_bundle
from serving.probe import ProbeRule, judge_answers, rule_for
from serving.probe_files import open_probe_set
from serving.store import ReleaseStore

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5,), chosen_on="a test")
ENTRY = {"sha256": "0" * 64, "size_bytes": 1}


def box(score: float, left: float = 10.0) -> Detection:
    return Detection(class_id=0, class_name="scratch", score=score, box_xyxy_px=(left, 10.0, left + 20, 30.0))


def probe_of(count: int, *found: Detection) -> ProbeSet:
    verdict = Verdict.NG if any(one.score >= 0.5 for one in found) else Verdict.OK
    pictures = [
        ProbePicture(file=f"pictures/{number}.png", verdict=verdict, detections=found, entry=ENTRY)
        for number in range(count)
    ]
    return ProbeSet(schema_version=1, model="0" * 64, score_floor=0.25, pictures=tuple(pictures))


def rule(flips: float = 0.0, boxes: float = 1.0) -> ProbeRule:
    return ProbeRule(RULE, Tolerance(box_px=4.0, score=0.1), ProbeLimit(max_flip_share=flips, min_box_share=boxes))


SAME = (box(0.8),)
CASES = {
    "same answers": ([SAME] * 4, rule(), True, "0 of 4 verdicts flipped, allowed 0"),
    "moved within the tolerance": ([(box(0.72, 13.0),)] * 4, rule(), True, "0 of 4 boxes"),
    "one flip too many": ([SAME, SAME, SAME, ()], rule(boxes=0.0), False, "1 of 4 verdicts flipped, allowed 0"),
    "a flip that is allowed": ([SAME, SAME, SAME, ()], rule(0.25, 0.0), True, "1 of 4 verdicts flipped, allowed 1"),
    "moved too far": ([SAME, SAME, SAME, (box(0.8, 20.0),)], rule(), False, "2 of 4 boxes differ by more than 4 px"),
    "scored too low": ([SAME, SAME, SAME, (box(0.6),)], rule(), False, "1 of 4 boxes"),
    "a box too many": ([SAME, SAME, SAME, (*SAME, box(0.9, 80.0))], rule(), False, "1 of 4 boxes"),
    "lost boxes that are allowed": ([SAME, SAME, SAME, (box(0.6),)], rule(boxes=0.75), True, "allowed 1"),
}


@pytest.mark.parametrize(("answers", "by", "passed", "words"), CASES.values(), ids=CASES)
def test_an_engine_is_judged_by_flips_and_boxes(answers, by, passed, words):
    found = [Detections.from_records(one) for one in answers]
    judgement = judge_answers(probe_of(4, *SAME), found, by)
    assert judgement.passed is passed
    assert words in judgement.words


def test_the_allowed_number_is_the_share_of_the_pictures_rounded_down():
    probe, good = probe_of(200, box(0.8)), Detections.from_records(SAME)
    for flips, passed in ((1, True), (3, False)):
        found = [Detections.empty()] * flips + [good] * (200 - flips)
        judgement = judge_answers(probe, found, rule(0.005, 0.9))
        assert judgement.passed is passed
        assert judgement.words.startswith(f"{flips} of 200 verdicts flipped, allowed 1;")


def test_a_missing_answer_is_an_error_and_no_verdict():
    with pytest.raises(ValueError, match="zip"):
        judge_answers(probe_of(2, *SAME), [Detections.empty()], rule())


def test_a_precision_without_a_limit_is_not_judged(tmp_path: Path):
    manifest = open_bundle(builders.probed_bundle(tmp_path)[0]).manifest
    assert rule_for(manifest, "bf16").tolerance == manifest.tolerances["bf16"]
    with pytest.raises(
        BundleError, match=r"precision int8: expected a tolerance and a probe limit.*seal\.probe_limits"
    ):
        rule_for(manifest, "int8")


def test_a_probe_set_comes_into_the_store_whole_and_once(tmp_path: Path):
    source, store = builders.make_probe_set(tmp_path / "made"), ReleaseStore(tmp_path / "store")
    store.prepare()
    for _ in range(2):
        folder = store.add_probe_set(source, source.name)
    assert [path.name for path in store.probes.iterdir()] == [source.name]
    shapes = [image.shape for image in store.probe_set(source.name).images()]
    assert shapes == [(48, 64, 3), (48, 128, 3), (64, 48, 3)]
    assert folder.digest == source.name


def cut(folder: Path) -> None:
    file = folder / "pictures" / "000.png"
    file.write_bytes(file.read_bytes()[:-1])


def forge(folder: Path) -> None:
    content = json.loads((folder / PROBE_FILE).read_text())
    content["pictures"][0]["verdict"] = "OK"
    (folder / PROBE_FILE).write_text(json.dumps(content))


def link(folder: Path) -> None:
    (folder / "pictures" / "000.png").unlink()
    (folder / "pictures" / "000.png").symlink_to("/etc/hostname")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte short": (cut, "000.png"),
    "another expectation": (forge, "digest"),
    "a picture that is gone": (lambda folder: (folder / "pictures" / "001.png").unlink(), "001.png: expected a listed"),
    "a stranger": (lambda folder: (folder / "x.png").write_bytes(b"x"), "x.png: expected only listed files"),
    "a link": (link, "a symbolic link"),
    "no JSON": (lambda folder: (folder / PROBE_FILE).write_text("{"), PROBE_FILE),
    "no list": (lambda folder: (folder / PROBE_FILE).unlink(), PROBE_FILE),
}


@pytest.mark.parametrize(("break_it", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_probe_set_is_not_used_and_not_stored(break_it, words, tmp_path: Path):
    source, store = builders.make_probe_set(tmp_path / "made"), ReleaseStore(tmp_path / "store")
    store.prepare()
    break_it(source)
    with pytest.raises(BundleError, match=words):
        open_probe_set(source)
    with pytest.raises(BundleError, match=words):
        store.add_probe_set(source, source.name)
    assert list(store.probes.iterdir()) == []


def test_a_digest_is_no_path(tmp_path: Path):
    with pytest.raises(ReleaseError, match="64 hexadecimal digits"):
        ReleaseStore(tmp_path).probe_set("../releases")
