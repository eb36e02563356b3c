"""What a folder in the YOLO layout holds: class names, and the pictures of each split.

Everything depends on the place of the YAML file alone: not on the working directory, not on a user's settings.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from data_contracts.dataset import IMAGE_SUFFIXES, Split, label_path_of
from data_contracts.errors import DatasetError, Problem, raise_if_any
from tasks.datasets.dataset_yaml import SPLIT_KEYS, YAML_NAMES, DatasetYaml, find_yaml, read_dataset_yaml

__all__ = ["BACKGROUNDS_FILE", "SPLIT_KEYS", "YAML_NAMES", "DatasetLayout", "find_yaml", "is_clutter", "read_layout"]

BACKGROUNDS_FILE = "backgrounds.txt"
"""Pictures without objects and without a label file: one path a line, relative to the dataset folder."""
LABEL_TOOL_FILES = frozenset({"classes.txt", "notes.json", "Thumbs.db", "desktop.ini"})
"""Files that labelling tools and desktops leave beside pictures and labels; they mean nothing here."""
MOST_FOLDERS = 6
"""So many folders with pictures are told where a path leads nowhere."""
TOOL_FOLDERS = frozenset({"__MACOSX", "@eaDir"})
"""Folders of archives and network disks that hold copies or thumbnails of what lies beside them."""


@dataclass(frozen=True)
class DatasetLayout:
    """A dataset folder as its YAML describes it. Paths are relative to `root`, pictures in sorted order."""

    root: Path
    class_names: tuple[str, ...]
    splits: dict[Split, tuple[PurePosixPath, ...]]
    others: tuple[PurePosixPath, ...] = ()
    """Files in the picture and label folders that are neither pictures we read nor label files."""
    notes: tuple[str, ...] = ()
    """Sentences about paths that were read otherwise than written."""
    backgrounds: frozenset[PurePosixPath] = frozenset()
    """Pictures that BACKGROUNDS_FILE lists as showing no objects; some may not exist."""
    yaml_name: str = "data.yaml"
    unused: Mapping[PurePosixPath, int] = field(default_factory=dict)
    """Folders that hold pictures which no split names, and how many."""
    beside: Mapping[PurePosixPath, int] = field(default_factory=dict)
    """Folders with label files beside their pictures, where they are not looked for, and how many."""


def is_clutter(name: str) -> bool:
    """Whether a file belongs to a desktop or a tool: macOS `._*` stubs, hidden files, LabelImg's class list."""
    return name.startswith(".") or name in LABEL_TOOL_FILES


def read_layout(folder: Path) -> DatasetLayout:
    """Read the YAML file of `folder` and list the pictures. Raises DatasetError naming file and field."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - drops `..` without following links, which resolve() would
    described = read_dataset_yaml(folder)
    reader = _SplitReader(folder, described)
    splits = {split: reader.read(entries) for split, entries in described.splits.items()}
    backgrounds = _read_backgrounds(folder, reader.problems)
    raise_if_any(DatasetError, reader.problems)
    used = Counter(picture.parent for picture in set().union(*splits.values()))
    others = {*reader.others, *_beside_labels(folder, used)}
    return DatasetLayout(
        folder, described.class_names, splits, tuple(sorted(others)), tuple(reader.notes), backgrounds,
        described.path.name, _unused(folder, used), reader.beside,
    )  # fmt: skip


def _read_backgrounds(folder: Path, problems: list[Problem]) -> frozenset[PurePosixPath]:
    """The paths that BACKGROUNDS_FILE lists; lines that start with # are remarks."""
    path = folder / BACKGROUNDS_FILE
    if not path.is_file():
        return frozenset()
    lines = _read_lines(path, problems)
    return frozenset(PurePosixPath(os.path.normpath(line.replace("\\", "/"))) for line in lines if line[0] != "#")


