"""What `passline dataset` says of revisions: names, text and JSON fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetRepoError
from deployments import dataset_views
from deployments.dataset_views import (
    Revision,
    compared_pins,
    dataset_name,
    list_text,
    locate,
    open_revision,
    show_fields,
    show_text,
)
from scan_tables import Made, scan_of
from tasks.dataset_repo import DatasetEntry
from tasks.settings import SiteSettings
from tasks.validate import ValidateConfig

SCAN = scan_of(Made("images/train/a.png", [(0, 0.5, 0.5, 0.1, 0.1)]), Made("images/val/v.png"))


def pin(commit: str = "a", **fields: object) -> DatasetPin:
    known = {"name": "plates", "ref": DatasetRef(repository="/data/plates"), "file_count": 5, "size_bytes": 3 * 2**20}
    return DatasetPin.model_validate(known | {"commit": commit * 40, "dvc_hash": commit * 32 + ".dir"} | fields)


def entry(commit: str, message: str = "new") -> DatasetEntry:
    return DatasetEntry("plates", pin(commit), message, "2026-03-01T08:15:00+01:00")


def settings(tmp_path: Path, *names: str) -> SiteSettings:
    for name in names:
        (tmp_path / "datasets" / name / ".dvc").mkdir(parents=True)
        (tmp_path / "datasets" / name / ".dvc/config").touch()
    return SiteSettings.model_construct(home=tmp_path)


NAMES = {
    "a name": ("plates", "plates"),
    "a folder": ("/data/Plates/", "plates"),
    "a URL": ("https://host/data/metal_plates.git", "metal_plates"),
    "other letters": ("/data/Blöcke 7", "bl-cke-7"),
    "nothing usable": ("/data/...", "dataset"),
    "too long": ("/data/" + "x" * 99, "x" * 63),
}


@pytest.mark.parametrize(("repository", "name"), NAMES.values(), ids=NAMES)
def test_a_dataset_has_a_name(repository, name):
    assert dataset_name(repository) == name
    assert pin(name=dataset_name(repository)).name == name


@pytest.mark.parametrize(
    ("names", "words"), [((), "no dataset on this machine yet"), (("plates", "tiles"), "there are plates, tiles")]
)
def test_an_unknown_name_is_told_with_the_known_ones(tmp_path, names, words):
    with pytest.raises(DatasetRepoError, match=words):
        locate(settings(tmp_path, *names), "plate", "HEAD")


def test_a_known_name_and_a_path_are_resolved(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_views, "resolve", lambda ref, name: (ref.repository, ref.revision, name))
    site = settings(tmp_path, "plates")
    assert locate(site, "plates", "v1") == (str(site.datasets / "plates"), "v1", "plates")
    assert locate(site, "/data/Tiles", "HEAD") == ("/data/Tiles", "HEAD", "tiles")


def test_the_revision_before_is_compared_unless_another_is_named(tmp_path, monkeypatch):
    site = settings(tmp_path, "plates")
    monkeypatch.setattr(dataset_views, "resolve", lambda ref, name: pin("b", ref=ref))
    monkeypatch.setattr(dataset_views, "previous_revision", lambda newer: pin("a"))
    assert [found.commit[0] for found in compared_pins(site, "plates", None, "HEAD")] == ["a", "b"]
    old, new = compared_pins(site, "plates", "v1", "v2")
    assert (old.ref.revision, new.ref.revision) == ("v1", "v2")
    monkeypatch.setattr(dataset_views, "previous_revision", lambda newer: None)
    with pytest.raises(DatasetRepoError, match="expected an earlier revision, got the first one"):
        compared_pins(site, "plates", None, "HEAD")


def test_a_recorded_split_is_counted(tmp_path, monkeypatch):
    (tmp_path / "splits.csv").write_text("picture,split\na,train\nb,train\nc,val\n")
    asked = []
    monkeypatch.setattr(dataset_views, "fetch", lambda pinned, home: tmp_path)
    monkeypatch.setattr("tasks.validate.scan_folder", lambda *args, **more: asked.append(args) or SCAN)
    config = ValidateConfig.model_construct()
    revision = open_revision(settings(tmp_path), pin(), config)
    assert revision.recorded == {"train": 2, "val": 1}
    assert asked == [(tmp_path, config, tmp_path / "scans")]
    (tmp_path / "splits.csv").unlink()
    assert open_revision(settings(tmp_path), pin(), config).recorded == {}


def test_a_revision_is_shown_with_its_counts_and_history():
    text = show_text(Revision(pin(), SCAN, {"train": 2, "val": 1}), [entry("b", "more"), entry("a", "first")])
    assert text.startswith(f"plates: revision {'a' * 40}\n  repository  /data/plates\n")
    assert "5 files, 3.0 MiB" in text
    assert "recorded: train 2, val 1" in text
    assert " 0  pit          1    0" in text
    assert "bbbbbbbbbbbb  2026-03-01 08:15      5  more" in text
    assert "not recorded" in show_text(Revision(pin(), SCAN, {}), [])


def test_long_histories_are_shortened_in_the_text_only():
    entries = [entry("a", f"number {number}") for number in range(30)]
    revision = Revision(pin(), SCAN, {})
    assert ".. and 10 more; --json lists all" in show_text(revision, entries)
    fields = json.loads(json.dumps(show_fields(revision, entries)))
    assert len(fields["history"]) == 30
    assert fields["class_boxes"]["pit"] == {"train": 1, "val": 0}
    assert fields["pin"]["commit"] == "a" * 40


def test_the_list_says_how_to_make_a_first_dataset():
    assert "passline dataset add" in list_text(())
    assert list_text([entry("a", "first")]).splitlines()[1].startswith("plates  aaaaaaaaaaaa  2026-03-01 08:15")
