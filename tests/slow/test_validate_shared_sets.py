from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from builders import shared_data
from tasks.validate import ValidateConfig, validate_folder

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
KNOWN = {
    "neu-det-yolo": {"label_duplicate": 1, "picture_copy": 1, "copy_labels_differ": 1},
    "deeppcb-yolo": {},
    "magnetic-tile-yolo": {},
    "kolektor-sdd-yolo": {"picture_copy": 2, "copy_labels_differ": 2},
    "lpbf-metal-yolo": {},
}


@pytest.mark.parametrize(("name", "rules"), KNOWN.items(), ids=KNOWN)
def test_shared_sets_give_their_known_faults_only(name, rules):
    config = ValidateConfig.model_validate(yaml.safe_load(PARAMS.read_text())["job"]["validation"] | {"min_box_px": 1})
    report = validate_folder(shared_data() / name, config)
    assert report.accepted
    assert Counter(finding.rule for finding in report.findings) == rules
