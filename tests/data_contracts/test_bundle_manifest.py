from __future__ import annotations

import pytest
from pydantic import ValidationError

import builders
from data_contracts.base import canonical_json, sha256_of
from data_contracts.bundle import BundleManifest


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> dict:
    bundle = builders.first_bundle(tmp_path_factory.mktemp("bundle"))
    return BundleManifest.model_validate_json((bundle / "bundle.json").read_bytes()).model_dump(mode="json")


def changed(manifest: dict, path: str, value: object) -> dict:
    *parents, last = path.split(".")
    result = BundleManifest.model_validate(manifest).model_dump(mode="json")
    place = result
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


def test_the_digest_does_not_depend_on_the_file_s_layout(manifest):
    checked = BundleManifest.model_validate(manifest)
    again = BundleManifest.model_validate_json(checked.to_json())
    assert again.digest == checked.digest


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2"),
        ("model.class_names", ["red", "lime"]),
        ("model.letterbox.pad_value", 0),
        ("verdict.thresholds", [0.25, 0.26]),
        ("provenance.seed", 1),
        ("tolerances.fp32.score", 0.02),
    ],
)
def test_every_field_is_part_of_the_digest(manifest, path, value):
    original = BundleManifest.model_validate(manifest)
    assert BundleManifest.model_validate(changed(manifest, path, value)).digest != original.digest


def test_a_bundle_sealed_before_probe_sets_keeps_its_digest(manifest):
    before = {name: value for name, value in manifest.items() if not name.startswith("probe_")}
    checked = BundleManifest.model_validate(before)
    assert (checked.probe_set, checked.probe_limits) == (None, {})
    assert checked.digest == sha256_of(canonical_json(before))
    assert "probe" not in checked.to_json()


@pytest.mark.parametrize(
    "added",
    [{"probe_set": "a" * 64}, {"probe_limits": {"bf16": {"max_flip_share": 0.01, "min_box_share": 0.9}}}],
    ids=["set", "limits"],
)
def test_a_probe_set_and_its_limits_are_part_of_the_digest(manifest, added):
    with_probe = BundleManifest.model_validate(manifest | added)
    assert with_probe.digest != BundleManifest.model_validate(manifest).digest
    assert BundleManifest.model_validate_json(with_probe.to_json()) == with_probe


REFUSED = {
    "unknown schema": ("schema_version", 2, "schema_version"),
    "unknown field": ("surprise", 1, "surprise"),
    "missing letterbox": ("model.letterbox", None, "model.letterbox"),
    "class named twice": ("model.class_names", ["red", "red"], "a name stands twice"),
    "thresholds for another list": ("verdict.thresholds", [0.5], "expected 2, one per class, got 1"),
    "threshold over one": ("verdict.thresholds", [0.5, 1.5], "thresholds"),
    "unknown layout": ("model.output.layout", "yolo", "model.output.layout"),
    "no tolerance for fp32": ("tolerances", {}, "fp32 is missing"),
    "path that climbs": ("files", {"../model.onnx": {"sha256": "0" * 64, "size_bytes": 1}}, "plain relative path"),
    "absolute path": ("files", {"/model.onnx": {"sha256": "0" * 64, "size_bytes": 1}}, "plain relative path"),
    "model not listed": ("files", {"a": {"sha256": "0" * 64, "size_bytes": 1}}, "model.onnx is not listed"),
    "digest in capitals": ("files", {"model.onnx": {"sha256": "A" * 64, "size_bytes": 1}}, "sha256"),
}


@pytest.mark.parametrize(("path", "value", "words"), REFUSED.values(), ids=REFUSED)
def test_inconsistent_manifests_are_refused_naming_the_field(manifest, path, value, words):
    with pytest.raises(ValidationError, match=words):
        BundleManifest.model_validate(changed(manifest, path, value))
