from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from builders import encode, plate
from data_contracts.errors import DatasetError
from native_formats import Annotated, boxes_of, bring_in, export_coco, export_voc, put, rules_of
from tasks.importers.classes import require_kept_classes

WH = (100, 80)
NAMES = ("dent", "pin hole", "rust")


def pictures(*classes: str) -> list[Annotated]:
    """One picture with a box per class, 10 pixels apart."""
    boxes = tuple((name, (10.0 * at, 10.0, 10.0 * at + 5, 20.0)) for at, name in enumerate(classes, start=1))
    return [Annotated("a.png", WH, boxes, encode(plate(WH)))]


AGREE = {
    "the same list": (NAMES, NAMES, {}),
    "renamed": (("dents", "pin hole", "rust"), NAMES, {"renames": {"dents": "dent"}}),
    "another order, said so": (("rust", "dent", "pin hole"), NAMES, {"by_name": True}),
    "fewer, said so": (("rust",), NAMES, {"by_name": True}),
    "two become one": (("dent", "dints", "pin hole", "rust"), NAMES, {"renames": {"dints": "dent"}}),
    "new at the end": ((*NAMES, "chip"), (*NAMES, "chip"), {}),
    "one left out": ((*NAMES, "chip"), NAMES, {"renames": {"chip": ""}}),
}


@pytest.mark.parametrize("case", AGREE.values(), ids=AGREE)
def test_ids_follow_the_names_of_the_project(case, tmp_path: Path) -> None:
    native, wanted, options = case
    exported = pictures(*native)
    export_coco(tmp_path / "d", exported, native)
    imported = bring_in(tmp_path / "d", "coco", class_names=wanted, **options)
    renames = {"dents": "dent", "dints": "dent", "chip": "chip"} | options.get("renames", {})
    expected = [(renames.get(name, name), box) for name, box in exported[0].boxes if renames.get(name, name)]
    assert boxes_of(imported, WH)["a.png"] == sorted(expected)
    assert imported.class_names == wanted
    assert yaml.safe_load((imported.folder / "data.yaml").read_text())["names"] == dict(enumerate(wanted))


REFUSED = {
    "another order": (("rust", "dent", "pin hole"), ["order is another"], "--by-name"),
    "renamed": (("dents", "pin hole", "rust"), ["dents may be dent"], "--map dents=dent"),
    "spelt otherwise": (("Dent", "pin-hole", "rust"), ["Dent may be dent", "pin-hole may be pin hole"],
                        "--map Dent=dent --map 'pin-hole=pin hole'"),
    "missing": (("dent", "rust"), ["pin hole would be without a box"], "--by-name"),
    "new": ((*NAMES, "chip"), ["chip would be new"], "--classes 'dent,pin hole,rust,chip'"),
    "new in front": (("chip", *NAMES), ["chip would be new"], "--classes 'dent,pin hole,rust,chip' --by-name"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_differs_is_refused_and_its_command_works(case, tmp_path: Path) -> None:
    native, words, options = case
    exported = pictures(*native)
    export_coco(tmp_path / "d", exported, native)
    with pytest.raises(DatasetError) as refused:
        bring_in(tmp_path / "d", "coco", class_names=NAMES)
    message = str(refused.value)
    assert "Nothing was renumbered" in message
    assert all(word in message for word in words)
    for option in shlex.split(options):
        assert option in shlex.split(message.partition("run: ")[2])
    assert not (tmp_path / "d-imported").exists()

    imported = bring_in(tmp_path / "d", "coco", **_options(message))
    assert imported.class_names[:3] == NAMES
    assert imported.counts["boxes"] == len(native)


def _options(message: str) -> dict[str, object]:
    """The arguments of the printed command, as the command line understands them."""
    words = shlex.split(message.partition("run: ")[2])
    maps = dict(words[at + 1].split("=") for at, word in enumerate(words) if word == "--map")
    classes = words[words.index("--classes") + 1].split(",")
    return {"class_names": classes, "renames": maps, "by_name": "--by-name" in words}


def test_names_without_a_list_are_matched_by_name(tmp_path: Path) -> None:
    export_voc(tmp_path / "d", pictures("rust"), [])
    imported = bring_in(tmp_path / "d", "voc", class_names=NAMES)
    assert (imported.folder / "labels/train/JPEGImages/a.txt").exists() is False
    assert next(imported.folder.rglob("a.txt")).read_text().startswith("2 ")
    assert rules_of(imported) == []
    assert any("dent, pin hole" in finding.got for finding in imported.findings)


def test_a_name_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    export_voc(tmp_path / "d", pictures("scale"), [])
    with pytest.raises(DatasetError, match="scale would be new"):
        bring_in(tmp_path / "d", "voc", class_names=NAMES)


def test_a_name_that_cannot_be_one_is_refused_until_it_is_mapped(tmp_path: Path) -> None:
    categories = [{"id": 0, "name": "dent "}]
    boxes = [{"id": 1, "image_id": 1, "category_id": 0, "bbox": [10, 20, 20, 20]}]
    coco = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": boxes, "categories": categories}
    folder = put(tmp_path / "d", {"x.json": coco, "a.png": encode(plate((100, 80)))})
    with pytest.raises(DatasetError, match=r"without spaces at the ends, got 'dent '"):
        bring_in(folder, "coco")
    assert bring_in(folder, "coco", renames={"dent ": "dent"}).class_names == ("dent",)


def test_a_rename_of_nothing_is_refused(tmp_path: Path) -> None:
    export_voc(tmp_path / "d", pictures("dent"), [])
    with pytest.raises(DatasetError, match="--map"):
        bring_in(tmp_path / "d", "voc", renames={"bent": "dent"})


def test_boxes_that_are_left_out_are_told(tmp_path: Path) -> None:
    export_voc(tmp_path / "d", pictures("dent", "rust"), [])
    imported = bring_in(tmp_path / "d", "voc", renames={"rust": ""})
    assert imported.class_names == ("dent",)
    assert rules_of(imported) == ["import_class_left_out"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("dent", "scratch"), None),
        (("dent", "scratch", "pore"), None),
        (("scratch", "dent"), "the order is another"),
        (("dent",), "scratch would be without a box"),
        (("dent", "scratches"), "scratches may be scratch"),
    ],
    ids=["the same", "one more at the end", "another order", "one fewer", "renamed"],
)
def test_a_new_revision_keeps_the_class_list(names: tuple[str, ...], said: str | None) -> None:
    kept = ("dent", "scratch")
    if said is None:
        require_kept_classes(names, kept, Path("new"))
        return
    with pytest.raises(DatasetError, match=said) as caught:
        require_kept_classes(names, kept, Path("new"))
    assert "passline dataset import new TARGET" in str(caught.value)
    assert "--new-classes" in str(caught.value)
