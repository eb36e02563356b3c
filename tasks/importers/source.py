"""The folder that an import reads: its files, found by the names that annotation tools write.

Tools write names with other cases, without suffix, with folders of another machine, or composed otherwise in Unicode.
Only files below the folder are ever found, whatever the annotation says.
"""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from data_contracts.dataset import IMAGE_SUFFIXES, Split
from data_contracts.errors import DatasetError, Problem
from tasks.datasets.dataset_layout import SPLIT_KEYS, is_clutter
from tasks.importers.native import Findings, Place

_SPLIT_WORDS = {word: split for split, words in SPLIT_KEYS.items() for word in (*words, f"{split.value}ing")}
_SPLIT_WORDS |= {"dev": Split.VAL, "testing": Split.TEST}


class SourceFolder:
    """The files below a folder, and the picture that a written name means."""

    def __init__(self, root: Path) -> None:
        """List the folder once. Raises DatasetError when there is none."""
        if not root.is_dir():
            raise DatasetError(Problem(str(root), "a folder", "none", "Name the unpacked folder of the annotations."))
        self.root = root
        self.files = tuple(sorted(_walk(root)))
        self.pictures = tuple(path for path in self.files if path.suffix.lower() in IMAGE_SUFFIXES)
        self._by_path = {_key(str(path)): path for path in self.files}
        self._by_name = _grouped((_key(path.name), path) for path in self.pictures)
        self._by_stem = _grouped((_key(path.stem), path) for path in self.pictures)

    def with_suffix(self, *suffixes: str) -> tuple[PurePosixPath, ...]:
        """The files with one of these suffixes, in any case."""
        return tuple(path for path in self.files if path.suffix.lower() in suffixes)

    def find(self, path: PurePosixPath) -> PurePosixPath | None:
        """The file at a path, in any case."""
        return self._by_path.get(_key(str(path)))

    def find_picture(self, written: str, place: Place, findings: Findings) -> PurePosixPath | None:
        """The picture that an annotation file names, looked for from the file's own folder outwards.

        Returns None, with a finding, for a name that leaves the folder, that no picture has, or that several have.
        """
        home = PurePosixPath(place.file).parent
        if _leaves(home, written):
            findings.add(
                place, "path", "error", expected="a path inside the source folder", got=repr(written[:200]),
                action="Write the path relative to the annotation file; the entry was left out.",
            )  # fmt: skip
            return None
        found = self.candidates(written, home)
        if len(found) > 1 and (split := split_of(PurePosixPath(place.file))) is not None:
            found = [path for path in found if split_of(path) == split] or found
        if len(found) == 1:
            return found[0]
        shown = repr(written[:200])
        if not found:
            findings.add(
                place, "no_picture", "warning", expected="the name of a picture", got=f"{shown}, which is none here",
                action="Put the picture into the source, or remove the annotation; the entry was left out.",
            )  # fmt: skip
        else:
            findings.add(
                place, "which_picture", "error", expected="the name of one picture",
                got=f"{shown}, which may be {', '.join(map(str, found[:3]))}",
                action="Write the picture's path relative to the annotation file; the entry was left out.",
            )  # fmt: skip
        return None

    def candidates(self, written: str, home: PurePosixPath) -> list[PurePosixPath]:
        """The pictures that a written name may mean; the nearest that fits best, or all that fit equally well."""
        parts = [part for part in PureWindowsPath(written.strip()).parts if part not in ("", ".", "..", "\\", "/")]
        if not parts:
            return []
        for base in (home, home / "images", PurePosixPath()):
            exact = self.find(base / PurePosixPath(*parts))
            if exact is not None and exact.suffix.lower() in IMAGE_SUFFIXES:
                return [exact]
        name = _key(parts[-1])
        for found in (self._by_name.get(name, []), self._by_stem.get(name, []), self._by_stem.get(_bare(name), [])):
            if found:
                return _nearest(_ending_like(found, parts), home)
        return []


def _walk(root: Path) -> Iterator[PurePosixPath]:
    visited: set[Path] = set()
    for current, folders, files in os.walk(root, followlinks=True):
        resolved = Path(current).resolve()
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        if resolved in visited:  # A link that points at one of its own parents.
            folders.clear()
            continue
        visited.add(resolved)
        kept = (Path(current, name) for name in files if not is_clutter(name) or name == "classes.txt")
        yield from (PurePosixPath(path.relative_to(root).as_posix()) for path in kept if path.is_file())


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _bare(name: str) -> str:
    """A name without its suffix, where that is a picture's."""
    path = PurePosixPath(name)
    return path.stem if path.suffix in IMAGE_SUFFIXES else name


def _grouped(pairs: Iterable[tuple[str, PurePosixPath]]) -> dict[str, list[PurePosixPath]]:
    grouped: dict[str, list[PurePosixPath]] = defaultdict(list)
    for key, path in pairs:
        grouped[key].append(path)
    return dict(grouped)


def _leaves(home: PurePosixPath, written: str) -> bool:
    """Whether a relative path climbs out of the source. Absolute ones name another machine: their end is looked for.

    >>> _leaves(PurePosixPath("ann"), "../images/a.png"), _leaves(PurePosixPath("ann"), "..\\\\..\\\\a.png")
    (False, True)
    """
    path = PureWindowsPath(written)
    depth = 0 if path.anchor else len(home.parts)
    for part in path.parts[1 if path.anchor else 0 :]:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def _ending_like(found: list[PurePosixPath], parts: list[str]) -> list[PurePosixPath]:
    """Those of several pictures of one name whose folders agree longest with the written ones."""
    written = [_key(part) for part in parts[:-1]]

    def agreeing(path: PurePosixPath) -> int:
        pairs = zip(reversed([_key(part) for part in path.parts[:-1]]), reversed(written), strict=False)
        return next((count for count, (ours, theirs) in enumerate(pairs) if ours != theirs), len(written))

    best = max(map(agreeing, found))
    return [path for path in found if agreeing(path) == best]


def _nearest(found: list[PurePosixPath], home: PurePosixPath) -> list[PurePosixPath]:
    """Those of several pictures that share most folders with the annotation file."""

    def shared(path: PurePosixPath) -> int:
        pairs = zip(path.parts[:-1], home.parts, strict=False)
        return next((count for count, (one, other) in enumerate(pairs) if one != other), len(home.parts))

    best = max(map(shared, found))
    return [path for path in found if shared(path) == best]


def split_of(path: PurePosixPath) -> Split | None:
    """The split that a path's folders or its file name tell; the innermost folder counts.

    >>> split_of(PurePosixPath("set/valid/images/a.jpg")), split_of(PurePosixPath("ann/instances_train2017.json"))
    (<Split.VAL: 'val'>, <Split.TRAIN: 'train'>)
    """
    for folder in reversed(path.parts[:-1]):
        if (split := split_word(folder)) is not None:
            return split
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return None
    return next((split for word in path.stem.split("_") if (split := split_word(word)) is not None), None)


def split_word(word: str) -> Split | None:
    """The split that a word names, a year behind it allowed.

    >>> split_word("Train2017"), split_word("trainval"), split_word("images")
    (<Split.TRAIN: 'train'>, <Split.TRAIN: 'train'>, None)
    """
    bare = word.casefold().rstrip("0123456789")
    return Split.TRAIN if bare == "trainval" else _SPLIT_WORDS.get(bare)


def split_from_list(name: str) -> Split | None:
    """The split of a list file such as trainval.txt."""
    return split_word(PurePosixPath(name).stem)
