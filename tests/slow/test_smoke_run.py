"""A real smoke run: it trains, leaves nothing behind, and stops at data that a training must not see."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from data_contracts.errors import PasslineError
from deployments.demo.plates import PlateCounts, write_plates
from tasks.smoke import SmokeConfig, smoke_train
from tasks.train import TrainConfig
from training_fakes import TRAIN

SMOKE = SmokeConfig(epochs=3, imgsz=64, steps=1, stuck_s=300)


@pytest.fixture
def data_yaml(tmp_path: Path) -> Path:
    write_plates(tmp_path / "plates", seed=1, counts=PlateCounts(train=8, val=4, test=4, held_out=0))
    fields = yaml.safe_load((tmp_path / "plates" / "data.yaml").read_text())
    (tmp_path / "plates" / "data.yaml").write_text(yaml.safe_dump(fields | {"path": str(tmp_path / "plates")}))
    return tmp_path / "plates" / "data.yaml"


def smoke(data_yaml: Path) -> list[str]:
    said: list[str] = []
    folder = data_yaml.parents[1]
    smoke_train(TrainConfig(**TRAIN), SMOKE, data_yaml, folder / "run" / "smoke", folder / "home", said.append)
    return said


def test_it_trains_and_leaves_nothing_behind(data_yaml: Path) -> None:
    before = sorted(data_yaml.parent.rglob("*.png"))
    smoke(data_yaml)
    assert sorted(data_yaml.parent.rglob("*.png")) == before
    assert not (data_yaml.parents[1] / "run" / "smoke").exists()


def test_a_label_that_the_trainer_would_drop_with_its_picture_stops_it(data_yaml: Path) -> None:
    label = next(iter(sorted((data_yaml.parent / "labels" / "train").iterdir())))
    label.write_text("0 0.5 0.5 7.0 0.1\n")
    with pytest.raises(PasslineError, match=rf"smoke run: .*{label.stem}") as refused:
        smoke(data_yaml)
    assert "left out" in str(refused.value)
    assert not (data_yaml.parents[1] / "run" / "smoke").exists()
