from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import LIMITS, encode, noisy_plate, plate, shared_data, write_mini_dataset
from data_contracts.errors import DatasetError, InvalidInput
from deployments.cli import app
from native_formats import bring_in, cvat_xml, put, voc_xml
from tasks.importers import detect_format, import_dataset
from tasks.importers.boxes import picture_size
from tasks.importers.documents import DocumentError, parse_json, parse_xml
from tasks.scan import scan_dataset

WH = (100, 80)
PICTURE = encode(plate(WH))
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))
GOOD = {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX])}
BROKEN = {**GOOD, "b.png": PICTURE, "b.xml": "<annotation>"}


def _write_voc(folder: Path) -> Path:
    return put(folder, GOOD)


@pytest.mark.parametrize("kind", ["content", "file", "inside"])
def test_a_target_that_is_not_free_is_refused(kind: str, tmp_path: Path) -> None:
    source = _write_voc(tmp_path / "d")
    target = {"content": tmp_path / "full", "file": tmp_path / "file", "inside": source / "new"}[kind]
    put(tmp_path, {"full/x.txt": "x", "file": "x"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatasetError, match="folder"):
        import_dataset(source, "voc", target)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_target_is_filled(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    imported = import_dataset(_write_voc(tmp_path / "d"), "voc", tmp_path / "target")
    assert imported.written
    assert (tmp_path / "target/labels/train/a.txt").read_text() == "0 0.200000000 0.375000000 0.200000000 0.250000000\n"
    assert imported.lines == {"labels/train/a.txt": (3,)}
    assert imported.origin == {"images/train/a.png": "a.png", "labels/train/a.txt": "a.xml"}


def test_a_strict_import_with_errors_leaves_nothing_behind(tmp_path: Path) -> None:
    source = put(tmp_path / "d", BROKEN)
    imported = import_dataset(source, "voc", tmp_path / "target", strict=True)
    assert not imported.written
    assert [finding.file for finding in imported.errors] == ["b.xml"]
    assert list(tmp_path.iterdir()) == [source]


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _write_voc(tmp_path / "d")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tasks.importers.importing.label_boxes", fail)
    with pytest.raises(OSError, match="No space"):
        import_dataset(source, "voc", tmp_path / "target")
    assert list(tmp_path.iterdir()) == [source]


def test_what_is_imported_scans_without_a_finding(tmp_path: Path) -> None:
    imported = bring_in(_write_voc(tmp_path / "d"), "voc")
    scan = scan_dataset(imported.folder, LIMITS)
    assert scan.labels["rule"].isna().all()
    assert scan.pictures["rule"].isna().all()


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    source = put(tmp_path / "d", {"a.xml": GOOD["a.xml"]})
    put(tmp_path / "store", {"a.png": PICTURE})
    (source / "images").symlink_to(tmp_path / "store")
    (source / "again").symlink_to(source)
    imported = bring_in(source, "voc")
    assert imported.counts["boxes"] == 1
    assert not (imported.folder / "images/train/a.png").is_symlink()


def test_a_read_only_source_is_enough(tmp_path: Path) -> None:
    source = _write_voc(tmp_path / "d")
    for path in (*source.iterdir(), source):
        path.chmod(0o555 if path.is_dir() else 0o444)
    imported = bring_in(source, "voc")
    source.chmod(0o755)
    assert os.access(imported.folder / "images/train/a.png", os.W_OK)


XML = {
    "entity bomb": (
        b'<!DOCTYPE a [<!ENTITY l "lol"><!ENTITY m "&l;&l;&l;&l;">]><annotation><object>&m;</object></annotation>',
        "document type"),
    "external entity": (
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation><filename>&x;</filename></annotation>',
        "document type"),
    "external document type": (b'<!DOCTYPE a SYSTEM "http://x.invalid/a.dtd"><annotation/>', "document type"),
    "entity without a type": (b"<annotation>&x;</annotation>", "undefined entity"),
    "nested without end": (b"<a>" * 100_000, "nested too deeply"),
    "nothing": (b"", "no element found"),
    "zeros": (bytes(100), "broken XML"),
    "no known encoding": (b'<?xml version="1.0" encoding="klingon"?><annotation/>', "broken XML"),
}  # fmt: skip


@pytest.mark.parametrize("case", XML.values(), ids=XML)
def test_xml_that_is_refused(case) -> None:
    data, words = case
    with pytest.raises(DocumentError, match=words):
        parse_xml(data)


JSON = {
    "nested without end": (b"[" * 200_000, "nested too deeply"),
    "no number": (b'{"a": NaN}', "NaN"),
    "digits without end": (b"[" + b"9" * 10_000 + b"]", "digits"),
    "latin-1": (b'{"a":\n "\xe4"}', "0xe4"),
    "cut off": (b'{"a": [1,\n2', "broken JSON"),
}


@pytest.mark.parametrize("case", JSON.values(), ids=JSON)
def test_json_that_is_refused(case) -> None:
    data, words = case
    with pytest.raises(DocumentError, match=words):
        parse_json(data)


def test_marks_and_wide_text_are_read() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_json('{"a": "ä"}'.encode("utf-16")) == {"a": "ä"}


SIZES = {
    "png": (encode(plate(WH)), (100, 80), (100, 80)),
    "jpeg turned": (encode(plate(WH), "jpeg", orientation=6), (80, 100), (100, 80)),
    "jpeg upside down": (encode(plate(WH), "jpeg", orientation=3), (100, 80), (100, 80)),
    "png turned": (encode(plate(WH), "png", orientation=8), (80, 100), (100, 80)),
    "webp turned": (encode(plate(WH), "webp", orientation=5), (80, 100), (100, 80)),
    "tiff turned": (encode(plate(WH), "tiff", orientation=6), (80, 100), (100, 80)),
}


@pytest.mark.parametrize("case", SIZES.values(), ids=SIZES)
def test_sizes_are_those_displayed(case) -> None:
    data, displayed, stored = case
    size = picture_size(data)
    assert (size.displayed_wh, size.stored_wh) == (displayed, stored)


def test_a_damaged_picture_keeps_its_boxes_by_the_stated_size(tmp_path: Path) -> None:
    data = encode(noisy_plate(WH), "jpeg", orientation=6)[:-300]
    files = {"a.jpg": data, "a.xml": voc_xml("a", WH, [BOX]), "b.jpg": data}
    files["b.xml"] = voc_xml("b", (0, 0), [BOX])
    imported = bring_in(put(tmp_path / "d", files), "voc")
    assert [(finding.rule, finding.file) for finding in imported.errors] == [("import_picture", "b.xml")]
    assert imported.counts["boxes"] == 1


FORMATS = {
    "mini dataset": (None, "yolo"),
    "label files alone": ({"images/a.png": PICTURE, "labels/a.txt": "0 .5 .5 .1 .1"}, "yolo"),
    "voc": (GOOD, "voc"),
    "cvat": ({"a.png": PICTURE, "x.xml": cvat_xml(["dent"], "")}, "cvat"),
    "commented xml": ({"a.png": PICTURE, "a.xml": f"<!-- made by hand -->\n{voc_xml('a', WH, [])}"}, "voc"),
    "masks": ({"images/a.png": PICTURE, "masks/a.png": encode(plate(background=(0, 0, 0)))}, "masks"),
    "boards": ({"g/1/1_test.jpg": PICTURE, "g/1_not/1.txt": "1 2 3 4 1\n"}, "deeppcb"),
    "other JSON beside": ({**GOOD, "package.json": "[]", "x.json": '{"images": 3}'}, "voc"),
}


@pytest.mark.parametrize("case", FORMATS.values(), ids=FORMATS)
def test_formats_are_found_out(case, tmp_path: Path) -> None:
    files, name = case
    folder = write_mini_dataset(tmp_path / "d").folder if files is None else put(tmp_path / "d", files)
    assert detect_format(folder) == name


NO_FORMAT = {
    "two pictures of one stem": (
        {"a.jpg": encode(noisy_plate(WH), "jpeg"), "a.png": encode(noisy_plate(WH))},
        "no format that we know",
    ),
    "pictures only": ({"a.png": PICTURE}, "no format that we know"),
    "empty": ({}, "no format that we know"),
    "two": ({**GOOD, "x.xml": cvat_xml(["dent"], "")}, "voc .a.xml., cvat .x.xml."),
}


@pytest.mark.parametrize("case", NO_FORMAT.values(), ids=NO_FORMAT)
def test_what_has_no_format_of_its_own(case, tmp_path: Path) -> None:
    files, words = case
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidInput, match=words) as caught:
        detect_format(put(tmp_path / "d", files))
    assert type(caught.value) is InvalidInput, "nothing was found to be wrong with the data"


BROKEN_FILES = {
    "cut JSON": ({"a.json": b'{"images": [\n{"id": 1,}\n'}, r"a\.json, line 2: expected JSON that can be read.*column"),
    "no number": ({"a.json": b"[NaN]"}, r"a\.json: expected JSON.*NaN"),
    "no UTF-8": ({"a.json": b'{"a":\n"\xff"}'}, r"a\.json, line 2: .*0xff"),
    "cut XML": (
        {"a.xml": b"<a>\n<b></a>"},
        r"a\.xml, line 2: expected XML that can be read.*mismatched",
    ),
    "every one": ({"a.json": b"{", "b.json": b"["}, r"(?s)a\.json.*b\.json"),
}


@pytest.mark.parametrize(("files", "words"), BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_annotations_that_are_broken_are_told_with_their_place(files, words, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=words):
        detect_format(put(tmp_path / "d", {"p.png": PICTURE, **files}))


def test_no_folder_and_no_format_are_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="unpacked folder"):
        detect_format(put(tmp_path, {"a.zip": b"PK"}) / "a.zip")
    with pytest.raises(InvalidInput, match="labelstudio"):
        import_dataset(tmp_path, "kitti", tmp_path / "x")


def run(*arguments: object):
    return CliRunner().invoke(app, ["dataset", "import", *map(str, arguments)])


def test_the_command_writes_and_tells(tmp_path: Path) -> None:
    done = run(_write_voc(tmp_path / "d"), tmp_path / "t")
    assert done.exit_code == 0, done.output
    assert "1 pictures (train 1): 1 with boxes, 0 declared to show nothing, 0 without annotation" in done.output
    assert (tmp_path / "t/data.yaml").is_file()


def test_the_command_refuses_errors_and_prints_one_object(tmp_path: Path) -> None:
    done = run(put(tmp_path / "d", BROKEN), tmp_path / "t", "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert told["imported"] is False
    assert {"import_file"} <= {finding["rule"] for finding in told["findings"]}
    assert not (tmp_path / "t").exists()


def test_the_command_takes_classes_from_a_dataset(tmp_path: Path) -> None:
    put(tmp_path / "old", {"data.yaml": "train: images\nnames: [rust, dent]"})
    done = run(_write_voc(tmp_path / "d"), tmp_path / "t", "--classes", tmp_path / "old", "--json")
    assert json.loads(done.stdout)["classes"] == ["rust", "dent"]
    done = run(tmp_path / "d", tmp_path / "u", "--classes", "rust, crack", "--map", "dent=crack", "--json")
    assert json.loads(done.stdout)["classes"] == ["rust", "crack"]


def test_a_map_without_an_equals_sign_is_refused(tmp_path: Path) -> None:
    done = run(_write_voc(tmp_path / "d"), tmp_path / "t", "--map", "dent")
    assert isinstance(done.exception, InvalidInput)


def test_the_nasty_pictures_have_the_size_of_their_decoded_selves(tmp_path: Path) -> None:
    names = (
        "exif_orientation_3.jpg",
        "exif_orientation_6.jpg",
        "exif_orientation_3.png",
        "tiff_1bit_orientation_6.tif",
    )
    files = {name: (shared_data() / "nasty" / name).read_bytes() for name in names}
    for name, data in files.items():
        scan = scan_dataset(
            put(tmp_path / name, {"images/x" + Path(name).suffix: data, "data.yaml": "train: images\nnames: [a]"}),
            LIMITS,
        )
        row = scan.pictures.iloc[0]
        assert picture_size(data).displayed_wh == (row["width_px"], row["height_px"])
