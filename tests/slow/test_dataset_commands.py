"""`passline dataset` as a person types it: real git, DVC and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders import encode, noisy_plate, write_mini_dataset

ROOT = Path(__file__).parents[2]


class Commands:
    """Runs `passline dataset ..` with a state folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deployments.cli", "dataset", *arguments]
        environment = os.environ | {"PASSLINE_HOME": str(self.home)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    def fields(self, *arguments: str) -> dict[str, object]:
        """The JSON object that a command prints."""
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def passline(tmp_path_factory) -> Commands:
    """A state folder with two revisions of `plates`: a picture came, one was renamed, one lost its box."""
    folder = tmp_path_factory.mktemp("commands")
    source = write_mini_dataset(folder / "plates").folder
    commands = Commands(folder / "home")
    assert commands("add", str(source), "--name", "plates", "--message", "first").returncode == 0
    (source / "images/train/new.png").write_bytes(encode(noisy_plate()))
    (source / "labels/train/new.txt").write_text("1 0.5 0.5 0.2 0.2\n")
    (source / "images/train/p1.png").rename(source / "images/train/q1.png")
    (source / "labels/train/p1.txt").rename(source / "labels/train/q1.txt")
    (source / "labels/train/p0.txt").write_text("")
    assert commands("add", str(source), "--name", "plates", "--message", "second").returncode == 0
    return commands


def test_the_list_has_the_newest_revision(passline):
    (listed,) = passline.fields("list")["datasets"]
    assert (listed["name"], listed["message"]) == ("plates", "second")
    assert listed["revision"][:12] in passline("list").stdout


def test_a_revision_is_shown(passline):
    shown = passline.fields("show", "plates")
    assert [entry["message"] for entry in shown["history"]] == ["second", "first"]
    assert shown["counts"]["train"]["pictures"] == 9
    assert sum(shown["recorded_split"].values()) == 13
    first = passline("show", "plates", "--revision", shown["history"][1]["revision"])
    assert first.returncode == 0
    assert f"plates: revision {shown['history'][1]['revision']}" in first.stdout


def test_the_change_is_told_and_a_page_is_written(passline, tmp_path):
    changed = passline.fields("diff", "plates", "--report", str(tmp_path / "pages/diff.html"))
    assert changed["added"] == ["images/train/new.png"]
    assert changed["renamed"] == [["images/train/p1.png", "images/train/q1.png"]]
    assert [(found["path"], found["old_boxes"], found["new_boxes"]) for found in changed["labels"]] == [
        ("images/train/p0.png", 1, 0)
    ]
    page = (tmp_path / "pages/diff.html").read_text("utf-8")
    assert "1 added, 1 renamed" in page
    assert changed["old"]["commit"] in page
    text = passline("diff", "plates").stdout
    assert "Pictures: 12 before, 13 now; 1 added, 1 renamed." in text
    assert passline.fields("diff", "plates", "HEAD")["changed"] is False


WRONG = {
    "unknown dataset": (["show", "nothing"], "there are plates"),
    "unknown revision": (["diff", "plates", "v9"], "no such branch, tag or commit"),
    "no folder": (["add", "/nowhere", "--name", "x"], "expected a dataset folder"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_done_is_said_with_exit_2(passline, arguments, words):
    done = passline(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
