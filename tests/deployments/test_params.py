"""params.yaml and job files: typed, complete, and refused by field name (field case A25)."""

from pathlib import Path

import pytest
import yaml

from data_contracts.errors import JobError
from deployments.params import Params, load_job, load_params

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def params() -> Params:
    return load_params(ROOT / "params.yaml")


def test_params_yaml_matches_the_models_key_for_key(params: Params) -> None:
    assert yaml.safe_load((ROOT / "params.yaml").read_text()).keys() == Params.model_fields.keys()
    assert params.job.train.epochs >= 1


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return file


def test_a_job_file_overrides_single_fields(tmp_path: Path, params: Params) -> None:
    job = load_job(write(tmp_path, "train: {epochs: 3}\nseal: {name: other}\n"), params)
    assert (job.train.epochs, job.seal.name, job.train.batch) == (3, "other", params.job.train.batch)


@pytest.mark.parametrize(
    ("case", "text", "words"),
    [
        ("misspelt", "train: {epohs: 5}", r"job\.yaml: train\.epohs: expected a known field"),
        ("out of bounds", "train: {epochs: 0}", r"job\.yaml: train\.epochs: .*got 0"),
        ("wrong type", "train: {epochs: ten}", r"train\.epochs"),
        ("unknown block", "trian: {}", r"trian: expected a known field"),
        ("no mapping", "- 1", r"expected a mapping of fields, got list"),
        ("no YAML", "train: {", r"a readable YAML file"),
        ("a GPU not declared", "train: {device: '0'}", r"job\.yaml: resources: .*devices is 0, but train\.device '0'"),
        ("more threads than cores", "train: {threads: 8}", r"resources: .*cpus is \d+, but train\.threads is 8"),
        ("priority", "priority: 101", r"job\.yaml: priority: .*got 101"),
        ("no commit", "code_revision: main", r"job\.yaml: code_revision"),
        ("optimiser that ignores the rate", "train: {optimizer: auto}", r"train\.optimizer: .*ignores lr0"),
    ],
)
def test_a_wrong_job_file_is_refused_by_field(case: str, text: str, words: str, tmp_path: Path, params: Params) -> None:
    with pytest.raises(JobError, match=words):
        load_job(write(tmp_path, text), params)


def test_all_wrong_fields_are_told_at_once(tmp_path: Path, params: Params) -> None:
    with pytest.raises(JobError) as caught:
        load_job(write(tmp_path, "train: {epochs: 0, batch: 0, epohs: 1}"), params)
    assert len(caught.value.problems) == 3
