"""The YAML file of a dataset: class names in id order, and what it says about the splits.

Every scalar stays the text that was written: class names `no`, `on` and `0010` are names, not booleans and numbers.
"""

from __future__ import annotations

import os
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from data_contracts.dataset import ClassList, Split, is_class_name
from data_contracts.errors import DatasetError, Problem

YAML_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
SPLIT_KEYS = {Split.TRAIN: ("train",), Split.VAL: ("val", "valid", "validation"), Split.TEST: ("test",)}
_NULLS = frozenset({"~", "null", "Null", "NULL"})
MOST_YAML_BYTES = 2**20
"""1 MiB: the list of a thousand classes takes a twentieth of it."""


@dataclass(frozen=True)
class DatasetYaml:
    """What the file says. `splits` are its entries as written: a path or a list of paths."""

    path: Path
    class_names: tuple[str, ...]
    splits: dict[Split, object]
    base: Path
    """The folder that split paths are relative to."""
    notes: tuple[str, ...]


class _TextLoader(yaml.BaseLoader):
    """Scalars as text, and a null without quotes as the empty text that it stands for.

    A key that stands twice in one mapping is refused, as the last one would win in silence.
    """

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        text = str(super().construct_scalar(node))
        return "" if node.style is None and text in _NULLS else text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} stands there a second time", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_dataset_yaml(folder: Path) -> DatasetYaml:
    """Read the YAML file of `folder`, an absolute path. Raises DatasetError naming file and field."""
    path = find_yaml(folder)
    fields = _read_fields(path)
    _refuse_other_tasks(fields, path)
    names = _class_names(fields, path)
    base, notes = _base_folder(fields, path)
    splits = {split: fields[key] for split, key in _given_splits(fields, path).items()}
    return DatasetYaml(path, names, splits, base, tuple(notes))


def find_yaml(folder: Path) -> Path:
    """The dataset's YAML file: data.yaml or dataset.yaml."""
    found = [folder / name for name in YAML_NAMES if (folder / name).is_file()]
    if len(found) != 1:
        got = ", ".join(path.name for path in found) if found else "none of them"
        action = "Keep one of them." if found else "Name the split folders and the classes in data.yaml."
        raise DatasetError(Problem(str(folder), f"one of {', '.join(YAML_NAMES)}", got, action))
    return found[0]


