from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import cv2
import pytest
from pydantic import ValidationError

from builders import GREEN, RED, colour_stub, model_spec, provenance
from data_contracts.bundle import MODEL_FILE, ProbeLimit, Tolerance, VerdictRule
from data_contracts.detections import Verdict
from data_contracts.errors import BundleError, DatasetError
from serving.bundle import hash_file, open_bundle
from serving.detector import check_golden
from serving.probe_files import open_probe_set
from tasks.export import ExportedModel
from tasks.golden_pictures import choose_golden
from tasks.pictures import bundle_detector
from tasks.seal import SealConfig, SealedBundle, add_attestation, seal, version_label
from training_fakes import patch_picture, truth

CONFIG = SealConfig(
    name="plates", golden_pictures=3, golden_score_floor=0.05, tolerances={"fp32": Tolerance(box_px=0.5, score=0.01)},
    probe_pictures=3, probe_limits={"fp32": ProbeLimit(max_flip_share=0.0, min_box_share=1.0)},
)  # fmt: skip
RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.25, 0.25), chosen_on="a test")


def exported(folder: Path) -> ExportedModel:
    folder.mkdir()
    model = folder / MODEL_FILE
    model.write_bytes(colour_stub(2, (64, 64)))
    return ExportedModel(model, hash_file(model).sha256, model_spec(), 0.0)


def validation_pictures(folder: Path):
    return [
        patch_picture(folder, "red.png", (64, 64), ((0, 0, 32, 32), RED, 0)),
        patch_picture(folder, "green.png", (64, 64), ((32, 32, 64, 64), GREEN, 1)),
        patch_picture(folder, "wide.jpg", (128, 48), ((0, 0, 64, 48), RED, 0)),
        patch_picture(folder, "good.png", (64, 64)),
    ]


@pytest.fixture
def sealed(tmp_path: Path) -> SealedBundle:
    true = validation_pictures(tmp_path)
    return seal(exported(tmp_path / "export"), RULE, true, provenance(), CONFIG, tmp_path / "bundles")


def test_a_sealed_bundle_opens_under_its_digest_and_reproduces_its_golden_pictures(sealed: SealedBundle):
    bundle = open_bundle(sealed.path, sealed.digest)
    assert sealed.path.name == sealed.digest
    assert bundle.manifest.version == sealed.version
    check_golden(bundle_detector(bundle), bundle)
    assert {picture.verdict for picture in bundle.golden.pictures} == {Verdict.OK, Verdict.NG}
    assert [path.name for path in sealed.path.parent.iterdir()] == [sealed.digest]


def test_the_manifest_names_the_probe_set_that_lies_beside_the_bundles(sealed: SealedBundle):
    manifest, folder = open_bundle(sealed.path).manifest, open_probe_set(sealed.probe)
    assert manifest.probe_set == folder.digest
    assert manifest.probe_limits == CONFIG.probe_limits
    assert folder.probe.model == manifest.files[MODEL_FILE].sha256
    assert sealed.probe.parent == sealed.path.parent.parent / "probes"
    assert [path.name for path in sealed.probe.parent.iterdir()] == [folder.digest]


def test_golden_pictures_are_8_bit_rgb_png_of_different_shapes(sealed: SealedBundle):
    shapes = []
    for picture in open_bundle(sealed.path).golden.pictures:
        image = cv2.imread(str(sealed.path / picture.file), cv2.IMREAD_UNCHANGED)
        assert picture.file.endswith(".png")
        assert (image.dtype, image.shape[2]) == ("uint8", 3)
        shapes.append(image.shape[:2])
    assert (48, 128) in shapes


def test_a_changed_byte_is_found(sealed: SealedBundle):
    with (sealed.path / MODEL_FILE).open("r+b") as file:
        file.seek(100)
        file.write(b"\x00\x01\x02")
    with pytest.raises(BundleError, match=MODEL_FILE):
        open_bundle(sealed.path)


def test_nothing_is_left_when_sealing_fails(tmp_path: Path):
    model = exported(tmp_path / "export")
    with pytest.raises(DatasetError, match="golden pictures: expected pictures"):
        seal(model, RULE, [], provenance(), CONFIG, tmp_path / "bundles")
    three = RULE.model_copy(update={"thresholds": (0.25, 0.25, 0.25)})
    with pytest.raises(ValidationError, match=r"verdict\.thresholds: expected 2"):
        seal(model, three, validation_pictures(tmp_path), provenance(), CONFIG, tmp_path / "bundles")
    assert list((tmp_path / "bundles").iterdir()) == []


def test_attestations_name_the_digest_and_leave_it_alone(sealed: SealedBundle):
    for verdict in ("first", "second"):
        path = add_attestation(sealed.path, "gates", {"verdict": verdict})
    assert json.loads(path.read_text())["statement"] == {"verdict": "second"}
    assert json.loads(path.read_text())["digest"] == sealed.digest
    assert open_bundle(sealed.path).digest == sealed.digest
    assert [entry.name for entry in sealed.path.parent.iterdir()] == [sealed.digest]


def test_a_broken_bundle_gets_no_attestation(sealed: SealedBundle):
    (sealed.path / MODEL_FILE).unlink()
    with pytest.raises(BundleError, match=MODEL_FILE):
        add_attestation(sealed.path, "gates", {})
    assert not (sealed.path / "attestations").exists()


GOOD = truth(picture="good")
COMMON = [truth((0, 0, 5, 5, 0), picture=f"common{number}") for number in range(3)]
RARE = truth((0, 0, 5, 5, 1), picture="rare")
WIDE = truth((0, 0, 5, 5, 0), picture="wide", wh=(200, 100))


@pytest.mark.parametrize(
    ("pictures", "count", "expected"),
    [
        pytest.param([*COMMON[:2], RARE, GOOD], 3, ["good", "rare", "common0"], id="worked example"),
        pytest.param([*COMMON, RARE, GOOD, WIDE], 4, ["good", "wide", "rare", "common0"], id="one of each kind"),
        pytest.param([*COMMON, GOOD, WIDE], 1, ["good"], id="one only"),
        pytest.param(COMMON, 2, ["common0", "common1"], id="all alike"),
        pytest.param([RARE], 5, ["rare"], id="fewer than wished for"),
        pytest.param([GOOD, GOOD, RARE], 2, ["good", "rare"], id="defects before a second good one"),
    ],
)
def test_golden_pictures_show_most_between_them(pictures, count, expected):
    assert [true.picture.name for true in choose_golden(pictures, count)] == expected


def test_the_label_is_made_of_the_time():
    assert version_label(datetime(2026, 12, 1, 4, 15, 22, tzinfo=UTC)) == "2026.12.1-041522"
