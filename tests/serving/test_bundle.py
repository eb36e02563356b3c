from __future__ import annotations

import json
import os
import shutil

import pytest

import builders
from data_contracts.base import sha256_of
from data_contracts.bundle import Attestation, BundleManifest, GoldenSet
from data_contracts.errors import BundleError
from data_contracts.release import now
from serving import bundle as module
from serving.bundle import hash_file, open_bundle, write_manifest


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    return builders.first_bundle(tmp_path_factory.mktemp("sealed"))


@pytest.fixture
def copy(sealed, tmp_path):
    """A copy that a test may damage, under a name that is no digest."""
    return shutil.copytree(sealed, tmp_path / "copy")


def attest(folder, digest: str, kind: str = "gates") -> None:
    (folder / "attestations").mkdir(exist_ok=True)
    attestation = Attestation(kind=kind, digest=digest, made_at=now(), statement={"accepted": True})
    (folder / "attestations" / f"{kind}.json").write_text(attestation.to_json())


def reseal(folder, **changes) -> str:
    """Make the manifest agree with the files again, so that only the change itself is wrong."""
    manifest = BundleManifest.model_validate_json((folder / "bundle.json").read_bytes())
    (folder / "bundle.json").unlink()
    files = builders.list_files(folder)
    return write_manifest(folder, manifest.model_copy(update={"files": files} | changes))


def test_a_sealed_bundle_opens(sealed):
    opened = open_bundle(sealed)
    assert opened.digest == sealed.name == opened.manifest.digest
    assert opened.path == sealed
    assert len(opened.golden.pictures) == 3
    assert open_bundle(sealed, opened.digest).digest == opened.digest


def test_a_relative_path_becomes_absolute(sealed, monkeypatch):
    monkeypatch.chdir(sealed.parent)
    assert open_bundle(sealed.relative_to(sealed.parent)).path == sealed


def test_the_layout_of_the_manifest_s_text_does_not_matter(copy):
    value = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps(value, sort_keys=True))
    open_bundle(copy)


def test_attestations_may_come_later(copy, sealed):
    attest(copy, sealed.name)
    attest(copy, sealed.name, "promotion")
    assert open_bundle(copy, sealed.name).digest == sealed.name


def test_the_builder_gives_the_same_digest_again(sealed, tmp_path):
    assert builders.first_bundle(tmp_path).name == sealed.name
    assert builders.second_bundle(tmp_path).name != sealed.name


def flip_byte(folder, name="model.onnx"):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)


def edit(folder, change):
    value = json.loads((folder / "bundle.json").read_text())
    change(value)
    (folder / "bundle.json").write_text(json.dumps(value))


def link(folder):
    (folder / "model.onnx").rename(folder.parent / "model.onnx")
    (folder / "model.onnx").symlink_to(folder.parent / "model.onnx")


