"""Which format a folder is annotated in, from what its files begin with or contain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from data_contracts.dataset import label_path_of
from data_contracts.errors import DatasetError, InvalidInput, Problem, raise_if_any
from tasks.importers.documents import UTF_16, DocumentError, parse_json, parse_text, parse_xml, read_bytes
from tasks.importers.mask_files import pair_masks
from tasks.importers.mask_pixels import looks_like_mask
from tasks.importers.source import SourceFolder
from tasks.importers.yolo import yaml_file

_XML_ROOT = re.compile(rb"<(annotations?)[\s>/]")
_PAIR_OF_FILES = re.compile(rb"^\S+\.\w+[ ,]+\S+\.txt\s*$", re.MULTILINE)
_BOARD_ROW = re.compile(rb"^\s*\d+[ ,]+\d+[ ,]+\d+[ ,]+\d+[ ,]+\d+\s*$", re.MULTILINE)
_SAMPLE = 200
"""So many files of a kind are looked into; a folder that differs behind them says so when it is imported."""


_MASK_SAMPLE = 10


def detect_format(folder: Path) -> str:
    """The format of a folder. Raises InvalidInput where none or several fit, with the files that speak for each.

    Raises DatasetError where none fits and its annotations are broken, with what is wrong where.
    """
    source = SourceFolder(folder)
    found: dict[str, PurePosixPath] = {}
    for name, file in (*_yolo(source), *_json(source), *_xml(source), *_deeppcb(source)):
        found.setdefault(name, file)
    if "deeppcb" in found and yaml_file(source) is None:
        found.pop("yolo", None)
    if not found and (mask := _mask(source)) is not None:
        found["masks"] = mask
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise_if_any(DatasetError, _broken(source))
    got = ", ".join(f"{name} ({file})" for name, file in found.items()) or "annotations of no format that we know"
    action = "Say which one counts with --format." if found else "Check the folder, or say the format with --format."
    raise InvalidInput(Problem(str(folder), "annotations of one format", got, action))


def _broken(source: SourceFolder) -> Iterator[Problem]:
    """The JSON and XML files that cannot be read, the first _SAMPLE of each."""
    for suffix, parse in ((".json", parse_json), (".xml", parse_xml)):
        for file in source.with_suffix(suffix)[:_SAMPLE]:
            try:
                parse(read_bytes(source.root / file))
            except DocumentError as error:
                place = f"{file}, line {error.line}" if error.line else str(file)
                action = "Export the annotations again, or remove the file."
                yield Problem(place, f"{suffix[1:].upper()} that can be read", str(error), action)


def _yolo(source: SourceFolder) -> Iterator[tuple[str, PurePosixPath]]:
    file = yaml_file(source)
    if file is not None:
        yield "yolo", file
        return
    for picture in source.pictures[:_SAMPLE]:
        for label in (label_path_of(picture), picture.with_suffix(".txt")):
            if (found := source.find(label)) is not None:
                yield "yolo", found
                return


def _json(source: SourceFolder) -> Iterator[tuple[str, PurePosixPath]]:
    for file in source.with_suffix(".json")[:_SAMPLE]:
        data = _content(source, file)
        if b'"shapes"' in data and b'"imagePath"' in data:
            yield "labelme", file
        elif data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and re.search(
            rb'"(\w+labels|annotations|completions)"', data
        ):
            yield "labelstudio", file
        elif b'"images"' in data and b'"annotations"' in data:
            yield "coco", file


def _xml(source: SourceFolder) -> Iterator[tuple[str, PurePosixPath]]:
    for file in source.with_suffix(".xml")[:_SAMPLE]:
        root = _XML_ROOT.search(_content(source, file)[:4096])
        if root is not None:
            yield "cvat" if root[1] == b"annotations" else "voc", file


def _deeppcb(source: SourceFolder) -> Iterator[tuple[str, PurePosixPath]]:
    for file in source.with_suffix(".txt")[:_SAMPLE]:
        data = _content(source, file)
        if _PAIR_OF_FILES.search(data) or (_BOARD_ROW.search(data) and file.parent.name.endswith("_not")):
            yield "deeppcb", file


def _mask(source: SourceFolder) -> PurePosixPath | None:
    """The first mask, where those looked at are masks by their pixels too."""
    masks = sorted(mask for masks in pair_masks(source).values() for mask in masks)
    seen = masks[:: max(1, len(masks) // _MASK_SAMPLE)]
    return masks[0] if masks and all(looks_like_mask(_content(source, mask)) for mask in seen) else None


def _content(source: SourceFolder, file: PurePosixPath) -> bytes:
    """The bytes of a file, of UTF-16 text those of UTF-8; nothing where it cannot be read."""
    try:
        data = read_bytes(source.root / file)
        return parse_text(data).encode() if data.startswith(UTF_16) else data
    except DocumentError:
        return b""
