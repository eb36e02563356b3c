"""Which mask belongs to which picture, told by names and folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from tasks.importers.source import SourceFolder, split_word

_KINDS = (
    "annotation",
    "groundtruth",
    "ground_truth",
    "gt",
    "label",
    "mask",
    "seg",
    "segmentation",
    "segmentationclass",
)
MASK_WORDS = frozenset((*_KINDS, *(f"{kind}s" for kind in _KINDS)))
PLAIN_FOLDERS = MASK_WORDS | frozenset(("data", "dataset", "image", "images", "img", "imgs", "jpegimages", "pictures"))
"""Folders that say what kind of file lies in them, and nothing about the picture."""


def pair_masks(source: SourceFolder) -> dict[PurePosixPath, tuple[PurePosixPath, ...]]:
    """The masks of each picture: one, or one per class where these lie in folders of their own.

    Where no word tells masks apart, two files of one stem in one folder are a pair: the JPEG is the picture.
    """
    masks = named_masks(source)
    by_stem: dict[str, list[PurePosixPath]] = {}
    for mask in sorted(masks):
        by_stem.setdefault(_bare_stem(mask), []).append(mask)
    plain = [path for path in source.pictures if path not in masks]
    found = ((picture, _closest(picture, by_stem.get(picture.stem.casefold(), []))) for picture in plain)
    pairs = {picture: masks_of_it for picture, masks_of_it in found if masks_of_it}
    return pairs or _pairs_beside(plain)


def named_masks(source: SourceFolder) -> frozenset[PurePosixPath]:
    """The files whose name or folder says that they are masks."""
    return frozenset(path for path in source.pictures if _is_named_mask(path))


def _pairs_beside(pictures: Sequence[PurePosixPath]) -> dict[PurePosixPath, tuple[PurePosixPath, ...]]:
    groups: dict[tuple[PurePosixPath, str], list[PurePosixPath]] = {}
    for path in pictures:
        groups.setdefault((path.parent, path.stem), []).append(path)
    pairs: dict[PurePosixPath, tuple[PurePosixPath, ...]] = {}
    for group in groups.values():
        jpegs = [path for path in group if path.suffix.lower() in (".jpg", ".jpeg")]
        rest = [path for path in group if path not in jpegs]
        if len(jpegs) == 1 and len(rest) == 1:
            pairs[jpegs[0]] = (rest[0],)
    return pairs


def _is_named_mask(path: PurePosixPath) -> bool:
    return _bare_stem(path) != path.stem.casefold() or any(part.casefold() in MASK_WORDS for part in path.parts[:-1])


def _bare_stem(path: PurePosixPath) -> str:
    """A stem without the word that marks a mask.

    >>> _bare_stem(PurePosixPath("Part0_label.bmp")), _bare_stem(PurePosixPath("part_7.png"))
    ('part0', 'part_7')
    """
    stem = path.stem.casefold()
    for word in sorted(MASK_WORDS, key=len, reverse=True):
        for joint in ("_", "-", "."):
            if stem.endswith(f"{joint}{word}"):
                return stem.removesuffix(f"{joint}{word}")
    return stem


def _closest(picture: PurePosixPath, masks: Sequence[PurePosixPath]) -> tuple[PurePosixPath, ...]:
    """The masks whose folders agree with the picture's, apart from those that only say what lies in them."""
    folders, bare = telling_folders(picture), telling_folders(picture, splits=False)
    same = [mask for mask in masks if telling_folders(mask) == folders]
    near = same or [mask for mask in masks if telling_folders(mask, splits=False) == bare]
    if near:
        return (near[0],) if len(near) == 1 else ()
    per_class: dict[str, PurePosixPath] = {}
    for mask in masks:
        *parents, last = telling_folders(mask, splits=False) or [""]
        if last and parents == bare:
            per_class.setdefault(last, mask)
    return tuple(per_class.values())


def telling_folders(path: PurePosixPath, *, splits: bool = True) -> list[str]:
    """The folders of a path that say more than what kind of file lies in them; on wish without those of splits."""
    folders = [part for part in path.parts[:-1] if part.casefold() not in PLAIN_FOLDERS]
    return folders if splits else [part for part in folders if split_word(part) is None]
