from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from prefect.logging import disable_run_logger

from builders import encode, noisy_plate, write_mini_dataset
from data_contracts.dataset import DatasetRef
from tasks import validate
from tasks.dataset_repo import add_dataset
from tasks.datasets.pinned_copy import list_tree
from tasks.pin import PinnedDataset, pin
from tasks.validate import ValidateConfig, check_dataset
from tasks.validation.findings import ValidationReport

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
PARSED = yaml.safe_load(PARAMS.read_text())["job"]["validation"] | {"max_quarantined_share": 0.2}
CONFIG = ValidateConfig.model_validate(PARSED)


def _check(pinned: PinnedDataset, run: Path, home: Path) -> ValidationReport:
    with disable_run_logger():
        return check_dataset.fn(pinned, CONFIG, run / "data", home / "scans", home / "pinned")


@pytest.fixture(scope="module")
def revisions(tmp_path_factory) -> tuple[Path, PinnedDataset, PinnedDataset]:
    """Two revisions of one dataset, both on this machine; the second has a picture more, which is cut off."""
    home = tmp_path_factory.mktemp("home")
    folder = write_mini_dataset(home / "source", counts={"train": 8, "val": 2}).folder
    pins = []
    for message in ("first", "second"):
        add_dataset(folder, home / "datasets", "mini", message)
        pins.append(pin(DatasetRef(repository=str(home / "datasets/mini")), "mini", home / "pinned"))
        (folder / "images/train/cut.png").write_bytes(encode(noisy_plate(seed=9))[:-300])
        (folder / "labels/train/cut.txt").write_text("0 .5 .5 .2 .2\n")
    return home, pins[0], pins[1]


def test_a_checked_revision_leaves_its_report_pages_and_quarantine(revisions, tmp_path):
    home, _, second = revisions
    before = list_tree(second.folder)
    report = _check(second, tmp_path, home)
    assert report.accepted
    assert report.quarantined == ("images/train/cut.png",)
    page = (tmp_path / "data/data_report.html").read_text()
    assert "images/train/cut.png" in page
    assert second.pin.commit in page
    assert "added" in page
    assert ValidationReport.model_validate_json((tmp_path / "data/validation.json").read_bytes()) == report
    assert (tmp_path / "data/data_docs/index.html").is_file()
    with (tmp_path / "data/quarantine.csv").open() as file:
        assert list(csv.reader(file)) == [["picture", "rules"], ["images/train/cut.png", "picture_undecodable"]]
    assert list_tree(second.folder) == before


def test_a_revision_before_that_cannot_be_compared_is_no_reason_to_stop(revisions, tmp_path, monkeypatch):
    home, _, second = revisions

    def unreachable(_: object) -> None:
        raise validate.DatasetError("the repository is away")

    monkeypatch.setattr(validate, "previous_revision", unreachable)
    assert _check(second, tmp_path, home).accepted
    assert (tmp_path / "data/data_report.html").is_file()
