from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from prefect.logging import disable_run_logger

from builders import LIMITS, RED, encode, encode_mode, noisy_plate, plate, write_mini_dataset
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from serving.images import decode_image
from tasks import working_copy
from tasks.datasets.dataset_layout import read_layout
from tasks.datasets.pinned_copy import list_tree, make_read_only, remove_tree
from tasks.scan import scan_dataset
from tasks.splits import SplitConfig
from tasks.splitting.split_facts import Looks, read_picture_labels, scanned_labels
from tasks.splitting.split_record import read_record
from tasks.trainer_pictures import trainer_reads_it
from tasks.working_copy import WorkingCopy, prepare_working_copy, read_ground_truth, split_and_copy

CONFIG = SplitConfig(
    seed=1, val_share=0.25, test_share=0.1, group_pattern=None, picture_column="picture", group_column="group",
    near_duplicates=False,
)  # fmt: skip


def _copy(folder: Path, target: Path) -> WorkingCopy:
    return split_and_copy(folder, CONFIG, target)


def test_the_copy_is_complete_and_the_pinned_folder_stays_as_it_was(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned").folder
    before = list_tree(folder)
    make_read_only(folder)
    copy = _copy(folder, tmp_path / "copy")
    assert {split.value: counts.pictures for split, counts in copy.counts.items()} == {"train": 6, "val": 2, "test": 4}
    assert sum(counts.boxes for counts in copy.counts.values()) == 10
    assert list_tree(folder) == before
    pinned = {path.stat().st_ino for path in folder.rglob("*")}
    assert not pinned & {path.stat().st_ino for path in copy.folder.rglob("*")}
    assert all(path.stat().st_mode & 0o200 for path in copy.folder.rglob("*"))
    remove_tree(folder)


def test_data_yaml_is_absolute_and_names_every_split(tmp_path):
    copy = _copy(write_mini_dataset(tmp_path / "pinned").folder, tmp_path / "copy")
    assert yaml.safe_load(copy.data_yaml.read_text()) == {
        "path": str(tmp_path / "copy"),
        "train": "images/train",
        "val": "images/val",
        "test": "images/test",
        "names": {0: "square", 1: "line"},
    }
    for split in Split:
        pictures = sorted((copy.folder / "images" / split).rglob("*.png"))
        labels = sorted((copy.folder / "labels" / split).rglob("*.txt"))
        assert [path.stem for path in pictures] == [path.stem for path in labels]


def test_labels_are_written_as_they_were_counted(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 2, "val": 2, "test": 1}).folder
    text = "0 0.95 0.5 0.2 0.2 0.9\n# note\n1 0.1 0.1 0.3 0.1 0.3 0.5\n1 0.2 0.3 0.2 0.4\n0 0.5 0.5 0 0.1\n"
    (folder / "labels/test/p4.txt").write_text(text)
    (folder / "labels/train/p0.txt").unlink()
    copy = _copy(folder, tmp_path / "copy")
    rows = (copy.folder / "labels/test/p4.txt").read_text().splitlines()
    assert [[float(value) for value in row.split()] for row in rows] == [
        [0, 0.925, 0.5, 0.15, 0.2],
        [1, 0.2, 0.3, 0.2, 0.4],
    ]
    assert (copy.folder / "labels/train/p0.txt").read_text() == ""
    assert copy.counts[Split.TEST].boxes == 2


def test_ground_truth_is_in_pixels_of_the_displayed_picture(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 1, "val": 1, "test": 1}, suffix=".jpg").folder
    turned = encode(plate((80, 40), ((0, 0, 20, 20), RED)), "jpeg", orientation=6)
    (folder / "images/test/p2.jpg").write_bytes(turned)
    (folder / "labels/test/p2.txt").write_text("0 0.75 0.125 0.5 0.25\n")
    copy = _copy(folder, tmp_path / "copy")
    (truth,) = read_ground_truth(copy.folder, Split.TEST)
    assert truth.image_wh == (40, 80)
    np.testing.assert_allclose(truth.boxes_xyxy_px, [[20, 0, 40, 20]], atol=1e-3)
    left, top, right, bottom = truth.boxes_xyxy_px[0].astype(int)
    inside = decode_image(truth.picture.read_bytes(), LIMITS)[top + 3 : bottom - 3, left + 3 : right - 3]
    np.testing.assert_allclose(inside.reshape(-1, 3).mean(axis=0), RED, atol=6)


