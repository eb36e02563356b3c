"""Masks: one picture of the defects' pixels per picture; every connected part of a class is one box.

A mask has its picture's stem, with or without a word such as `_mask` behind it, and lies beside the picture or in a
folder such as `masks`. Small values (up to 32) are class ids where there are several, or where `classes.txt` names
them; else everything brighter than 127 is the defect, named after the mask's folder. Gaps of up to 4 pixels are
closed and specks below 9 pixels dropped. An empty mask declares its picture to show nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from tasks.importers.documents import DocumentError, parse_text, read_bytes
from tasks.importers.geometry import Extent
from tasks.importers.mask_files import named_masks, pair_masks, telling_folders
from tasks.importers.mask_pixels import (
    HIGHEST_CLASS_ID,
    LEAST_PIXELS,
    VOID,
    Mask,
    connected_parts,
    foreground,
    read_mask,
)
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape
from tasks.importers.source import SourceFolder, split_of

GOOD_FOLDERS = frozenset({"good", "ok"})
ONE_CLASS = "defect"


def read(source: SourceFolder, class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the masks below the source."""
    pairs = pair_masks(source)
    paired = {mask for masks in pairs.values() for mask in masks}
    readable = {mask: values for mask in sorted(paired) if (values := _values(source, mask, findings)) is not None}
    rule = _ClassRule(_value_names(source), class_names)
    reader = _MaskReader(source, rule, rule.by_value(readable.values()), findings)
    pictures = [reader.read(picture, masks) for picture, masks in pairs.items() if readable.keys() >= set(masks)]
    reader.tell()
    good = _good_pictures(source, pairs)
    masks = named_masks(source) | paired
    _tell_lone(sorted(masks - paired), findings)
    return NativeDataset((*pictures, *good), rule.value_names or None, masks)


def _values(source: SourceFolder, mask: PurePosixPath, findings: Findings) -> frozenset[int] | None:
    """The values of a mask; None, with a finding, for a file that is none."""
    try:
        return frozenset(np.unique(read_mask(read_bytes(source.root / mask))).tolist())
    except DocumentError as error:
        findings.add(
            Place(str(mask)), "mask", "error", expected="a mask in grey levels or with a palette", got=str(error),
            action="Save it as a PNG of class ids; its picture has no label file.",
        )  # fmt: skip
        return None


def _tell_lone(masks: Sequence[PurePosixPath], findings: Findings) -> None:
    for mask in masks:
        findings.add(
            Place(str(mask)), "no_picture", "warning", expected="a picture of the same stem", got="none, or several",
            action="Put the picture into the source or remove the mask; it was left out.",
        )  # fmt: skip


def _good_pictures(
    source: SourceFolder, pairs: Mapping[PurePosixPath, tuple[PurePosixPath, ...]]
) -> Iterator[NativePicture]:
    """Pictures of a folder `good` beside folders with masks: declared to show nothing, as in MVTec AD."""
    masks = {mask for masks in pairs.values() for mask in masks}
    for path in source.pictures:
        if path not in pairs and path not in masks and any(part.casefold() in GOOD_FOLDERS for part in path.parts[:-1]):
            yield NativePicture(path, listed_in=Place(str(path.parent)), split=split_of(path))


def _value_names(source: SourceFolder) -> tuple[str, ...]:
    """The names of `classes.txt`: line 1 names value 1, unless it names the background."""
    file = next((file for file in source.files if file.name == "classes.txt"), None)
    if file is None:
        return ()
    lines = [line.strip() for line in parse_text(read_bytes(source.root / file)).splitlines() if line.strip()]
    background = bool(lines) and lines[0].casefold() in ("background", "_background_", "__ignore__")
    return tuple(lines[background:])


@dataclass(frozen=True)
class _ClassRule:
    """How the class of a mask's pixels is told."""

    value_names: tuple[str, ...]
    wanted: Sequence[str] | None

    def by_value(self, seen: Iterable[frozenset[int]]) -> bool:
        """Whether the values of all masks are class ids."""
        values = {value for found in seen for value in found} - {0, VOID}
        small = bool(values) and max(values) <= HIGHEST_CLASS_ID
        return small and (len(values) > 1 or bool(self.value_names))

    def of_value(self, value: int) -> str:
        """The class of a value."""
        return self.value_names[value - 1] if value <= len(self.value_names) else str(value)

    def of_folder(self, mask: PurePosixPath) -> str:
        """The class of a mask's folder; the only class of the project where it has one."""
        if self.wanted is not None and len(self.wanted) == 1:
            return self.wanted[0]
        folders = telling_folders(mask, splits=False)
        return folders[-1] if folders else ONE_CLASS


@dataclass
class _MaskReader:
    """Reads masks one by one; counts what is told once for all of them."""

    source: SourceFolder
    rule: _ClassRule
    by_value: bool
    findings: Findings
    specks: int = 0
    empty: list[PurePosixPath] = field(default_factory=list)

    def read(self, picture: PurePosixPath, masks: Sequence[PurePosixPath]) -> NativePicture:
        """One picture with a shape for every connected part of its masks."""
        shapes: list[Shape] = []
        size = (0, 0)
        for mask in masks:
            pixels = read_mask(read_bytes(self.source.root / mask))
            found = [Shape(name, extent, Place(str(mask))) for name, extent in self._parts(pixels, mask)]
            shows = foreground(pixels).any()
            self.empty += [] if shows else [mask]
            if not found and shows:
                self.findings.add(
                    Place(str(mask)), "mask_specks", "warning", got="less",
                    expected=f"connected parts of {LEAST_PIXELS} pixels or more",
                    action="No box was made of it; check the picture.",
                )  # fmt: skip
            shapes += found
            size = (pixels.shape[1], pixels.shape[0])
        return NativePicture(picture, tuple(shapes), Place(str(masks[0])), split_of(picture), size)

    def _parts(self, pixels: Mask, mask: PurePosixPath) -> Iterator[tuple[str, Extent]]:
        for name, plane in self._planes(pixels, mask):
            extents, specks = connected_parts(plane)
            self.specks += specks
            yield from ((name, extent) for extent in extents)

    def _planes(self, pixels: Mask, mask: PurePosixPath) -> Iterator[tuple[str, Mask]]:
        if not self.by_value:
            yield self.rule.of_folder(mask), foreground(pixels)
            return
        for value in sorted(set(np.unique(pixels).tolist()) - {0, VOID}):
            yield self.rule.of_value(value), (pixels == value).astype(np.uint8)

    def tell(self) -> None:
        """The findings about all masks together."""
        if self.empty:
            self.findings.add(
                Place(str(self.empty[0])), "mask_empty", "notice", expected="masks that show something",
                got=f"masks without a marked pixel: {len(self.empty)}, this one first",
                action="Their pictures count as showing nothing; check that nobody forgot to mark them.",
            )  # fmt: skip
        if self.specks:
            self.findings.add(
                Place("."), "specks", "notice", expected=f"connected parts of {LEAST_PIXELS} pixels or more",
                got=f"{self.specks} smaller ones", action="They became no boxes.",
            )  # fmt: skip
