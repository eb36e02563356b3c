"""An import from end to end: read the native annotations, settle the classes, write the project's layout."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import yaml

from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import DatasetError, InvalidInput, Problem
from data_contracts.labels import format_label_rows
from tasks.importers import coco, cvat, deeppcb, labelme, labelstudio, masks, voc, yolo
from tasks.importers.boxes import label_boxes
from tasks.importers.classes import ClassWish, settle_classes
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, merge_pictures
from tasks.importers.placing import DraftFolder, place_pictures
from tasks.importers.source import SourceFolder, split_of
from tasks.validation.findings import Finding

Reader = Callable[[SourceFolder, Sequence[str] | None, Findings], NativeDataset]

READERS: dict[str, Reader] = {
    "yolo": yolo.read,
    "coco": coco.read,
    "voc": voc.read,
    "deeppcb": deeppcb.read,
    "masks": masks.read,
    "labelme": labelme.read,
    "cvat": cvat.read,
    "labelstudio": labelstudio.read,
}
FORMATS = tuple(READERS)


@dataclass(frozen=True)
class Imported:
    """What an import made.

    `origin` leads from every picture and label file of the target to its file in the source, `lines` from every label
    file to the line in the source of each of its rows, None where a format has no lines. `counts` are pictures, boxes,
    labelled, backgrounds (declared to show nothing), unlabelled, and pictures per split. `written` is false for a
    strict import with errors.
    """

    folder: Path
    findings: tuple[Finding, ...]
    origin: Mapping[str, str]
    counts: Mapping[str, int]
    class_names: tuple[str, ...]
    lines: Mapping[str, tuple[int | None, ...]]
    written: bool = True

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that stand for something lost."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


def import_dataset(
    source: Path,
    format: str,  # noqa: A002  The word that the command line uses.
    target: Path,
    class_names: Sequence[str] | None = None,
    *,
    renames: Mapping[str, str] | None = None,
    by_name: bool = False,
    strict: bool = False,
) -> Imported:
    """Write `source`, annotated in `format`, to the new folder `target` in the YOLO layout; `source` is only read.

    `class_names` is the project's class list; `renames` and `by_name` say how the source's differ, see `ClassWish`.
    What could not be read is an error finding, and in a `strict` import then nothing is written. Raises DatasetError
    where the classes contradict or no annotation can be used, InvalidInput where nothing is annotated in `format`.
    """
    if format not in READERS:
        raise InvalidInput(Problem("format", f"one of {', '.join(FORMATS)}", format, "Correct the name."))
    wish = ClassWish(None if class_names is None else tuple(class_names), renames or {}, by_name)
    findings = Findings()
    folder = SourceFolder(source)
    draft_folder = DraftFolder(target, source)
    native = READERS[format](folder, wish.names, findings)
    native = _with_unlisted(replace(native, pictures=merge_pictures(native.pictures, findings)), folder, findings)
    _require_pictures(native, findings, source, format)
    native = _with_train(native, findings)
    native, names = settle_classes(native, wish, source, format, findings)
    with draft_folder as draft:
        origin, counts, lines = _write(native, names, folder, draft, findings)
        written = not (strict and any(finding.severity == "error" for finding in findings.found))
        if written:
            draft.publish()
    return Imported(target, tuple(findings.found), origin, counts, names, lines, written)


def _with_unlisted(native: NativeDataset, folder: SourceFolder, findings: Findings) -> NativeDataset:
    """The dataset with the pictures that lie among annotated ones but that no annotation mentions.

    They come without a label file: nobody said that they show nothing.
    """
    known = {picture.path for picture in native.pictures} | native.leave_out
    annotated = {picture.path.parent for picture in native.pictures}
    unlisted = [path for path in folder.pictures if path not in known]
    beside = [path for path in unlisted if path.parent in annotated]
    _tell_unlisted(
        beside, "They were imported without a label file: validation asks whether they show nothing.", findings
    )
    elsewhere = [path for path in unlisted if path.parent not in annotated]
    _tell_unlisted(elsewhere, "No annotated picture lies in their folders; they were left out.", findings)
    return replace(native, pictures=(*native.pictures, *map(NativePicture, beside)))


def _tell_unlisted(pictures: Sequence[PurePosixPath], action: str, findings: Findings) -> None:
    by_folder: dict[str, list[PurePosixPath]] = defaultdict(list)
    for path in pictures:
        by_folder[str(path.parent)].append(path)
    for folder, paths in by_folder.items():
        findings.add(
            Place(folder), "unlisted", "warning", expected="an annotation of every picture",
            got=f"{len(paths)} without one, such as {paths[0].name}", action=action,
        )  # fmt: skip


def _with_train(native: NativeDataset, findings: Findings) -> NativeDataset:
    """The dataset, all of it as train part where the source has none: a part that is all there is judges nothing."""
    parts = {picture.path: picture.split or split_of(picture.path) or Split.TRAIN for picture in native.pictures}
    if Split.TRAIN in parts.values():
        return native
    got = " and ".join(f"{count} pictures in {split}" for split, count in sorted(Counter(parts.values()).items()))
    findings.add(
        Place("."), "no_train_part", "warning", expected="a train part", got=got,
        action="All of them became the train part; pinning draws val and test from it.",
    )  # fmt: skip
    return replace(native, pictures=tuple(replace(picture, split=Split.TRAIN) for picture in native.pictures))


def _require_pictures(native: NativeDataset, findings: Findings, source: Path, source_format: str) -> None:
    if not any(picture.listed_in for picture in native.pictures):
        told = [_problem(finding) for finding in findings.found if finding.severity != "notice"]
        action = "Check the folder and the format."
        problem = Problem(str(source), f"pictures annotated in {source_format}", "none", action)
        raise DatasetError(problem, *told[:20]) if told else InvalidInput(problem)


def _problem(finding: Finding) -> Problem:
    place = f"{finding.file}, line {finding.line}" if finding.line else finding.file
    return Problem(place, finding.expected, finding.got, finding.action)


def _write(
    native: NativeDataset, names: Sequence[str], folder: SourceFolder, draft: DraftFolder, findings: Findings
) -> tuple[dict[str, str], dict[str, int], dict[str, tuple[int | None, ...]]]:
    class_ids = {name: number for number, name in enumerate(names)}
    origin: dict[str, str] = {}
    lines: dict[str, tuple[int | None, ...]] = {}
    counts: Counter[str] = Counter(dict.fromkeys(("pictures", "boxes", "labelled", "backgrounds", "unlabelled"), 0))
    placed = place_pictures(native.pictures, findings)
    for picture in native.pictures:
        path, split = placed[picture.path]
        data = _picture_bytes(picture, folder)
        draft.write(path, data)
        origin[str(path)] = str(picture.embedded_in or picture.path)
        counts.update({"pictures": 1, split.value: 1})
        if picture.listed_in is None:
            counts["unlabelled"] += 1
            continue
        rows = label_boxes(picture, data, class_ids, findings)
        label = label_path_of(path)
        draft.write(label, format_label_rows(box for box, _ in rows).encode())
        origin[str(label)] = picture.listed_in.file
        lines[str(label)] = tuple(place.line for _, place in rows)
        counts.update({"boxes": len(rows), "labelled" if rows else "backgrounds": 1})
    draft.write(PurePosixPath("data.yaml"), _dataset_yaml(names, counts).encode())
    return origin, dict(counts), lines


def _picture_bytes(picture: NativePicture, folder: SourceFolder) -> bytes:
    if picture.embedded_in is not None:
        return labelme.embedded_picture(folder.root / picture.embedded_in)
    return (folder.root / picture.path).read_bytes()


def _dataset_yaml(names: Sequence[str], counts: Mapping[str, int]) -> str:
    fields: dict[str, object] = {split.value: f"images/{split}" for split in Split if counts.get(split.value)}
    fields["names"] = dict(enumerate(names))
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
