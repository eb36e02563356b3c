"""What a folder in the YOLO layout holds: class names, and the pictures of each split.

Everything depends on the place of the YAML file alone: not on the working directory, not on a user's settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml
from pydantic import ValidationError

from data_contracts.dataset import IMAGE_SUFFIXES, ClassList, Split
from data_contracts.errors import DatasetError, Problem, raise_if_any

YAML_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
SPLIT_KEYS = {Split.TRAIN: ("train",), Split.VAL: ("val", "valid", "validation"), Split.TEST: ("test",)}
LABEL_TOOL_FILES = frozenset({"classes.txt", "notes.json", "Thumbs.db", "desktop.ini"})
"""Files that labelling tools and desktops leave beside pictures and labels; they mean nothing here."""


@dataclass(frozen=True)
class DatasetLayout:
    """A dataset folder as its YAML describes it. Paths are relative to `root`, pictures in sorted order."""

    root: Path
    class_names: tuple[str, ...]
    splits: dict[Split, tuple[PurePosixPath, ...]]
    others: tuple[PurePosixPath, ...] = ()
    """Files in the picture folders that are no pictures we read."""
    notes: tuple[str, ...] = ()
    """Sentences about paths that were read otherwise than written."""


def is_clutter(name: str) -> bool:
    """Whether a file belongs to a desktop or a tool: macOS `._*` stubs, hidden files, LabelImg's class list."""
    return name.startswith(".") or name in LABEL_TOOL_FILES


def read_layout(folder: Path) -> DatasetLayout:
    """Read the YAML file of `folder` and list the pictures. Raises DatasetError naming file and field."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - drops `..` without following links, which resolve() would
    yaml_path = find_yaml(folder)
    fields = _read_fields(yaml_path)
    names = _class_names(fields, yaml_path)
    base, notes = _base_folder(fields, yaml_path)
    reader = _SplitReader(folder, base, yaml_path, notes)
    splits = {split: reader.read(fields[key]) for split, key in _given_splits(fields, yaml_path).items()}
    raise_if_any(DatasetError, reader.problems)
    return DatasetLayout(reader.root, names, splits, tuple(sorted(set(reader.others))), tuple(reader.notes))


def find_yaml(folder: Path) -> Path:
    """The dataset's YAML file: data.yaml or dataset.yaml."""
    found = [folder / name for name in YAML_NAMES if (folder / name).is_file()]
    if len(found) != 1:
        got = ", ".join(path.name for path in found) if found else "none of them"
        action = "Name the split folders and the classes in data.yaml." if not found else "Keep one of them."
        raise DatasetError(Problem(str(folder), f"one of {', '.join(YAML_NAMES)}", got, action))
    return found[0]


