"""A later attempt of a run finds what an earlier one left, works alone, and starts the rest anew."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_contracts.errors import JobError
from tasks.run_folder import attempt, is_alive, keep, once, recall


@dataclass(frozen=True)
class Made:
    place: Path
    counts: dict[str, int]


MADE = Made(Path("dataset"), {"train": 3})


def test_what_a_later_attempt_goes_on_with_stays_and_the_rest_goes(tmp_path: Path) -> None:
    for name in ("train/checkpoints", "dataset", "data", "done", "export", "bundles/.draft"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "evaluation.json").write_text("half")
    with attempt(tmp_path):
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["alive.lock", "data", "dataset", "done", "train"]
    assert (tmp_path / "train" / "checkpoints").is_dir()


def test_a_run_folder_has_one_process_at_work(tmp_path: Path) -> None:
    assert not is_alive(tmp_path)
    with attempt(tmp_path):
        assert is_alive(tmp_path)
        with pytest.raises(JobError, match="one at work"), attempt(tmp_path):
            raise AssertionError("two at work")
    assert not is_alive(tmp_path)


def test_a_killed_process_lets_go_of_its_run(tmp_path: Path) -> None:
    code = "import sys, time, pathlib\nfrom tasks.run_folder import attempt\n"
    code += "with attempt(pathlib.Path(sys.argv[1])):\n    print('at work', flush=True)\n    time.sleep(60)\n"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        assert is_alive(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert not is_alive(tmp_path)


def test_an_error_of_the_work_itself_is_not_taken_for_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), attempt(tmp_path):
        raise BlockingIOError


@pytest.mark.parametrize(
    ("case", "record", "good", "made_again"),
    [
        ("first attempt", None, True, True),
        ("kept by an earlier one", b'{"place": "dataset", "counts": {"train": 3}}', True, False),
        ("what it tells of is gone", b'{"place": "dataset", "counts": {"train": 3}}', False, True),
        ("torn", b'{"place": "data', True, True),
        ("of another kind", b'{"folder": "dataset"}', True, True),
    ],
)
def test_a_step_is_done_once(case: str, record: bytes | None, good: bool, made_again: bool, tmp_path: Path) -> None:
    if record is not None:
        (tmp_path / "done").mkdir()
        (tmp_path / "done" / "split.json").write_bytes(record)
    calls: list[Made] = []

    def make() -> Made:
        calls.append(MADE)
        return MADE

    assert once(tmp_path, "split", Made, make, lambda _: good) == MADE
    assert bool(calls) is made_again
    assert recall(tmp_path, "split", Made) == MADE


def test_a_step_that_fails_leaves_nothing_to_go_on_with(tmp_path: Path) -> None:
    def fails() -> Made:
        raise JobError("no")

    with pytest.raises(JobError):
        once(tmp_path, "split", Made, fails)
    assert recall(tmp_path, "split", Made) is None


def test_the_latest_value_is_kept(tmp_path: Path) -> None:
    for value in (1.5, 2.5):
        keep(tmp_path, "smoke", float, value)
    assert recall(tmp_path, "smoke", float) == 2.5
