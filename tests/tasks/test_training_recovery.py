from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_contracts.errors import JobError
from tasks.training.checkpoints import (
    go_back_to,
    history,
    keep,
    newest_whole,
    record_file,
    rows_until,
    weights_file,
)
from tasks.training.events import EpochDone
from tasks.training.messages import Failed
from tasks.training.mlflow_run import changed_tags, resume_tags
from tasks.training.process import Ending
from tasks.training.recovery import (
    STATE_FILE,
    Cause,
    RecoveryConfig,
    RecoveryState,
    Resume,
    cause_before,
    cause_of,
    check_same,
    next_state,
    read_state,
    write_state,
)
from training_fakes import PIN, TRAIN

CONFIG = RecoveryConfig(max_resumes=2, nan_lr_factor=0.5, start_s=60, stuck_s=10)


def state(**changes: Any) -> RecoveryState:
    """A training of four pictures a step; `changes` replace fields."""
    fields: dict[str, Any] = {"mlflow_run_id": "run-0", "dataset_hash": PIN.dvc_hash, "config": TRAIN, "batch": 4}
    return RecoveryState(**(fields | {"lr_factor": 1.0} | changes))


@pytest.mark.parametrize(
    ("ending", "failed", "kind", "words"),
    [
        pytest.param(Ending(-9, None, ()), None, "killed", "signal 9 (SIGKILL, often the kernel's", id="SIGKILL"),
        pytest.param(Ending(-11, None, ()), None, "killed", "signal 11 (SIGSEGV, a fault in native", id="SIGSEGV"),
        pytest.param(Ending(-9, 12.0, ()), None, "stuck", "no sign of life for 12 s", id="killed since it was stuck"),
        pytest.param(Ending(3, None, ("bad", "worse")), None, "ended", "code 3: worse", id="last line of its output"),
        pytest.param(Ending(0, None, ()), None, "ended", "ended by itself with code 0", id="no last word"),
        pytest.param(Ending(1, None, ("x",)), Failed("data", "why"), "data", "why", id="its own last word"),
    ],
)
def test_the_cause_is_what_is_known_best(ending: Ending, failed: Failed | None, kind: str, words: str):
    cause = cause_of(ending, failed)
    assert cause.kind == kind
    assert words in cause.words


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        pytest.param("killed", {}, id="as it was after a kill"),
        pytest.param("ended", {}, id="as it was after a crash"),
        pytest.param("stuck", {}, id="as it was after a silence"),
        pytest.param("out_of_memory", {"batch": 2}, id="half the batch"),
        pytest.param("not_finite", {"lr_factor": 0.5}, id="half the learning rate"),
    ],
)
def test_what_a_training_goes_on_with(kind: Any, changes: dict[str, Any]):
    assert next_state(state(), Cause(kind, "why"), CONFIG, used=1) == state(**changes)


@pytest.mark.parametrize(
    ("kind", "begun", "used", "words"),
    [
        pytest.param("killed", state(), 2, r"given up after 2 resumes", id="no resume left"),
        pytest.param("out_of_memory", state(batch=1), 0, r"batch is 1 already", id="nothing to halve"),
        pytest.param("disk_full", state(), 0, r"Free space there, then resume", id="full disk"),
        pytest.param("data", state(), 0, r"Mend the dataset", id="other data"),
        pytest.param("refused", state(), 0, r"its words in the log", id="a wrong argument"),
    ],
)
def test_what_trying_again_cannot_mend(kind: Any, begun: RecoveryState, used: int, words: str):
    action = next_state(begun, Cause(kind, "why"), CONFIG, used)
    assert isinstance(action, str)
    assert words in action


def test_another_configuration_is_refused_field_by_field():
    with pytest.raises(JobError) as refused:
        check_same(state(), TRAIN | {"lr0": 0.01, "imgsz": 96, "epochs": 9}, "c" * 32 + ".dir")
    lines = str(refused.value).splitlines()
    assert [line.partition(": expected")[0] for line in lines] == [
        "resume: dataset", "resume: train.imgsz", "resume: train.lr0",
    ]  # fmt: skip


def test_more_epochs_and_another_place_are_noted():
    changes = check_same(state(), TRAIN | {"epochs": 9, "threads": 3}, PIN.dvc_hash)
    assert changes == {"epochs": "1 -> 9", "threads": "0 -> 3"}
    assert changed_tags(changes)["passline.changed.epochs"] == "1 -> 9"


