"""Dataset repositories whose content lies in an S3-compatible store that is not always well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from builders import encode, noisy_plate, write_mini_dataset
from data_contracts.dataset import DatasetPin
from data_contracts.errors import DatasetRepoError
from s3_server import BUCKET, KEYS, Door, Fault, Seen, Store, s3_store, sends_checksums
from servers import wait_until
from tasks.dataset_repo import add_dataset, fetch, list_datasets
from tasks.datasets.pinned_copy import TreeFile, list_tree, remove_tree

BIG = "big.bin"
FETCH = """
import sys
from pathlib import Path
from data_contracts.dataset import DatasetPin
from tasks.dataset_repo import fetch
print(fetch(DatasetPin.model_validate_json(sys.argv[1]), Path(sys.argv[2])))"""


@dataclass(frozen=True)
class Site:
    """A dataset with its content in the store. `pin` has its repository at a URL: every pinned home has its cache."""

    store: Store
    source: Path
    home: Path
    pin: DatasetPin
    files: tuple[TreeFile, ...]
    upload: tuple[Seen, ...]

    @property
    def oids(self) -> set[str]:
        """All objects of the revision, the list of files among them."""
        return {file.md5 for file in self.files} | {self.pin.dvc_hash}

    @property
    def picture(self) -> TreeFile:
        """One of the pictures."""
        return next(file for file in self.files if file.path.startswith("images/train/"))

    def add(self, name: str, source: Path | None = None) -> DatasetPin:
        """Another dataset in the same bucket."""
        url = self.store.door.url
        return add_dataset(
            source or self.source, self.home, name, "first", remote=f"s3://{BUCKET}/{name}", endpoint_url=url
        )


def key_of(oid: str, prefix: str = "nightly") -> str:
    """Where an object lies in the bucket."""
    return f"{prefix}/files/md5/{oid[:2]}/{oid[2:]}"


def oid_of(seen: Seen) -> str:
    """Which object a request was about."""
    return seen.path.rpartition("/files/md5/")[2].replace("/", "")


def asked_for(door: Door, method: str = "GET") -> Counter[str]:
    """How often each object was asked for, or sent."""
    return Counter(map(oid_of, door.of(method)))


@pytest.fixture(autouse=True, scope="module")
def keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in (KEYS | {"AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true"}).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory, keys) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("s3")
    source, home = write_mini_dataset(root / "plates").folder, root / "datasets"
    (source / BIG).write_bytes(os.urandom(12 * 2**20))
    with s3_store(root) as store:
        store.door.faults.extend(Fault("no checksums", method, "") for method in ("PUT", "GET", "HEAD"))
        url = store.door.url
        pin = add_dataset(source, home, "plates", "first", (BIG,), remote=f"s3://{BUCKET}/nightly/", endpoint_url=url)
        at_url = pin.ref.model_copy(update={"repository": f"file://{home / 'plates'}"})
        pin = pin.model_copy(update={"ref": at_url})
        yield Site(store, source, home, pin, list_tree(home / "plates" / "data"), tuple(store.door.seen))


@pytest.fixture(autouse=True)
def door(site) -> Door:
    site.store.door.seen.clear()
    site.store.door.faults.clear()
    return site.store.door


@pytest.fixture
def pinned(tmp_path) -> Iterator[Path]:
    yield tmp_path / "pinned"
    for folder in (tmp_path / "pinned").glob("*"):
        remove_tree(folder)


def left_in(pinned: Path) -> set[str]:
    """What is there beside the cache."""
    return {path.suffix for path in pinned.iterdir() if path.name != ".objects"}


def test_the_store_holds_raw_bytes_and_no_checksum_of_new_clients_was_sent(site):
    sent = {oid_of(seen): seen for seen in site.upload if seen.method == "PUT"}
    assert sent.keys() == site.oids
    assert not any(sends_checksums(seen.headers) for seen in site.upload)
    content = {file.md5: (site.home / "plates/data" / file.path).read_bytes() for file in site.files}
    assert [oid for oid in content if sent[oid].body != content[oid]] == []
    assert [oid for oid in content if site.store.read(key_of(oid)) != content[oid]] == []
    assert max(map(len, content.values())) == 12 * 2**20


def test_every_upload_is_confirmed_and_the_list_of_files_comes_last(site):
    order = [(seen.method, oid_of(seen)) for seen in site.upload if "/md5/" in seen.path]
    for oid in site.oids:
        assert ("HEAD", oid) in order[order.index(("PUT", oid)) :]
    assert [oid for method, oid in order if method == "PUT"][-1] == site.pin.dvc_hash


def test_no_key_is_kept_in_the_repository(site):
    files = [path for path in (site.home / "plates").rglob("*") if path.is_file() and "cache" not in path.parts]
    assert [path for path in files for key in KEYS.values() if key.encode() in path.read_bytes()] == []


def test_a_store_that_refuses_checksums_is_told_from_others_and_the_mode_can_be_switched(site, door, monkeypatch):
    door.faults.append(Fault("no checksums", "PUT", ""))
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    with pytest.raises(DatasetRepoError, match=r"to take .* AWS_REQUEST_CHECKSUM_CALCULATION=when_required"):
        site.add("switched")
    assert [entry.name for entry in list_datasets(site.home)] == ["plates"]
    assert not (site.home / "switched").exists()
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION")
    assert site.add("switched").name == "switched"


def test_a_pinned_copy_is_what_was_added(site, pinned):
    folder = fetch(site.pin, pinned)
    assert list_tree(folder) == site.files


def test_a_missing_object_is_named_nothing_half_filled_is_left_and_a_retry_fetches_only_that(site, door, pinned):
    key = key_of(site.picture.md5)
    kept = site.store.read(key)
    site.store.client.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(DatasetRepoError, match=f"missing 1 of {len(site.files)} files: {site.picture.path} "):
        fetch(site.pin, pinned)
    assert left_in(pinned) == {".lock"}
    site.store.client.put_object(Bucket=BUCKET, Key=key, Body=kept)
    door.seen.clear()
    assert list_tree(fetch(site.pin, pinned)) == site.files
    assert asked_for(door) == {site.picture.md5: 1}


DAMAGE = {
    "a picture": lambda site: (site.picture.md5, f"content of {site.picture.path}"),
    "the list of files": lambda site: (site.pin.dvc_hash, "content of the list of files"),
}


@pytest.mark.parametrize("damaged", DAMAGE.values(), ids=DAMAGE)
def test_wrong_bytes_in_the_store_are_refused_and_mended_by_adding_again(site, pinned, damaged):
    oid, words = damaged(site)
    key = key_of(oid)
    kept = site.store.read(key)
    site.store.client.put_object(Bucket=BUCKET, Key=key, Body=b"x" * len(kept))
    with pytest.raises(DatasetRepoError, match=f"{words} on remote s3://plates/nightly.*expected md5"):
        fetch(site.pin, pinned)
    assert left_in(pinned) == {".lock"}
    again = add_dataset(site.source, site.home, "plates", "nothing new", (BIG,))
    assert (again.commit, site.store.read(key)) == (site.pin.commit, kept)
    assert list_tree(fetch(site.pin, pinned)) == site.files


PASSING = {
    "503 three times": Fault("status", times=3),
    "connection cut": Fault("cut", times=2),
    "wrong bytes on the way": Fault("damage", times=2),
    "500": Fault("status", times=1, status=500, code="InternalError"),
    "slow": Fault("stall", times=2, stall_s=1.0),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_passes_is_waited_for(site, door, pinned, fault):
    door.faults.append(fault)
    assert list_tree(fetch(site.pin, pinned)) == site.files
    assert fault.times < 0  # It did strike.


@pytest.mark.parametrize("kind", ["status", "cut"])
def test_a_remote_that_fails_is_named_and_a_retry_goes_on_where_it_stopped(site, door, pinned, kind):
    done = 10
    door.faults.append(Fault(kind, after=done))
    with pytest.raises(DatasetRepoError, match=r"remote s3://plates/nightly at http.*what was moved is kept"):
        fetch(site.pin, pinned)
    assert left_in(pinned) == {".lock"}
    door.faults.clear()
    door.seen.clear()
    assert list_tree(fetch(site.pin, pinned)) == site.files
    assert sum(asked_for(door).values()) == len(site.oids) - done


def test_a_remote_with_many_objects_is_listed_instead_of_asked_for_each(site, door, tmp_path):
    source = tmp_path / "many"
    for split in "train", "val":
        (source / "images" / split).mkdir(parents=True)
        for number in range(260):
            (source / "images" / split / f"{number}.jpg").write_bytes(f"{split} {number}".encode())
    (source / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a]\n")
    first = site.add("many", source)
    assert len(asked_for(door, "PUT")) > 500
    door.seen.clear()
    assert site.add("many", source) == first
    assert sum(asked_for(door, "HEAD").values()) + sum(asked_for(door, "PUT").values()) <= 2


def test_an_upload_that_was_damaged_is_sent_again(site, door):
    door.faults.append(Fault("damage", "PUT", times=1))
    site.add("twice")
    assert sum(asked_for(door, "PUT").values()) == pin_objects(site, "twice") + 1


def pin_objects(site: Site, name: str) -> int:
    """How many objects a dataset has, all as their names say."""
    files = list_tree(site.home / name / "data")
    assert [file for file in files if len(site.store.read(key_of(file.md5, name))) != size_of(site, name, file)] == []
    return len({file.md5 for file in files}) + 1


def size_of(site: Site, name: str, file: TreeFile) -> int:
    """Bytes of a file of a dataset."""
    return (site.home / name / "data" / file.path).stat().st_size


def test_a_failed_push_leaves_the_previous_revision_and_a_retry_works(site, door, tmp_path):
    source = write_mini_dataset(tmp_path / "source").folder
    first = site.add("pushed", source)
    before = list_tree(site.home / "pushed" / "data")
    (source / "images/train/extra.png").write_bytes(encode(noisy_plate()))
    door.faults.append(Fault("damage", "PUT"))
    with pytest.raises(DatasetRepoError, match=r"content of .* on remote s3://plates/pushed"):
        site.add("pushed", source)
    assert {entry.name: entry.pin.commit for entry in list_datasets(site.home)}["pushed"] == first.commit
    assert list_tree(site.home / "pushed" / "data") == before
    assert git_status(site.home / "pushed") == ""
    door.faults.clear()
    assert site.add("pushed", source).file_count == first.file_count + 1


def git_status(repository: Path) -> str:
    """What git sees as changed."""
    command = ["git", "-C", str(repository), "status", "--porcelain"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


REFUSED = {
    "key unknown": (Fault("status", status=403, code="InvalidAccessKeyId"), "Set AWS_ACCESS_KEY_ID"),
    "no such bucket": (Fault("status", status=404, code="NoSuchBucket"), "name of the bucket"),
}


@pytest.mark.parametrize(("fault", "advice"), REFUSED.values(), ids=REFUSED)
def test_what_no_retry_mends_is_told_at_once_without_the_keys(site, door, pinned, fault, advice):
    fault.message = f"you sent {KEYS['AWS_SECRET_ACCESS_KEY']} as {KEYS['AWS_ACCESS_KEY_ID']}"
    door.faults.append(fault)
    with pytest.raises(DatasetRepoError, match=advice) as refused:
        fetch(site.pin, pinned)
    assert not [key for key in KEYS.values() if key in str(refused.value)]
    assert sum(asked_for(door).values()) == 1


def test_without_keys_the_message_says_which_variables(site, pinned, monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DatasetRepoError, match=r"remote s3://plates/nightly .* Set AWS_ACCESS_KEY_ID"):
        fetch(site.pin, pinned)


def start_fetch(site: Site, pinned: Path) -> subprocess.Popen[str]:
    """A process that pins."""
    command = [sys.executable, "-c", FETCH, site.pin.to_json(), str(pinned)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_pin_at_once_wait_for_each_other(site, door, pinned):
    door.faults.append(Fault("stall", times=1, stall_s=1.0))
    started = [start_fetch(site, pinned) for _ in range(3)]
    told = [process.communicate(timeout=120)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(set(told)) == 1
    assert list_tree(Path(told[0])) == site.files
    assert asked_for(door) == Counter(site.oids)


def test_one_that_is_killed_leaves_the_way_free_and_the_next_goes_on_where_it_stopped(site, door, pinned):
    fault = Fault("stall", after=12, stall_s=5.0)
    door.faults.append(fault)
    process = start_fetch(site, pinned)
    try:
        wait_until(lambda: fault.after == 0 and fault.times < 1_000_000 - 2, 60.0, "transfers in flight")
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    finally:
        process.communicate(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, "DVC outlived the process that started it"
    assert left_in(pinned) == {".lock"}
    door.faults.clear()
    door.seen.clear()
    assert list_tree(fetch(site.pin, pinned)) == site.files
    assert 0 < sum(asked_for(door).values()) <= len(site.oids) - 8
    assert not list(pinned.glob(".objects/files/drafts/*"))
