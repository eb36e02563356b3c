"""YOLO text: boxes, outlines and turned boxes, one label file per picture; outlines become their extents.

Read more leniently than training reads it: labels may lie beside the pictures, split folders of data.yaml that are not
there are replaced by those whose names say the split, and without data.yaml the names come from classes.txt or
--classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import DatasetError, InvalidInput, Problem
from data_contracts.labels import LabelProblem, LabelRow, parse_label_bytes
from tasks.datasets.dataset_layout import BACKGROUNDS_FILE, DatasetLayout, read_layout
from tasks.datasets.dataset_yaml import YAML_NAMES, read_dataset_yaml
from tasks.importers.documents import parse_text, read_bytes
from tasks.importers.geometry import Extent
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape
from tasks.importers.source import SourceFolder, split_of

_OUTLINE = "label_polygon"


def read(source: SourceFolder, class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the label files below the source. Raises InvalidInput where no class names are found."""
    names = _class_names(source, class_names)
    described = _described(source, findings)
    reader = _LabelReader(source, names, described.backgrounds, findings)
    pictures = [reader.read(path, described.splits.get(path) or split_of(path)) for path in source.pictures]
    reader.tell()
    return NativeDataset(tuple(pictures), names)


def yaml_file(source: SourceFolder) -> PurePosixPath | None:
    """The data.yaml of the source: the one that lies least deep."""
    found = [file for file in source.with_suffix(".yaml", ".yml") if file.name in YAML_NAMES]
    return min(found, key=lambda file: (len(file.parts), file), default=None)


def read_class_names(path: Path) -> tuple[str, ...]:
    """The class names of a dataset folder, or of its data.yaml. Raises DatasetError."""
    return read_dataset_yaml((path if path.is_dir() else path.parent).absolute()).class_names


def _class_names(source: SourceFolder, wanted: Sequence[str] | None) -> tuple[str, ...]:
    if (file := yaml_file(source)) is not None:
        return read_class_names(source.root / file)
    listed = [file for file in source.files if file.name == "classes.txt" or file.suffix == ".names"]
    if listed:
        text = parse_text(read_bytes(source.root / min(listed, key=lambda file: len(file.parts))))
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    if wanted is not None:
        return tuple(wanted)
    action = "Say the class names in id order: --classes first,second,third."
    raise InvalidInput(Problem(str(source.root), "data.yaml or classes.txt with the class names", "neither", action))


@dataclass(frozen=True)
class _Described:
    """What data.yaml and the files beside it say about pictures, by their paths in the source."""

    splits: Mapping[PurePosixPath, Split]
    backgrounds: Mapping[PurePosixPath, Place]


def _described(source: SourceFolder, findings: Findings) -> _Described:
    """Splits and listed backgrounds; none, with a finding, where data.yaml does not fit the folder."""
    file = yaml_file(source)
    if file is None:
        return _Described({}, {})
    try:
        layout = read_layout((source.root / file).parent)
    except DatasetError as error:
        got = "; ".join(_got(problem) for problem in error.problems)
        findings.add(
            Place(str(file)), "data_yaml", "warning", expected="split folders that are there", got=got,
            action="The splits were taken from the names of the folders; correct the file.",
        )  # fmt: skip
        return _Described({}, {})
    home, listed_in = file.parent, Place(str(file.parent / BACKGROUNDS_FILE))
    _tell_shared(layout, Place(str(file)), findings)
    splits: dict[PurePosixPath, Split] = {}
    for split, pictures in layout.splits.items():
        for picture in pictures:
            splits.setdefault(home / picture, split)
    return _Described(splits, {home / picture: listed_in for picture in layout.backgrounds})


def _tell_shared(layout: DatasetLayout, place: Place, findings: Findings) -> None:
    counts = Counter(picture for pictures in layout.splits.values() for picture in pictures)
    shared = [picture for picture, count in counts.items() if count > 1]
    if shared:
        findings.add(
            place, "split_shared", "warning", expected="every picture in one split",
            got=f"{len(shared)} pictures in several, such as {shared[0]}",
            action="They went to the first of train, val and test; name folders of their own.",
        )  # fmt: skip


def _got(problem: Problem | str) -> str:
    return f"{problem.subject.rpartition(', ')[2]}: {problem.got}" if isinstance(problem, Problem) else problem


@dataclass
class _LabelReader:
    """Reads label files; counts what is told once for all of them, and keeps which were read."""

    source: SourceFolder
    names: tuple[str, ...]
    backgrounds: Mapping[PurePosixPath, Place]
    findings: Findings
    outlines: int = 0
    beside: int = 0
    seen: set[PurePosixPath] = field(default_factory=set)

    def read(self, picture: PurePosixPath, split: Split | None) -> NativePicture:
        """One picture with the shapes of its label file, in fractions."""
        file = self._label_file(picture)
        if file is None:
            return NativePicture(picture, listed_in=self.backgrounds.get(picture), split=split)
        self.seen.add(file)
        rows = parse_label_bytes(read_bytes(self.source.root / file), len(self.names))
        shapes = tuple(shape for row in rows if (shape := self._shape(row, str(file))) is not None)
        return NativePicture(picture, shapes, Place(str(file)), split, in_fractions=True)

    def _label_file(self, picture: PurePosixPath) -> PurePosixPath | None:
        if (file := self.source.find(label_path_of(picture))) is not None:
            return file
        file = self.source.find(picture.with_suffix(".txt"))
        self.beside += file is not None
        return file

    def _shape(self, row: LabelRow, file: str) -> Shape | None:
        place = Place(file, row.line or None)
        problems = (row,) if isinstance(row, LabelProblem) else row.warnings
        for problem in problems:
            self._tell_row(problem, place)
        if isinstance(row, LabelProblem):
            return None
        centre_x, centre_y, width, height = row.box_cxcywh
        extent: Extent = (centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)
        return Shape(self.names[row.class_id], extent, place)

    def _tell_row(self, problem: LabelProblem, place: Place) -> None:
        if problem.rule == _OUTLINE:
            self.outlines += 1
            return
        outcome = "the row was left out." if problem.severity == "error" else "it was read with that correction."
        self.findings.add(
            place, problem.rule, problem.severity, expected=problem.expected, got=problem.got,
            action=f"Correct the row; {outcome}",
        )  # fmt: skip

    def tell(self) -> None:
        """The findings about all label files together, and those of no picture."""
        folders = {file.parent for file in self.seen}
        for file in self.source.with_suffix(".txt"):
            if file.parent in folders and file not in self.seen and file.name != "classes.txt":
                self.findings.add(
                    Place(str(file)), "no_picture", "warning", expected="a picture of the same stem", got="none",
                    action="Put the picture into the source, or remove the label file; it was left out.",
                )  # fmt: skip
        if self.outlines:
            self.findings.add(
                Place("."), "outlines", "notice", expected="boxes", got=f"{self.outlines} outlines or turned boxes",
                action="Each became the upright box around it.",
            )  # fmt: skip
        if self.beside:
            self.findings.add(
                Place("."), "labels_beside", "notice", expected="label files in a labels folder",
                got=f"{self.beside} beside their pictures", action="They were read from there.",
            )  # fmt: skip