def test_the_state_comes_back_and_a_folder_without_one_is_refused(tmp_path: Path):
    assert read_state(tmp_path / "new") is None
    write_state(tmp_path, state(batch=2))
    assert read_state(tmp_path) == state(batch=2)
    (tmp_path / STATE_FILE).write_text('{"mlflow_run_id": "run-')
    with pytest.raises(JobError, match=r"got .*, with a damaged recovery.json"):
        read_state(tmp_path)


def test_a_later_process_knows_why_the_earlier_one_gave_up():
    assert cause_before(state()).words == "the process that watched the training ended"
    assert cause_before(state(given_up="no space left")).words == "no space left"


def test_tags_tell_what_became_of_it():
    assert resume_tags(state()) == {"passline.resumes": "0"}
    tags = resume_tags(state(batch=2, lr_factor=0.5, resumes=(Resume(cause="killed", first_epoch=3),)))
    assert tags == {
        "passline.resumes": "1", "passline.resume.1": "epoch 3: killed",
        "passline.batch": "2, asked 4: out of memory", "passline.lr_factor": "0.5",
    }  # fmt: skip


def trained(run_dir: Path, count: int, best: set[int], epochs: int = 9) -> None:
    """Save `count` epochs of `epochs`; `best` are those that were better than all before."""
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "weights").mkdir()
    for epoch in range(1, count + 1):
        draft = run_dir / "checkpoints" / "draft.pt"
        draft.write_bytes(b"epoch %d" % epoch)
        report = EpochDone(epoch, epochs, {"loss": 1.0 / epoch, "odd": float("nan")}, 0.5)
        keep(run_dir, draft, report, best=epoch in best, final=epoch == epochs)


def kept(run_dir: Path) -> list[str]:
    """Names of the weights that are there."""
    return [file.name for file in sorted((run_dir / "checkpoints").glob("*.pt"))]


def test_the_two_newest_are_kept_and_what_was_best_then(tmp_path: Path):
    trained(tmp_path, 5, best={1, 2})
    assert kept(tmp_path) == ["epoch-0002.pt", "epoch-0004.pt", "epoch-0005.pt"]
    assert [record.epoch for record in history(tmp_path)] == [1, 2, 3, 4, 5]
    assert [record.best_epoch for record in history(tmp_path)] == [1, 2, 2, 2, 2]
    assert history(tmp_path)[0].done == EpochDone(1, 9, {"loss": 1.0}, 0.5)


@pytest.mark.parametrize(
    ("hurt", "goes_on_from", "named"),
    [
        pytest.param({}, 3, [], id="all are whole"),
        pytest.param({3: b"epo"}, 2, [3], id="the newest is cut"),
        pytest.param({3: None}, 2, [3], id="the newest is gone"),
        pytest.param({3: b"x", 2: b"y"}, None, [3, 2], id="none is whole: from the start"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, hurt: dict[int, bytes | None], goes_on_from: int | None, named: list[int]
):
    trained(tmp_path, 3, best={1, 2, 3})
    for epoch, content in hurt.items():
        file = weights_file(tmp_path, epoch)
        file.unlink() if content is None else file.write_bytes(content)
    found = newest_whole(tmp_path)
    assert (found.checkpoint and found.checkpoint.epoch) == goes_on_from
    assert list(found.damaged) == [weights_file(tmp_path, epoch) for epoch in named]


def test_the_last_epoch_of_all_is_done_again(tmp_path: Path):
    trained(tmp_path, 3, best={1, 2, 3}, epochs=3)
    found = newest_whole(tmp_path).checkpoint
    assert found is not None
    assert found.epoch == 2


def test_going_back_leaves_what_was_there_then(tmp_path: Path):
    trained(tmp_path, 3, best={1, 3})
    (tmp_path / "weights/best.pt").write_bytes(b"torn")
    (tmp_path / "results.csv").write_text("epoch,loss\n1,1\n2,0.5\n3,0.3\n4,0.")
    go_back_to(tmp_path, history(tmp_path)[1])
    assert kept(tmp_path) == ["epoch-0001.pt", "epoch-0002.pt"]
    assert not record_file(tmp_path, 3).exists()
    assert (tmp_path / "weights/best.pt").read_bytes() == b"epoch 1"
    assert (tmp_path / "results.csv").read_text() == "epoch,loss\n1,1\n2,0.5\n"


@pytest.mark.parametrize(
    ("table", "epoch", "left"),
    [
        pytest.param("", 3, "", id="no table yet"),
        pytest.param("epoch,a\n1,2\n2,3\n", 0, "epoch,a\n", id="from the start"),
        pytest.param("epoch,a\n1,2\n2", 2, "epoch,a\n1,2\n", id="a torn row"),
    ],
)
def test_rows_of_lost_epochs_go(table: str, epoch: int, left: str):
    assert rows_until(table, epoch) == left
