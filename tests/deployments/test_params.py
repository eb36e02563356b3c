"""params.yaml and job files: typed, complete, and refused by field name (field case A25)."""

from pathlib import Path

import pytest
import yaml

from data_contracts.errors import JobError
from deployments.params import Params, load_job, load_params
from deployments.yaml_files import read_yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def params() -> Params:
    return load_params(ROOT / "params.yaml")


def test_params_yaml_matches_the_models_key_for_key(params: Params) -> None:
    assert yaml.safe_load((ROOT / "params.yaml").read_text()).keys() == Params.model_fields.keys()
    assert params.job.train.epochs >= 1


def write(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "job.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
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
        ("nearly a name", "train: {epoch: 5}", r"train\.epoch: .*Did you mean 'epochs'\?"),
        ("no name at all", "train: {fast: 5}", r"train\.fast: .*known here: model, teacher, .*epochs"),
        ("no mapping", "- 1", r"expected a mapping of fields, got a list"),
        ("only text", "train", r"expected a mapping of fields, got a single value"),
        ("empty", "# nothing", r"expected a mapping of fields, got an empty file"),
        ("no YAML", "train: {epochs: 3\nseal: ]", r"job\.yaml, line 2, column 5: expected ',' or '}'"),
        ("a tab", "train:\n\tepochs: 3", r"job\.yaml, line 2, column 1: found character '\\t'"),
        ("no UTF-8", b"\xff\xfe", r"bytes that are no UTF-8"),
        ("a block twice", "train: {epochs: 3}\ntrain: {batch: 2}", r"line 2, column 1: the key 'train' a second time"),
        ("a field twice", "train: {epochs: 3, epochs: 4}", r"the key 'epochs' a second time in one mapping"),
        ("a number for a text", "train: {device: 0}", r"train\.device: expected text, got 0\. Put it in quotes\."),
        ("not a multiple", "train: {imgsz: 100}", r"imgsz: expected a multiple of 32, got 100\. .*pixels"),
        ("no number", "train: {lr0: .nan}", r"train\.lr0: expected a finite number, got nan"),
        ("neither yes nor no", "promote: maybe", r"promote: expected true or false, got 'maybe'"),
        ("a value for a block", "train: 3", r"train: expected fields below it, got 3"),
        ("an empty block", "train:", r"train: expected fields below it, got nothing"),
        ("below a mapping", "seal: {tolerances: {int8: {box: 1}}}", r"int8\.box: .*Did you mean 'box_px'\?"),
        ("below a list", "quantise: {build_wishes: [{provide: x}]}", r"build_wishes\.0\.provide: .*mean 'provider'\?"),
        ("our own words", "gates: {promote_if: not_worse}", r"job\.yaml: gates: expected an occasion with promote_if"),
        ("a GPU not declared", "train: {device: '0'}", r"job\.yaml: resources: .*devices is 0, but train\.device '0'"),
        ("more threads than cores", "train: {threads: 8}", r"resources: .*cpus is \d+, but train\.threads is 8"),
        ("priority", "priority: 101", r"job\.yaml: priority: .*got 101"),
        ("no commit", "code_revision: main", r"job\.yaml: code_revision"),
        ("optimiser that ignores the rate", "train: {optimizer: auto}", r"train\.optimizer: .*ignores lr0"),
    ],
)
def test_a_wrong_job_file_is_refused_by_field(
    case: str, text: str | bytes, words: str, tmp_path: Path, params: Params
) -> None:
    with pytest.raises(JobError, match=words) as caught:
        load_job(write(tmp_path, text), params)
    assert "Input should" not in str(caught.value), "the words of a library"


def test_a_file_that_is_not_there_is_named(tmp_path: Path, params: Params) -> None:
    with pytest.raises(JobError, match=r"none\.yaml: expected a file, got No such file"):
        load_job(tmp_path / "none.yaml", params)


def test_an_anchor_may_be_merged_more_than_once(tmp_path: Path) -> None:
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: [*a, *b]\n  z: 3\n"
    assert read_yaml(write(tmp_path, text))["c"] == {"x": 1, "y": 2, "z": 3}


def test_all_wrong_fields_are_told_at_once(tmp_path: Path, params: Params) -> None:
    with pytest.raises(JobError) as caught:
        load_job(write(tmp_path, "train: {epochs: 0, batch: 0, epohs: 1}"), params)
    assert len(caught.value.problems) == 3
