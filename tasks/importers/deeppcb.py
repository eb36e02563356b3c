"""DeepPCB: one text file per board, `left top right bottom type` in pixels, and lists of boards with their text files.

Types are numbered from 1 and named in the data set's description only; a `classes.txt` in the source names others, one
a line. Its README promises commas, the files have spaces: both are read. The tested boards `<stem>_test.jpg` are the
pictures, the templates `<stem>_temp.jpg` are not. Lists: trainval.txt becomes train, test.txt test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from data_contracts.dataset import Split
from tasks.importers.documents import DocumentError, add_unreadable, parse_text, read_bytes
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape, class_of
from tasks.importers.source import SourceFolder, split_from_list, split_of

PUBLISHED_NAMES = ("open", "short", "mousebite", "spur", "copper", "pin-hole")
_LISTS = ("trainval.txt", "train.txt", "val.txt", "test.txt")
_PAIR = re.compile(r".+?\.\w+[\s,]+(\S.*)")
"""A line of a list: the path of a board, then that of its text file; both may contain spaces."""
_NO_LABELS = frozenset({*_LISTS, "classes.txt", "readme.txt", "license.txt"})


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the text files below the source."""
    names = _names(source)
    by_id = dict(enumerate(names, start=1))
    splits = _listed_splits(source, findings)
    pictures = []
    for file in (file for file in source.with_suffix(".txt") if file.name.lower() not in _NO_LABELS):
        path = _picture_of(source, file, findings)
        if path is not None:
            shapes = _shapes(source, file, by_id, findings)
            split = splits.get(file) or split_of(file)
            pictures.append(NativePicture(path, shapes, Place(str(file)), split))
    templates = frozenset(path for path in source.pictures if path.stem.endswith("_temp"))
    return NativeDataset(tuple(pictures), names, templates)


def _names(source: SourceFolder) -> tuple[str, ...]:
    file = source.find(PurePosixPath("classes.txt"))
    if file is None:
        return PUBLISHED_NAMES
    return tuple(line.strip() for line in parse_text(read_bytes(source.root / file)).splitlines() if line.strip())


def _listed_splits(source: SourceFolder, findings: Findings) -> dict[PurePosixPath, Split]:
    """The split by text file; an entry of a list whose text file is not there is an error."""
    splits: dict[PurePosixPath, Split] = {}
    for list_file in (file for file in source.with_suffix(".txt") if file.name.lower() in _LISTS):
        split = split_from_list(list_file.name) or Split.TRAIN
        for number, line in enumerate(parse_text(read_bytes(source.root / list_file)).splitlines(), start=1):
            if not line.strip():
                continue
            pair = _PAIR.fullmatch(line.strip())
            written = PurePosixPath(pair[1] if pair else line.strip())
            label = source.find(list_file.parent / written) if ".." not in written.parts else None
            if label is not None:
                splits[label] = split
                continue
            findings.add(
                Place(str(list_file), number), "no_label_file", "warning", expected="a picture and its text file",
                got=f"{line.strip()[:200]!r}, whose text file is not there", action="Add the file or remove the line.",
            )  # fmt: skip
    return splits


def _picture_of(source: SourceFolder, file: PurePosixPath, findings: Findings) -> PurePosixPath | None:
    """The tested board: beside the text file, or in the folder of the same name without `_not`."""
    home = PurePosixPath(*(part.removesuffix("_not") for part in file.parts[:-1]))
    for stem in (f"{file.stem}_test", file.stem):
        found = source.candidates(stem, home)
        if len(found) == 1:
            return found[0]
    return source.find_picture(f"{file.stem}_test.jpg", Place(str(file)), findings)


def _shapes(source: SourceFolder, file: PurePosixPath, names: dict[int, str], findings: Findings) -> tuple[Shape, ...]:
    try:
        text = parse_text(read_bytes(source.root / file))
    except DocumentError as error:
        add_unreadable(findings, str(file), error, "lines of `left top right bottom type`")
        return ()
    numbered = ((Place(str(file), number), line) for number, line in enumerate(text.splitlines(), start=1))
    found = (_shape(line, place, names, findings) for place, line in numbered if line.strip())
    return tuple(shape for shape in found if shape is not None)


def _shape(line: str, place: Place, names: dict[int, str], findings: Findings) -> Shape | None:
    try:
        left, top, right, bottom, kind = (float(part) for part in line.replace(",", " ").split())
    except ValueError:
        left = top = right = bottom = kind = math.nan
    if not all(map(math.isfinite, (left, top, right, bottom))) or not float(kind).is_integer():
        findings.add(
            place, "row", "error", expected="5 numbers: left, top, right, bottom, type", got=repr(line.strip()[:80]),
            action="Correct the row; it was left out.",
        )  # fmt: skip
        return None
    name = class_of(names, int(kind), place, findings)
    return None if name is None else Shape(name, (left, top, right, bottom), place)