def _read_lines(path: Path, problems: list[Problem]) -> list[str]:
    """The lines of a list, without blank ones; a file that is no text is a problem."""
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        problems.append(Problem(str(path), "text in UTF-8", "something else", "Save the file as UTF-8 text."))
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def _beside_labels(root: Path, folders: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Files in the label folders that are no label files, where these are other folders than the pictures'."""
    labels = {folder: label_path_of(folder / "picture").parent for folder in folders}
    return {
        folder / entry.name
        for folder in {label for picture, label in labels.items() if label != picture and (root / label).is_dir()}
        for entry in os.scandir(root / folder)
        if not is_clutter(entry.name) and not entry.name.endswith((".txt", ".cache")) and not entry.is_dir()
    }


def _unused(root: Path, used: Mapping[PurePosixPath, int]) -> dict[PurePosixPath, int]:
    """Folders with more pictures than the splits name, and how many more; what links lead to is used."""
    unused: dict[PurePosixPath, int] = {}
    behind_links = {path.resolve() for path in map(root.joinpath, used)}
    for current, folders, files in os.walk(root):
        folders[:] = [name for name in folders if is_data_folder(name)]
        folder = PurePosixPath(current).relative_to(root.as_posix())
        pictures = sum(is_picture(name) and not is_clutter(name) for name in files)
        if pictures > used.get(folder, 0) and (folder in used or Path(current).resolve() not in behind_links):
            unused[folder] = pictures - used.get(folder, 0)
    return unused


def is_picture(name: str) -> bool:
    """Whether a file's name ends like that of a picture that we read."""
    return name[name.rfind(".") :].lower() in IMAGE_SUFFIXES


def is_data_folder(name: str) -> bool:
    """Whether a folder may hold data: no hidden one, and none of an archive or network disk."""
    return not name.startswith(".") and name not in TOOL_FOLDERS


class _SplitReader:
    """Reads split entries; collects problems instead of stopping at the first."""

    def __init__(self, root: Path, described: DatasetYaml) -> None:
        self.root, self.base, self.yaml_path = root, described.base, described.path
        self.notes = list(described.notes)
        self.problems: list[Problem] = []
        self.others: list[PurePosixPath] = []
        self.beside: dict[PurePosixPath, int] = {}

    def read(self, entries: object) -> tuple[PurePosixPath, ...]:
        """The pictures of one split, each once."""
        found: set[str] = set()
        for entry in entries if isinstance(entries, list) else [entries]:
            place = self._place(str(entry))
            if place is not None:
                found.update(self._listed(place) if place.is_file() else self._walked(place))
        return tuple(map(PurePosixPath, sorted(found, key=lambda path: path.split("/"))))

    def _place(self, entry: str) -> Path | None:
        """The folder or list file that `entry` names, inside the dataset folder."""
        written = Path(os.path.normpath(self.base / entry.replace("\0", "?")))
        if not PureWindowsPath(entry).drive and written.exists():
            if written.is_relative_to(self.root):
                return written
            self._problem(entry, "a path inside the dataset folder", f"{written}, outside of it")
            return None
        for parts in _endings(entry):
            if (place := self.base.joinpath(*parts)).is_dir():
                self.notes.append(
                    f"{self.yaml_path.name}: {entry!r} is not there; {'/'.join(parts)} beside it is used."
                )
                return place
        there = [str(folder) for folder in _unused(self.root, {})]
        pictures = f"; pictures are in {', '.join(there[:MOST_FOLDERS])}" if there else ""
        self._problem(entry, "a folder or a list of pictures", f"nothing at {written}{pictures}")
        return None

    def _problem(self, entry: str, expected: str, got: str) -> None:
        action = "Write the path of what is there, relative to the YAML file."
        self.problems.append(Problem(f"{self.yaml_path}, path {entry!r}", expected, got, action))

    def _listed(self, list_file: Path) -> list[str]:
        """The pictures that a .txt file names, one a line, relative to the list's folder or to the dataset's."""
        lines = _read_lines(list_file, self.problems)
        paths = [self._listed_path(list_file.parent, line) for line in lines]
        wrong = [path for path in paths if not (path.is_file() and path.is_relative_to(self.root))]
        if wrong or not paths:
            got = f"{len(wrong)} of {len(paths)} missing or outside, such as {wrong[0]}" if wrong else "an empty list"
            action = "List paths relative to the list file, or name the folder of the pictures in the YAML file."
            self.problems.append(Problem(str(list_file), "pictures inside the dataset folder", got, action))
            return []
        return [self._relative(path) for path in paths if not is_clutter(path.name)]

    def _listed_path(self, folder: Path, line: str) -> Path:
        beside, below = (Path(os.path.normpath(base / line.replace("\0", "?"))) for base in (folder, self.base))
        return below if below.is_file() and not beside.is_file() else beside

    def _walked(self, folder: Path) -> list[str]:
        """The pictures below `folder`; links on folders are followed under the name that the dataset gives them."""
        found: list[str] = []
        visited: set[Path] = set()
        for current, folders, files in os.walk(folder, followlinks=True):
            resolved = Path(current).resolve()
            if resolved in visited:  # A link that points at one of its own parents.
                folders.clear()
                continue
            visited.add(resolved)
            folders[:] = [name for name in folders if is_data_folder(name)]
            wanted = [name for name in files if not is_clutter(name)]
            pictures = [name for name in wanted if is_picture(name)]
            self._refuse_dead_links(current, pictures)
            prefix = self._relative(Path(current, "x"))[:-1]
            found += [prefix + name for name in pictures]
            others = (name for name in wanted if not is_picture(name) and not name.endswith(".txt"))
            self.others += [PurePosixPath(prefix + name) for name in others]
            self._count_beside(PurePosixPath(prefix), pictures, wanted)
        return found

    def _count_beside(self, folder: PurePosixPath, pictures: Iterable[str], names: Iterable[str]) -> None:
        """Count the label files that lie beside their pictures where labels are looked for elsewhere."""
        texts = {name.removesuffix(".txt") for name in names if name.endswith(".txt")}
        labels = texts.intersection(name.rpartition(".")[0] for name in pictures) if texts else texts
        if labels and label_path_of(folder / "picture").parent != folder:
            self.beside[folder] = len(labels)

    def _refuse_dead_links(self, folder: str, pictures: Iterable[str]) -> None:
        links = {entry.name for entry in os.scandir(folder) if entry.is_symlink()}
        for path in (Path(folder, name) for name in pictures if name in links):
            if not path.exists():
                got = f"a link to {path.readlink()}, where no file is"
                self.problems.append(Problem(str(path), "a picture", got, "Restore the file, or remove the link."))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _endings(entry: str) -> list[tuple[str, ...]]:
    """What a path from another machine or folder may mean beside the YAML, longest ending first.

    >>> _endings(r"D:\\parts\\train\\images")
    [('parts', 'train', 'images'), ('train', 'images')]
    >>> _endings("../train/images"), _endings(r"train\\images")
    ([('train', 'images')], [('train', 'images')])
    """
    path = PureWindowsPath(entry)
    parts = tuple(part for part in path.parts if part != path.anchor and part != "..")
    if path.anchor:
        return [parts[start:] for start in range(max(0, len(parts) - 1))]
    return [parts] if parts and (entry.startswith("..") or "\\" in entry) else []