DAMAGES = {
    "altered byte": (flip_byte, r"model\.onnx: expected SHA-256"),
    "altered golden picture": (lambda f: flip_byte(f, "golden/1.png"), r"golden/1\.png: expected SHA-256"),
    "longer file": (lambda f: (f / "model.onnx").write_bytes(bytes(9999)), r"model\.onnx: expected \d+ bytes"),
    "missing file": (lambda f: (f / "golden/2.png").unlink(), r"golden/2\.png: expected a file .* got nothing"),
    "extra file": (lambda f: (f / "run.py").write_text("x"), r"run\.py: expected only files"),
    "extra file in a folder": (lambda f: (f / "golden/.hidden").write_text("x"), r"golden/\.hidden"),
    "extra attestation of another kind": (
        lambda f: attest(f, "a" * 64) or (f / "attestations/note.txt").write_text("x"), r"attestations/note\.txt"),
    "symbolic link": (link, r"model\.onnx: expected a regular file, got a symbolic link"),
    "link to a folder": (lambda f: (f / "more").symlink_to("/"), "more: expected a regular file, got a symbolic link"),
    "pipe": (lambda f: os.mkfifo(f / "pipe"), "pipe: expected a regular file, got a special file"),
    "no manifest": (lambda f: (f / "bundle.json").unlink(), r"bundle\.json: expected a file, got nothing"),
    "manifest is no JSON": (lambda f: (f / "bundle.json").write_text("{"), r"bundle\.json: content"),
    "manifest is a link": (
        lambda f: (f / "bundle.json").unlink() or (f / "bundle.json").symlink_to("x"), "got something else"),
    "huge manifest": (lambda f: (f / "bundle.json").write_text(" " * (2**20 + 1)), "at most 1048576 bytes"),
    "unknown schema": (lambda f: edit(f, lambda v: v.update(schema_version=2)), r"bundle\.json: schema_version"),
    "unknown field": (lambda f: edit(f, lambda v: v.update(colour="red")), r"bundle\.json: colour"),
    "nested field missing": (
        lambda f: edit(f, lambda v: v["model"]["letterbox"].pop("pad_value")), r"model\.letterbox\.pad_value"),
    "attestation of another bundle": (lambda f: attest(f, "a" * 64), r"attestations/gates\.json: digest"),
    "attestation that is none": (
        lambda f: (f / "attestations").mkdir() or (f / "attestations/x.json").write_text("[]"), r"x\.json: content"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_every_damage_is_refused_by_name(copy, damage, words):
    damage(copy)
    with pytest.raises(BundleError, match=words):
        open_bundle(copy)


def test_all_damages_are_named_at_once(copy):
    flip_byte(copy)
    (copy / "golden/2.png").unlink()
    (copy / "extra").write_text("x")
    attest(copy, "a" * 64)
    with pytest.raises(BundleError) as caught:
        open_bundle(copy, "b" * 64)
    assert len(caught.value.problems) == 5


def test_the_digest_must_be_the_expected_one(sealed):
    with pytest.raises(BundleError, match="by the caller"):
        open_bundle(sealed, "b" * 64)


def test_a_folder_named_by_a_digest_holds_that_bundle(copy):
    renamed = copy.rename(copy.parent / ("c" * 64))
    with pytest.raises(BundleError, match="by the folder's name"):
        open_bundle(renamed)


@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.write_text("x")], ids=["nothing", "a file"])
def test_only_a_folder_can_be_a_bundle(tmp_path, make):
    make(tmp_path / "b")
    with pytest.raises(BundleError, match="a bundle folder"):
        open_bundle(tmp_path / "b")


def test_a_link_to_a_bundle_is_refused(sealed, tmp_path):
    (tmp_path / "b").symlink_to(sealed)
    with pytest.raises(BundleError, match="a bundle folder"):
        open_bundle(tmp_path / "b")


def test_a_file_over_the_limit_is_not_even_read(copy, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    with pytest.raises(BundleError, match=r"golden\.json: expected at most 1000 bytes"):
        open_bundle(copy)


@pytest.mark.parametrize("name", ["bundle.json", "attestations/gates.json"])
def test_what_comes_after_sealing_cannot_be_listed(copy, name):
    manifest = BundleManifest.model_validate_json((copy / "bundle.json").read_bytes())
    files = dict(manifest.files) | {name: manifest.files["model.onnx"]}
    write_manifest(copy, manifest.model_copy(update={"files": files}))
    with pytest.raises(BundleError, match="no manifest and no attestations"):
        open_bundle(copy)


def change_golden(folder, change) -> None:
    value = json.loads((folder / "golden/golden.json").read_text())
    change(value)
    (folder / "golden/golden.json").write_text(json.dumps(value))
    reseal(folder)


GOLDEN_FAULTS = {
    "picture that is not there": (lambda v: v["pictures"][0].update(file="golden/9.png"), "golden/9.png"),
    "class of another list": (lambda v: v["pictures"][0]["detections"][0].update(class_name="rust"), "0 'rust'"),
    "class id over the list": (lambda v: v["pictures"][0]["detections"][0].update(class_id=7), "7 'red'"),
    "no pictures": (lambda v: v.update(pictures=[]), "golden.json: pictures"),
}


@pytest.mark.parametrize(("change", "words"), GOLDEN_FAULTS.values(), ids=GOLDEN_FAULTS)
def test_a_golden_set_that_contradicts_the_bundle_is_refused(copy, change, words):
    change_golden(copy, change)
    with pytest.raises(BundleError, match=words):
        open_bundle(copy)


def test_a_hash_is_the_file_s(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 300_000)
    entry = hash_file(tmp_path / "f")
    assert (entry.sha256, entry.size_bytes) == (sha256_of(b"x" * 300_000), 300_000)


def test_the_golden_set_is_the_recorded_one(sealed):
    recorded = GoldenSet.model_validate_json((sealed / "golden/golden.json").read_bytes())
    assert open_bundle(sealed).golden == recorded
    assert [picture.verdict for picture in recorded.pictures] == ["NG", "NG", "OK"]