def _read_fields(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        fields = yaml.load(text, Loader=_TextLoader)  # noqa: S506 - it makes text, lists and mappings only
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        got, place = _yaml_fault(error)
        raise DatasetError(Problem(f"{path}{place}", "YAML", got, "Mend the file.")) from None
    if not isinstance(fields, dict):
        got = "nothing" if fields in (None, "") else "other things"
        raise DatasetError(Problem(str(path), "the fields train, val and names", got, "Write them."))
    return fields


def _read_text(path: Path) -> str:
    data = path.read_bytes()[: MOST_YAML_BYTES + 1]
    got = "a larger file" if len(data) > MOST_YAML_BYTES else "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = got or f"the byte {data[error.start]:#04x} in line {line}"
    if got:
        raise DatasetError(Problem(str(path), "YAML in UTF-8, at most 1 MiB", got, "Save the file as UTF-8 text."))
    return text


def _yaml_fault(error: Exception) -> tuple[str, str]:
    """What is wrong, and `, line 3` where the parser says so.

    >>> _yaml_fault(ValueError("x"))
    ('x', '')
    """
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        words = error.problem or "something else"
        if "another document" in words:
            words = "a second document, which begins with ---"
        if "'\\t'" in words:
            words = "a tab at the start of a line or a value, where YAML wants spaces"
        return words, f", line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0], ""


def _refuse_other_tasks(fields: dict[str, Any], path: Path) -> None:
    if "kpt_shape" in fields:
        action = "Export the set with boxes: rows with key points look like outlines and would be read wrongly."
        raise DatasetError(Problem(f"{path}, field kpt_shape", "a set of boxes", "a set of key points", action))


def _class_names(fields: dict[str, Any], path: Path) -> tuple[str, ...]:
    subject = f"{path}, field names"
    names = _names_in_order(fields.get("names"), subject)
    try:
        checked = ClassList(names=names).names
    except ValidationError:
        action = "Write one name per class, each its own."
        raise DatasetError(Problem(subject, "distinct, non-empty class names", _name_fault(names), action)) from None
    if fields.get("nc", str(len(checked))) != str(len(checked)):
        got, action = reprlib.repr(fields["nc"]).strip("'"), "Make nc and names agree."
        raise DatasetError(Problem(f"{path}, field nc", f"{len(checked)}, as in names", got, action))
    return checked


def _name_fault(names: tuple[str, ...]) -> str:
    """What is wrong with names that are not distinct or not all there.

    >>> _name_fault(("pit", "dent", "pit"))
    "'pit' twice, for the ids 0 and 2"
    """
    for number, name in enumerate(names):
        if not name.strip():
            return f"no name for the id {number}"
        if not is_class_name(name):
            return f"{name!r} for the id {number}, with spaces at its ends or characters that do not show"
        if name in names[:number]:
            return f"{name!r} twice, for the ids {names.index(name)} and {number}"
    return "no name at all"


def _names_in_order(given: object, subject: str) -> tuple[str, ...]:
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return tuple(given)
    if isinstance(given, dict) and all(isinstance(name, str) for name in given.values()):
        if sorted(given) == sorted(str(number) for number in range(len(given))):
            return tuple(given[str(number)] for number in range(len(given)))
        expected = f"the ids 0 to {len(given) - 1}, each once" if given else "a class name for each id"
        action = "Number the classes from 0, and the labels with them; nothing is renumbered here."
        raise DatasetError(Problem(subject, expected, _shown(given), action))
    raise DatasetError(
        Problem(subject, "a list of class names", _shown(given), "Write the names themselves, in the order of the ids.")
    )


def _shown(given: object) -> str:
    """What stands there, cut short: aliases can make a small file name a thousand million things."""
    if given is None or given == "":
        return "nothing"
    if isinstance(given, dict):
        keys = [str(key) for key in list(given)[:12]]
        return f"the ids {', '.join(keys)}{' ..' if len(given) > len(keys) else ''}" if keys else "nothing"
    return f"the text {given[:80]!r}" if isinstance(given, str) else reprlib.repr(given)


def _given_splits(fields: dict[str, Any], path: Path) -> dict[Split, str]:
    given = {}
    for split, keys in SPLIT_KEYS.items():
        present = [key for key in keys if fields.get(key)]
        if len(present) > 1:
            raise DatasetError(Problem(str(path), f"one of {', '.join(keys)}", ", ".join(present), "Keep one of them."))
        if present:
            given[split] = present[0]
    if Split.TRAIN not in given:
        raise DatasetError(Problem(f"{path}, field train", "a folder of pictures", "nothing", "Add the field."))
    return given


def _base_folder(fields: dict[str, Any], yaml_path: Path) -> tuple[Path, list[str]]:
    """The folder that split paths are relative to: `path`, looked up from the YAML's own folder."""
    home = yaml_path.parent
    path = fields.get("path", "") or "."
    if not isinstance(path, str):
        problem = Problem(f"{yaml_path}, field path", "one folder", _shown(path), "Remove the field.")
        raise DatasetError(problem)
    base = Path(os.path.normpath(home / path))
    if "\0" not in path and base.is_dir():
        if not base.is_relative_to(home):
            action = "Put the YAML file into the dataset folder and remove the field."
            raise DatasetError(Problem(f"{yaml_path}, field path", f"a folder inside {home}", str(base), action))
        return base, []
    return home, [f"{yaml_path.name}: path {path!r} is no folder beside the file; its own folder is used"]