def _read_fields(yaml_path: Path) -> dict[str, Any]:
    try:
        # BaseLoader keeps every scalar as the text that was written: class names `no`, `on` and `0010` stay names.
        fields = yaml.load(yaml_path.read_text("utf-8-sig"), Loader=yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DatasetError(Problem(str(yaml_path), "YAML in UTF-8", str(error), "Mend the file.")) from None
    if not isinstance(fields, dict):
        raise DatasetError(Problem(str(yaml_path), "fields train, val and names", "none", "Write them."))
    return fields


def _class_names(fields: dict[str, Any], yaml_path: Path) -> tuple[str, ...]:
    subject = f"{yaml_path}, field names"
    names = _names_in_order(fields.get("names"), subject)
    try:
        checked = ClassList(names=names).names
    except ValidationError:
        got = ", ".join(names) or "no name"
        action = "Write one name per class."
        raise DatasetError(Problem(subject, "distinct, non-empty class names", got, action)) from None
    if fields.get("nc", str(len(checked))) != str(len(checked)):
        action = "Make nc and names agree."
        raise DatasetError(Problem(f"{yaml_path}, field nc", f"{len(checked)}, as in names", fields["nc"], action))
    return checked


def _names_in_order(given: object, subject: str) -> tuple[str, ...]:
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return tuple(given)
    if isinstance(given, dict) and all(isinstance(name, str) for name in given.values()):
        if sorted(given) == sorted(str(number) for number in range(len(given))):
            return tuple(given[str(number)] for number in range(len(given)))
        expected = f"the ids 0 to {len(given) - 1}"
        action = "Number the classes from 0, and the labels with them; nothing is renumbered here."
        raise DatasetError(Problem(subject, expected, ", ".join(given), action))
    raise DatasetError(Problem(subject, "a list of class names", repr(given)[:80], "List the class names in id order."))


def _given_splits(fields: dict[str, Any], yaml_path: Path) -> dict[Split, str]:
    given = {}
    for split, keys in SPLIT_KEYS.items():
        present = [key for key in keys if fields.get(key)]
        if len(present) > 1:
            problem = Problem(str(yaml_path), f"one of {', '.join(keys)}", ", ".join(present), "Keep one of them.")
            raise DatasetError(problem)
        if present:
            given[split] = present[0]
    if Split.TRAIN not in given:
        raise DatasetError(Problem(f"{yaml_path}, field train", "a folder of pictures", "nothing", "Add the field."))
    return given


def _base_folder(fields: dict[str, Any], yaml_path: Path) -> tuple[Path, list[str]]:
    """The folder that split paths are relative to: `path`, looked up from the YAML's own folder."""
    home = yaml_path.parent
    path = fields.get("path", "") or "."
    base = Path(os.path.normpath(home / path))
    if base.is_dir():
        if not base.is_relative_to(home):
            action = "Put the YAML file into the dataset folder and remove the field."
            raise DatasetError(Problem(f"{yaml_path}, field path", f"a folder inside {home}", str(base), action))
        return base, []
    return home, [f"{yaml_path.name}: path {path!r} is no folder beside the file; its own folder is used."]


class _SplitReader:
    """Reads split entries; collects problems instead of stopping at the first."""

    def __init__(self, root: Path, base: Path, yaml_path: Path, notes: list[str]) -> None:
        self.root, self.base, self.yaml_path, self.notes = root, base, yaml_path, notes
        self.problems: list[Problem] = []
        self.others: list[PurePosixPath] = []

    def read(self, entries: object) -> tuple[PurePosixPath, ...]:
        """The pictures of one split, each once."""
        found: set[PurePosixPath] = set()
        for entry in entries if isinstance(entries, list) else [entries]:
            place = self._place(str(entry))
            if place is not None:
                found.update(self._listed(place) if place.is_file() else self._walked(place))
        return tuple(sorted(found))

    def _place(self, entry: str) -> Path | None:
        """The folder or list file that `entry` names, inside the dataset folder."""
        written = Path(os.path.normpath(self.base / entry))
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
        self._problem(entry, "a folder or a list of pictures", f"nothing at {written}")
        return None

    def _problem(self, entry: str, expected: str, got: str) -> None:
        action = "Write a path relative to the YAML file."
        self.problems.append(Problem(f"{self.yaml_path}, path {entry!r}", expected, got, action))

    def _listed(self, list_file: Path) -> list[PurePosixPath]:
        """The pictures that a .txt file names, one a line, relative to the list's folder."""
        lines = [line.strip() for line in list_file.read_text("utf-8-sig").splitlines() if line.strip()]
        paths = [Path(os.path.normpath(list_file.parent / line)) for line in lines]
        wrong = [path for path in paths if not (path.is_file() and path.is_relative_to(self.root))]
        if wrong or not paths:
            got = f"{len(wrong)} of {len(paths)} missing or outside, such as {wrong[0]}" if wrong else "an empty list"
            action = "List paths relative to the list file, or name the folder of the pictures in the YAML file."
            self.problems.append(Problem(str(list_file), "pictures inside the dataset folder", got, action))
            return []
        return [self._relative(path) for path in paths]

    def _walked(self, folder: Path) -> list[PurePosixPath]:
        """The pictures below `folder`; links on folders are followed under the name that the dataset gives them."""
        found = []
        visited: set[Path] = set()
        for current, folders, files in os.walk(folder, followlinks=True):
            resolved = Path(current).resolve()
            if resolved in visited:  # A link that points at one of its own parents.
                folders.clear()
                continue
            visited.add(resolved)
            for path in (Path(current, name) for name in files if not is_clutter(name)):
                if path.suffix.lower() in IMAGE_SUFFIXES:
                    found.append(self._existing(path))
                elif path.suffix.lower() != ".txt":
                    self.others.append(self._relative(path))
        return found

    def _existing(self, path: Path) -> PurePosixPath:
        if not path.exists():
            self.problems.append(Problem(str(path), "a file", f"a link to {path.readlink()}", "Restore the file."))
        return self._relative(path)

    def _relative(self, path: Path) -> PurePosixPath:
        return PurePosixPath(path.relative_to(self.root).as_posix())


def _endings(entry: str) -> list[tuple[str, ...]]:
    """What a path from another machine or folder may mean beside the YAML, longest ending first.

    >>> _endings(r"D:\\parts\\train\\images")
    [('parts', 'train', 'images'), ('train', 'images')]
    >>> _endings("../train/images")
    [('train', 'images')]
    """
    path = PureWindowsPath(entry)
    parts = tuple(part for part in path.parts if part != path.anchor and part != "..")
    if path.anchor:
        return [parts[start:] for start in range(max(0, len(parts) - 1))]
    return [parts] if entry.startswith("..") and parts else []
