from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from builders import write_mini_dataset
from data_contracts.errors import InvalidInput, JobError
from deployments import cli_validate
from deployments.cli import app
from deployments.params import load_params
from tasks.importers import read_class_names
from tasks.validation.findings import Finding, ValidationReport

ONE = Finding(file="a", line=1, rule="class_id", severity="error", got="7", expected="0", action="Mend it.")
REJECTED = ValidationReport(
    accepted=False, findings=(ONE,), counts={"train": {"pictures": 1, "boxes": 2}}, class_boxes={}
)
ACCEPTED = REJECTED.model_copy(update={"accepted": True, "findings": ()})


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(("report", "code"), [(ACCEPTED, 0), (REJECTED, 1)], ids=["accepted", "rejected"])
def test_the_verdict_is_the_exit_code_and_json_is_one_object(report, code, tmp_path, monkeypatch):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 1}).folder
    monkeypatch.setattr(cli_validate, "_judged", lambda *_, **__: report)
    told = _run(folder, "--json")
    assert told.exit_code == code
    fields = json.loads(told.stdout)
    assert fields["accepted"] is report.accepted
    assert fields["counts"] == report.counts
    assert [set(one) for one in fields["findings"]] == [set(ONE.model_dump())] * len(report.findings)
    table = _run(folder)
    assert table.exit_code == code
    assert table.stdout.startswith("accepted" if report.accepted else "rejected")
    assert "\x1b" not in table.stdout


UNUSABLE = {
    "no folder": ("gone", [], "nothing of that name"),
    "a file": ("file.txt", [], "a file"),
    "an empty folder": ("empty", [], "an empty folder"),
    "no annotations": ("notes", [], "annotations of no format"),
    "unknown format": ("notes", ["--format", "cocoa"], "cocoa"),
    "YOLO without its file": ("notes", ["--format", "yolo"], "data.yaml"),
}


@pytest.mark.parametrize(("name", "options", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_could_not_be_judged_is_told_in_words_and_as_json(name, options, words, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/readme.md").write_text("hello")
    (tmp_path / "file.txt").touch()
    told = _run(tmp_path / name, *options, "--json")
    assert isinstance(told.exception, InvalidInput)
    assert words in str(told.exception)
    fields = json.loads(told.stdout)
    assert (fields["accepted"], fields["findings"], fields["counts"]) == (None, [], {})
    assert words in fields["error"][0]


def test_a_fault_of_the_yaml_file_rejects_with_its_line(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 1}).folder
    (folder / "data.yaml").write_text("train: images/train\nnames: [a]\nnames: [b]\n")
    told = _run(folder, "--json")
    assert told.exit_code == 1
    (finding,) = json.loads(told.stdout)["findings"]
    assert (finding["file"], finding["line"], finding["rule"]) == ("data.yaml", 3, "layout")


def test_a_folder_of_another_format_is_told_in_its_own_paths(tmp_path, monkeypatch):
    """COCO with a YAML file that describes the folder of another machine."""
    mini = write_mini_dataset(tmp_path / "d", counts={"train": 1, "val": 1})
    folder = tmp_path / "coco"
    (folder / "train").mkdir(parents=True)
    (mini.folder / "images/train/p0.png").rename(folder / "train/p0.png")
    fields = {
        "images": [{"id": 1, "file_name": "p0.png", "width": 96, "height": 64}],
        "categories": [{"id": 0, "name": "pit"}],
        "annotations": [{"id": 5, "image_id": 1, "category_id": 0, "bbox": [10, 10, 0.2, 5]}],
    }
    (folder / "train/_annotations.coco.json").write_text(json.dumps(fields))
    seen: dict[str, Path] = {}

    def judged(target: Path, *_: object, **__: object) -> ValidationReport:
        seen["target"] = target
        tiny = ONE.model_copy(update={"file": "labels/train/p0.txt", "rule": "box_tiny", "severity": "warning"})
        return ACCEPTED.model_copy(update={"findings": (tiny,)})

    monkeypatch.setattr(cli_validate, "_judged", judged)
    told = _run(folder, "--json")
    assert told.exit_code == 0
    assert "train/_annotations.coco.json" in {one["file"] for one in json.loads(told.stdout)["findings"]}
    assert not seen["target"].exists()


def test_class_names_are_said_for_a_folder_that_has_none(tmp_path, monkeypatch):
    seen: list[tuple[str, ...]] = []

    def judged(target: Path, *_: object, **__: object) -> ValidationReport:
        seen.append(read_class_names(target))
        return ACCEPTED

    monkeypatch.setattr(cli_validate, "_judged", judged)
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 2}).folder
    (folder / "data.yaml").unlink()
    assert "--classes" in str(_run(folder).exception)
    assert _run(folder, "--classes", "square,line", "--json").exit_code == 0
    assert seen == [("square", "line")]


def _coco(category: int, name: str) -> str:
    image = {"id": 1, "file_name": "p0.png", "width": 96, "height": 64}
    return json.dumps({"images": [image], "categories": [{"id": category, "name": name}], "annotations": []})


WRONG = {
    "classes that contradict": ({"a.json": _coco(1, "pit"), "b.json": _coco(1, "rust")}, "b.json", None, "'rust'"),
    "a category without a name": ({"a.json": _coco(1, "")}, "a.json, categories", None, "name ''"),
    "pictures that are not there": ({"a.json": _coco(1, "pit")}, "coco", None, "none"),
    "broken JSON": ({"a.json": '{"images": [\n{"id": 1,}]}'}, "a.json", 2, "double quotes, column 10"),
    "broken COCO": ({"a.json": '{"images": [],\n"annotations": [}'}, "a.json", 2, "broken JSON"),
    "broken XML": ({"a.xml": "<annotation>\n<object></annotation>"}, "a.xml", 2, "broken XML"),
}


@pytest.mark.parametrize(("files", "place", "line", "words"), WRONG.values(), ids=WRONG)
def test_what_was_looked_at_and_is_wrong_is_rejected_in_every_format(files, place, line, words, tmp_path):
    folder = tmp_path / "coco"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    told = _run(folder, "--json")
    assert told.exit_code == 1, told.exception
    fields = json.loads(told.stdout)
    assert fields["accepted"] is False
    assert any(
        one["file"].endswith(place) and one["line"] == line and words in one["got"] for one in fields["findings"]
    ), fields["findings"]
    assert "Traceback" not in _run(folder).stdout


def test_wrong_parameters_are_told_by_field(tmp_path):
    (tmp_path / "params.yaml").write_text("job: {validation: {max_bytes: none}}")
    with pytest.raises(JobError, match=r"job\.validation\.max_bytes"):
        cli_validate._config(tmp_path / "params.yaml")


def test_the_parameters_of_the_rules_are_those_of_the_whole_file():
    params = Path(__file__).resolve().parents[2] / "params.yaml"
    assert cli_validate._config(params) == load_params(params).job.validation


def test_exit_codes_of_the_program_itself(tmp_path):
    program = [sys.executable, "-m", "deployments.cli", "validate", str(tmp_path / "gone"), "--json"]
    environment = os.environ | {"PASSLINE_HOME": str(tmp_path / "home")}
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["accepted"] is None
    assert done.stderr.startswith("passline: ")
