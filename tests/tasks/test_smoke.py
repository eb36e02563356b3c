"""The short training before the long one: a few pictures of the whole set, and what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from data_contracts.errors import JobError
from tasks.smoke import SmokeConfig, choose_pictures, smoke_arguments, smoke_plan, spread, write_smoke_data
from tasks.train import TrainConfig, train_arguments
from training_fakes import TRAIN

SMOKE = SmokeConfig(epochs=3, imgsz=320, steps=2, stuck_s=120)


@pytest.fixture
def data_yaml(tmp_path: Path) -> Path:
    """A working copy with 20 pictures to train on and 4 to validate with."""
    for split, count in (("train", 20), ("val", 4)):
        folder = tmp_path / "images" / split
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number:02}.png").touch()
        (folder / "notes.txt").touch()
    fields = {"path": str(tmp_path), "train": "images/train", "val": "images/val", "names": {0: "pit", 1: "dent"}}
    (tmp_path / "data.yaml").write_text(yaml.safe_dump(fields))
    return tmp_path / "data.yaml"


@pytest.mark.parametrize(
    ("case", "count", "expected"),
    [("fewer", 2, "ad"), ("as many", 6, "abcdef"), ("more", 9, "abcdef"), ("one", 1, "a")],
)
def test_pictures_are_spread_over_the_whole_set(case: str, count: int, expected: str) -> None:
    assert "".join(path.name for path in spread([Path(name) for name in "abcdef"], count)) == expected


def test_both_splits_are_cut_to_a_few_pictures(data_yaml: Path) -> None:
    chosen = choose_pictures(data_yaml, 8)
    assert [path.stem for path in chosen.train] == ["00", "02", "05", "07", "10", "12", "15", "17"]
    assert len(chosen.val) == 4


def test_the_data_of_the_smoke_run_name_pictures_where_they_lie(data_yaml: Path, tmp_path: Path) -> None:
    written = yaml.safe_load(write_smoke_data(data_yaml, choose_pictures(data_yaml, 2), tmp_path / "smoke").read_text())
    assert written["names"] == {0: "pit", 1: "dent"}
    listed = Path(written["path"], written["train"]).read_text().splitlines()
    assert listed == [str(tmp_path / "images/train/00.png"), str(tmp_path / "images/train/10.png")]
    assert all(Path(line).is_file() for line in listed)


def test_splits_without_pictures_are_all_named(data_yaml: Path, tmp_path: Path) -> None:
    fields = yaml.safe_load(data_yaml.read_text()) | {"train": "images/trian", "val": "labels"}
    data_yaml.write_text(yaml.safe_dump(fields))
    (data_yaml.parent / "labels").mkdir()
    with pytest.raises(JobError) as refused:
        choose_pictures(data_yaml, 8)
    assert [str(problem).split(": ", 1)[1] for problem in refused.value.problems] == [
        f"train: expected pictures in {tmp_path}/images/trian, got no such folder. Mend the dataset or its splits.",
        f"val: expected pictures in {tmp_path}/labels, got no picture in it. Mend the dataset or its splits.",
    ]


@pytest.mark.parametrize(("imgsz", "expected"), [(64, 64), (320, 320), (640, 320)])
def test_it_is_the_jobs_training_shortened(imgsz: int, expected: int) -> None:
    config = TrainConfig(**(TRAIN | {"imgsz": imgsz, "epochs": 40}))
    short = smoke_arguments(config, SMOKE)
    changed = {name for name, value in short.items() if value != train_arguments(config)[name]}
    assert (short["imgsz"], short["epochs"]) == (expected, 3)
    assert changed <= {"imgsz", "epochs", "plots"}


def test_a_missing_model_is_refused_before_anything_starts(data_yaml: Path, tmp_path: Path) -> None:
    config = TrainConfig(**(TRAIN | {"model": "nothing.pt"}))
    with pytest.raises(JobError, match=r"train\.model 'nothing\.pt'"):
        smoke_plan(config, SMOKE, data_yaml, tmp_path / "smoke" / "run", tmp_path)
