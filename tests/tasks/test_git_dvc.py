from __future__ import annotations

import subprocess
import sys

import pytest

from data_contracts.errors import DatasetRepoError
from tasks.datasets import git_dvc
from tasks.datasets.git_dvc import advise, masked, run_dvc, run_git

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "word/of+mine=="}
SAID = {
    "secret": ("bad word/of+mine== given", "bad *** given"),
    "key id": ("no AKIA0123456789", "no ***"),
    "URL": ("clone https://me:word@host/x.git failed", "clone https://***@host/x.git failed"),
    "several lines": ("one\n  two", "one two"),
    "plain": ("nothing to hide at host", "nothing to hide at host"),
}


@pytest.mark.parametrize(("text", "told"), SAID.values(), ids=SAID)
def test_messages_are_masked(text, told):
    assert masked(text, KEYS) == told


def test_unset_and_tiny_values_mask_nothing():
    assert masked("a b", {"AWS_SESSION_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "a"}) == "a b"


ADVICE = {
    "no key": ("NoCredentialsError: Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
    "refused": ("PermissionError: Forbidden", "AWS_ACCESS_KEY_ID"),
    "bucket": ("FileNotFoundError: The specified bucket does not exist", "name of the bucket"),
    "checksums": ("OSError: [Errno 38] (ClientError: (NotImplemented) when calling PutObject)", "when_required"),
    "disk": ("OSError: [Errno 28] No space left on device", "Free some space"),
    "anything": ("ConnectTimeout", "Check the remote"),
}


@pytest.mark.parametrize(("words", "advice"), ADVICE.values(), ids=ADVICE)
def test_what_to_do_about_it(words, advice):
    assert advice in advise(words)


def test_git_runs_without_the_users_set_up_and_keeps_ways_of_access(tmp_path, monkeypatch):
    for name, value in {
        "GIT_DIR": "/nowhere",
        "GIT_SSH_COMMAND": "ssh -i k",
        "AWS_PROFILE": "me",
        "DVC_ROOT": "x",
    }.items():
        monkeypatch.setenv(name, value)
    run_git(tmp_path, "init", "--quiet")
    told = run_git(tmp_path, "-c", "alias.env=!env", "env").splitlines()
    assert {"GIT_SSH_COMMAND=ssh -i k", "AWS_PROFILE=me", "GIT_TERMINAL_PROMPT=0"} <= set(told)
    assert not [line for line in told if line.startswith(("GIT_DIR=/nowhere", "DVC_ROOT="))]


def test_a_failure_of_git_is_told_without_passwords(tmp_path):
    with pytest.raises(DatasetRepoError, match="git clone") as failed:
        run_git(tmp_path, "clone", "--quiet", "https://me:word@127.0.0.1:9/x.git", "x")
    assert "word" not in str(failed.value)


ANSWERS = {
    "an error": ('print(\'{"error": "OSError: No space left"}\')', "got OSError: No space left. Free some space"),
    "a crash": ("import sys; print('one\\ntwo', file=sys.stderr); sys.exit(3)", r"got exit 3: one \| two"),
    "no answer": ("pass", "got exit 0"),
    "half an answer": ("print('{\"fail')", "got exit 0"),
    "no object": ("print('[]')", "got exit 0"),
}


@pytest.mark.parametrize(("code", "words"), ANSWERS.values(), ids=ANSWERS)
def test_a_process_that_fails_is_told(tmp_path, monkeypatch, code, words):
    started = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **settings: started([sys.executable, "-c", code], **settings))
    with pytest.raises(DatasetRepoError, match=f"push of plates: expected success, {words}"):
        run_dvc(tmp_path, "push", "push of plates")


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    started = subprocess.Popen
    code = "import time; time.sleep(60)"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **settings: started([sys.executable, "-c", code], **settings))
    monkeypatch.setattr(git_dvc, "TIMEOUT_S", 0.2)
    with pytest.raises(DatasetRepoError, match="push of plates: expected an end within"):
        run_dvc(tmp_path, "push", "push of plates")