def test_pictures_without_defects_have_empty_truth(tmp_path):
    copy = _copy(write_mini_dataset(tmp_path / "pinned").folder, tmp_path / "copy")
    truth = [true for split in Split for true in read_ground_truth(copy.folder, split)]
    assert len(truth) == 12
    empty = [true for true in truth if len(true.class_ids) == 0]
    assert [true.picture.stem for true in empty] == ["p4", "p9"]
    assert empty[0].boxes_xyxy_px.shape == (0, 4)


def _with_wrong_checksum(png: bytes) -> bytes:
    """The header chunk's CRC, bytes 29 to 33, altered."""
    return png[:29] + bytes([png[29] ^ 1]) + png[30:]


JPEG = encode(noisy_plate(), "jpeg")
TAKEN = {
    "JPEG": (JPEG, ".jpg", True),
    "turned JPEG": (encode(noisy_plate(), "jpeg", orientation=6), ".jpeg", True),
    "CMYK JPEG": (encode_mode(noisy_plate(), "CMYK", "jpeg"), ".jpg", True),
    "PNG with alpha": (encode_mode(noisy_plate(), "RGBA"), ".png", True),
    "palette PNG": (encode_mode(noisy_plate(), "P"), ".png", True),
    "TIFF": (encode(noisy_plate(), "tiff"), ".tif", True),
    "bytes behind the end": (JPEG + b"\0" * 16, ".jpg", False),
    "PNG called JPEG": (encode(noisy_plate()), ".jpg", False),
    "TIFF called PNG": (encode(noisy_plate(), "tiff"), ".png", False),
    "PNG with a wrong checksum": (_with_wrong_checksum(encode(noisy_plate())), ".png", False),
    "text": (b"<html>", ".jpg", False),
}


@pytest.mark.parametrize(("data", "suffix", "taken"), TAKEN.values(), ids=TAKEN)
def test_which_files_the_trainer_takes_as_they_are(data, suffix, taken):
    assert trainer_reads_it(data, suffix) is taken


@pytest.mark.parametrize(
    "data", [JPEG + b"\0" * 16, encode(noisy_plate(), "webp")], ids=["padded JPEG", "WebP called JPEG"]
)
def test_other_files_are_re_encoded_with_the_pixels_that_serve(data, tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 1, "val": 1, "test": 1}, suffix=".jpg").folder
    (folder / "images/train/p0.jpg").write_bytes(data)
    copy = _copy(folder, tmp_path / "copy")
    assert copy.reencoded == 1
    assert [path.name for path in (copy.folder / "images/train").iterdir()] == ["p0.png"]
    trained = cv2.imread(str(copy.folder / "images/train/p0.png"), cv2.IMREAD_COLOR)[..., ::-1]
    np.testing.assert_array_equal(trained, decode_image(data, LIMITS))


