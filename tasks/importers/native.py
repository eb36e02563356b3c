"""What a reader of a native format hands over: pictures, the shapes on them, and what was found wrong on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from data_contracts.dataset import Split
from tasks.importers.geometry import Extent
from tasks.validation.expectations import Severity
from tasks.validation.findings import Finding


@dataclass(frozen=True)
class Place:
    """Where something stands: a file below the source, a line where one is known, or words such as `annotation 7`."""

    file: str
    line: int | None = None
    what: str = ""


@dataclass(frozen=True)
class Shape:
    """One defect: its class by name and its extent, in the unit that its picture says."""

    class_name: str
    extent: Extent
    place: Place


@dataclass(frozen=True)
class NativePicture:
    """One picture of the source.

    `path` is relative to the source. `listed_in` is the file that annotates it, None where nothing does: then having no
    shapes says nothing. Extents are pixels, or fractions of the picture. `embedded_in` is the annotation file that
    carries the picture's bytes, where they lie in no file of their own.
    """

    path: PurePosixPath
    shapes: tuple[Shape, ...] = ()
    listed_in: Place | None = None
    split: Split | None = None
    stated_wh: tuple[int, int] | None = None
    in_fractions: bool = False
    embedded_in: PurePosixPath | None = None


@dataclass(frozen=True)
class NativeDataset:
    """A source as its format describes it.

    `class_names` are in id order; None where the format declares no list and names stand with the shapes only.
    `leave_out` are picture files that are no pictures of the dataset, such as masks.
    """

    pictures: tuple[NativePicture, ...]
    class_names: tuple[str, ...] | None
    leave_out: frozenset[PurePosixPath] = frozenset()


@dataclass
class Findings:
    """Collects findings; all of them are told at once."""

    found: list[Finding] = field(default_factory=list)

    def add(self, place: Place, rule: str, severity: Severity, *, expected: str, got: str, action: str) -> None:
        """One finding; `rule` without its prefix."""
        got = f"{got} ({place.what})" if place.what else got
        file = "the source" if place.file == "." else place.file
        self.found.append(
            Finding(
                file=file, line=place.line, rule=f"import_{rule}", severity=severity,
                got=got, expected=expected, action=action,
            )
        )  # fmt: skip


def merge_pictures(pictures: Iterable[NativePicture], findings: Findings) -> tuple[NativePicture, ...]:
    """Every picture once: shapes that several annotation files give for one picture are put together, and told."""
    merged: dict[PurePosixPath, NativePicture] = {}
    for picture in pictures:
        earlier = merged.get(picture.path)
        if earlier is None:
            merged[picture.path] = picture
            continue
        if picture.listed_in is not None and earlier.listed_in is not None:
            findings.add(
                picture.listed_in, "picture_twice", "warning", expected="every picture annotated in one place",
                got=f"{picture.path}, which {_where(earlier.listed_in)} annotates too",
                action="All shapes were taken together; check that they belong to the same picture.",
            )  # fmt: skip
        merged[picture.path] = _joined(earlier, picture)
    return tuple(merged.values())


def _where(place: Place) -> str:
    return f"{place.file} ({place.what})" if place.what else place.file


def _joined(first: NativePicture, second: NativePicture) -> NativePicture:
    return NativePicture(
        first.path, first.shapes + second.shapes, first.listed_in or second.listed_in, first.split or second.split,
        first.stated_wh or second.stated_wh, first.in_fractions, first.embedded_in,
    )  # fmt: skip


def stated_size(width: object, height: object) -> tuple[int, int] | None:
    """The size that an annotation file states; None where it states none that can be.

    >>> stated_size(640, 480), stated_size(0, 0), stated_size(None, "480")
    ((640, 480), None, None)
    """
    if type(width) is not int or type(height) is not int or width < 1 or height < 1:
        return None
    return width, height


def class_of(names: Mapping[int, str], class_id: int, place: Place, findings: Findings) -> str | None:
    """The name of a class id; None, with an error finding, for an id that the source does not name."""
    if class_id in names:
        return names[class_id]
    findings.add(
        place, "class_id", "error", expected=f"one of the class ids {', '.join(map(str, names))}", got=str(class_id),
        action="Correct the id, or name the class in the source; the box was left out.",
    )  # fmt: skip
    return None
