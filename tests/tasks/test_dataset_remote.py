from __future__ import annotations

from pathlib import Path

import pytest

from data_contracts.errors import DatasetRepoError
from tasks.datasets.dataset_remote import Remote, config_text, default_name, default_remote, parse_remote, read_remotes

NAMED = {
    "bucket": ("s3://plates", None, Remote("s3://plates")),
    "prefix with a slash at the end": ("s3://plates/nightly/", None, Remote("s3://plates/nightly")),
    "own store": ("s3://plates/a", "http://store:9000", Remote("s3://plates/a", "http://store:9000")),
    "folder": ("/srv/plates", None, Remote("/srv/plates")),
    "folder with dots": ("/srv/x/../plates", None, Remote("/srv/plates")),
}


@pytest.mark.parametrize(("url", "endpoint", "remote"), NAMED.values(), ids=NAMED)
def test_remotes_as_people_name_them(url, endpoint, remote):
    assert parse_remote(url, endpoint) == remote


REFUSED = {
    "no bucket": ("s3://", None, "s3://bucket/prefix"),
    "empty": (" ", None, "s3://bucket/prefix"),
    "other kind": ("gs://plates", None, "`dvc remote add`"),
    "web": ("https://host/plates", None, "`dvc remote add`"),
    "key in the URL": ("s3://key:word@plates", None, "AWS_SECRET_ACCESS_KEY"),
    "key in the endpoint": ("s3://plates", "http://key:word@store", "AWS_SECRET_ACCESS_KEY"),
    "key as a parameter": ("s3://plates?secret_access_key=word", None, "AWS_SECRET_ACCESS_KEY"),
    "endpoint without a scheme": ("s3://plates", "store:9000", "http://host:port"),
    "endpoint of a folder": ("/srv/plates", "http://store", "to go with it"),
    "line break": ("/srv/a\n[core]", None, "control characters"),
    "quote": ("/srv/a'b", None, "quotes"),
}


@pytest.mark.parametrize(("url", "endpoint", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_and_no_secret_is_repeated(url, endpoint, words):
    with pytest.raises(DatasetRepoError, match=words) as refused:
        parse_remote(url, endpoint)
    assert "key:word" not in str(refused.value)


REMOTES = {
    "default": default_remote("plates"),
    "S3": Remote("s3://plates/nightly", "http://store:9000"),
    "folder with a space": Remote("/srv/my plates"),
}


@pytest.mark.parametrize("remote", REMOTES.values(), ids=REMOTES)
def test_what_is_written_is_read_again(tmp_path, remote):
    (tmp_path / "config").write_text(config_text(remote), "utf-8")
    assert read_remotes(tmp_path) == {"store": remote}
    assert default_name(tmp_path) == "store"


def test_the_local_configuration_counts_over_the_shared_one(tmp_path):
    (tmp_path / "config").write_text(
        config_text(Remote("s3://plates")) + '[remote "other"]\n    url = "/srv/x"\n', "utf-8"
    )
    (tmp_path / "config.local").write_text(
        "[core]\n    remote = other\n['remote \"store\"']\n    url = s3://mine\n", "utf-8"
    )
    assert read_remotes(tmp_path) == {"store": Remote("s3://mine"), "other": Remote("/srv/x")}
    assert default_name(tmp_path) == "other"


def test_a_damaged_configuration_is_named(tmp_path):
    (tmp_path / "config").write_text("url = 1\n[", "utf-8")
    with pytest.raises(DatasetRepoError, match=r"config: expected a DVC configuration"):
        read_remotes(tmp_path)


def test_no_configuration_has_no_remote(tmp_path):
    assert (read_remotes(tmp_path), default_name(tmp_path)) == ({}, None)


def test_a_relative_folder_is_looked_up_from_the_configuration():
    remote = default_remote("plates")
    assert remote.is_relative
    assert remote.located(Path("/srv/datasets/plates/.dvc")) == Remote("/srv/datasets/.remotes/plates")


FAR = {"S3": "s3://plates", "SSH": "ssh://host/x", "as scp": "me@host:/x", "web": "https://host/x", "folder": "/srv/x"}


@pytest.mark.parametrize("url", FAR.values(), ids=FAR)
def test_what_is_not_relative(url):
    assert not Remote(url).is_relative