def test_a_name_that_a_re_encoded_picture_needs_is_not_taken_twice(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 1, "val": 1, "test": 1}).folder
    (folder / "images/train/p0.jpg").write_bytes(JPEG + b"\0")
    with pytest.raises(DatasetError, match=r"p0\."):
        _copy(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_second_copy_replaces_the_first(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned").folder
    _copy(folder, tmp_path / "copy")
    (tmp_path / "copy/labels/train.cache").write_bytes(b"left by a trainer")
    assert not list(_copy(folder, tmp_path / "copy").folder.rglob("*.cache"))


def _stems(copy: WorkingCopy) -> dict[str, str]:
    """Stem to split of every picture of a working copy."""
    images = copy.folder / "images"
    return {path.stem: path.relative_to(images).parts[0] for path in images.rglob("*.png")}


def test_quarantined_pictures_stay_out(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 20, "val": 4}).folder
    (folder / "images/train/p3.png").write_bytes(b"no picture")
    copy = split_and_copy(folder, CONFIG, tmp_path / "copy", ("images/train/p3.png", "images/val/p21.png"))
    assert _stems(copy).keys() == {f"p{number}" for number in range(24)} - {"p3", "p21"}
    assert "2 quarantined pictures stay out." in copy.notes
    assert {split.value: counts.pictures for split, counts in copy.counts.items()} == {"train": 14, "val": 5, "test": 3}


def test_a_quarantined_path_that_is_no_picture_is_refused(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned").folder
    with pytest.raises(DatasetError, match=r"quarantined labels/train/p3\.txt: expected a picture of the dataset"):
        split_and_copy(folder, CONFIG, tmp_path / "copy", ("labels/train/p3.txt",))
    assert not (tmp_path / "copy").exists()


def test_the_record_of_the_dataset_says_who_is_where(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 6}).folder
    rows = [f"images/train/p{number}.png,{split}" for number, split in enumerate(["val"] * 3 + ["test", "train"] * 2)]
    (folder / "splits.csv").write_text("\n".join(["picture,split", *rows[:6]]))
    ledger = tmp_path / "splits" / "plates.csv"
    copy = split_and_copy(folder, CONFIG, tmp_path / "copy", ledger=ledger)
    assert _stems(copy) == {"p0": "val", "p1": "val", "p2": "val", "p3": "test", "p4": "train", "p5": "test"}
    assert not ledger.exists()


def test_without_a_record_the_ledger_keeps_every_night_s_pictures(tmp_path):
    ledger = tmp_path / "splits" / "plates.csv"
    first = write_mini_dataset(tmp_path / "first", counts={"train": 20}).folder
    before = _stems(split_and_copy(first, CONFIG, tmp_path / "copy", ledger=ledger))
    second = write_mini_dataset(tmp_path / "second", counts={"train": 30}).folder
    assert (second / "images/train/p0.png").read_bytes() == (first / "images/train/p0.png").read_bytes()
    other_seed = CONFIG.model_copy(update={"seed": 5})
    after = _stems(split_and_copy(second, other_seed, tmp_path / "copy", ledger=ledger))
    assert {stem: after[stem] for stem in before} == before
    left_out = _stems(split_and_copy(second, CONFIG, tmp_path / "copy", ("images/train/p2.png",), ledger))
    back = _stems(split_and_copy(second, CONFIG, tmp_path / "copy", (), ledger))
    assert left_out == {stem: split for stem, split in after.items() if stem != "p2"}
    assert back == after


def test_two_runs_at_once_draw_the_same(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 20}).folder
    ledger = tmp_path / "splits" / "plates.csv"

    def run(number: int) -> dict[str, str]:
        config = CONFIG.model_copy(update={"seed": number})
        return _stems(split_and_copy(folder, config, tmp_path / f"copy{number}", ledger=ledger))

    with ThreadPoolExecutor(4) as pool:
        one, *others = pool.map(run, range(4))
    assert others == [one] * 3


def test_a_scan_tells_the_same_of_pictures_as_reading_them(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 6, "val": 3}).folder
    (folder / "labels/train/p0.txt").write_text(
        "0 0.95 0.5 0.2 0.2 0.9\n1 0.2 0.3 0.2 0.4\n1 0.2 0.3 0.2 0.4\n7 0 0 1 1\n"
    )
    (folder / "labels/train/p1.txt").unlink()
    layout = read_layout(folder)
    assert scanned_labels(scan_dataset(folder, LIMITS), layout) == read_picture_labels(layout)
    fewer = replace(layout, splits={Split.TRAIN: layout.splits[Split.TRAIN][:2]})
    assert scanned_labels(scan_dataset(folder, LIMITS), fewer) == read_picture_labels(fewer)


def test_kept_scans_give_the_same_copy(tmp_path):
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 12}).folder
    read = _stems(split_and_copy(folder, CONFIG, tmp_path / "copy"))
    looks = Looks(scans=tmp_path / "scans")
    assert _stems(split_and_copy(folder, CONFIG, tmp_path / "copy", looks=looks)) == read
    assert list((tmp_path / "scans").iterdir())


def test_the_step_leaves_its_ledger_and_its_splits(tmp_path, monkeypatch):
    left = []
    monkeypatch.setattr(working_copy, "leave_markdown", lambda key, text, description: left.append((key, text)))
    folder = write_mini_dataset(tmp_path / "pinned", counts={"train": 8, "val": 4}).folder
    with disable_run_logger():
        copy = prepare_working_copy.fn(folder, CONFIG, tmp_path / "copy", (), tmp_path / "splits", "plates")
    assert len(read_record(tmp_path / "splits/plates.csv").rows) == 12
    assert copy.counts[Split.TEST].class_boxes == (2, 1)
    ((key, text),) = left
    assert key == "splits"
    assert "| pictures | 6 (50.0%) | 2 (16.7%) | 4 (33.3%) |" in text
    assert "| boxes: square |" in text
    assert "- The dataset has no test part: its val part (4 pictures) is the fixed test split." in text
