"""Class ids stay with their names: a source's classes against the class list of the project.

Nothing is renumbered silently. What does not agree is refused, with the command that says what is meant.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from data_contracts.dataset import ClassList
from data_contracts.errors import DatasetError, Problem
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place

_NAMES = "distinct, non-empty class names of one line, without spaces at the ends"
_LOOKS_LIKE = 0.6
"""From this ratio of equal letters on, a class name is offered as another's new name."""


@dataclass(frozen=True)
class ClassWish:
    """What whoever imports says about the classes.

    `names` is the project's class list, None to take the source's. `renames` maps a name of the source to another, ""
    leaves its boxes out. `by_name`: an order or a number of classes other than the project's is meant so.
    """

    names: tuple[str, ...] | None = None
    renames: Mapping[str, str] = field(default_factory=dict)
    by_name: bool = False


def settle_classes(
    dataset: NativeDataset, wish: ClassWish, source: Path, source_format: str, findings: Findings
) -> tuple[NativeDataset, tuple[str, ...]]:
    """The dataset with its renamed classes, and the class list in id order.

    Raises DatasetError with a migration command where the source's classes are not those of the project.
    """
    native = dataset.class_names
    if native is not None and not (native and wish.renames.keys() >= set(native)):
        _checked([name for name in native if name not in wish.renames], source)
    used = sorted({shape.class_name for picture in dataset.pictures for shape in picture.shapes})
    _check_renames(wish.renames, {*(native or ()), *used}, source)
    renamed = replace(dataset, pictures=tuple(_rename(picture, wish.renames) for picture in dataset.pictures))
    _tell_dropped(dataset, renamed, wish, findings)
    names = tuple(dict.fromkeys(new for name in native or used if (new := wish.renames.get(name, name))))
    if wish.names is None:
        if native is None and len(names) > 1:
            _tell_order(names, findings)
        return renamed, _checked(names, source)
    wanted = _checked(wish.names, source)
    declared = native is not None
    if not _agree(names, wanted, ordered=declared and not wish.by_name):
        command = ["passline", "dataset", "import", str(source), "TARGET", "--format", source_format]
        problem = Problem(f"{source}: classes", f"{', '.join(wanted)} (the project's)", ", ".join(names), "")
        raise DatasetError(replace(problem, action=_migration(names, wanted, command, wish, declared=declared)))
    _tell_unused(wanted, used, wish, findings)
    return renamed, wanted


def require_kept_classes(names: tuple[str, ...], kept: tuple[str, ...], source: Path) -> None:
    """Raise DatasetError unless the classes of a new revision are those of the one before; new ones may follow.

    The ids in label files mean nothing without the list: with another one, old and new boxes would change their class.
    """
    if names[: len(kept)] == kept:
        return
    command = ["passline", "dataset", "import", str(source), "TARGET", "--format", "yolo"]
    action = _migration(names, kept, command, ClassWish(kept), declared=True)
    action += " and add TARGET. To change the dataset's own list: --new-classes."
    raise DatasetError(Problem(f"{source}: classes", f"{', '.join(kept)} (the dataset's)", ", ".join(names), action))


def _agree(names: tuple[str, ...], wanted: tuple[str, ...], *, ordered: bool) -> bool:
    return names == wanted if ordered else set(names) <= set(wanted)


def _checked(names: Sequence[str], source: Path) -> tuple[str, ...]:
    try:
        return ClassList(names=tuple(names)).names
    except ValidationError:
        got = ", ".join(map(repr, names)) or "no name"
        action = "Name the classes in the source, or say them with --classes."
        raise DatasetError(Problem(f"{source}: class list", _NAMES, got, action)) from None


def _check_renames(renames: Mapping[str, str], native: set[str], source: Path) -> None:
    unknown = [name for name in renames if name not in native]
    if unknown:
        expected = f"classes of the source: {', '.join(sorted(native))}"
        raise DatasetError(Problem(f"{source}: --map", expected, ", ".join(unknown), "Correct the name before the =."))


def _rename(picture: NativePicture, renames: Mapping[str, str]) -> NativePicture:
    if not renames:
        return picture
    renamed = (replace(shape, class_name=renames.get(shape.class_name, shape.class_name)) for shape in picture.shapes)
    return replace(picture, shapes=tuple(shape for shape in renamed if shape.class_name))


def _tell_dropped(before: NativeDataset, after: NativeDataset, wish: ClassWish, findings: Findings) -> None:
    dropped = sum(map(_shape_count, before.pictures)) - sum(map(_shape_count, after.pictures))
    if dropped:
        names = ", ".join(name for name, new in wish.renames.items() if not new)
        findings.add(
            Place("."), "class_left_out", "warning", expected="every box imported", got=f"{dropped} boxes of {names}",
            action="They were left out as asked; their pictures stay and count as showing nothing there.",
        )  # fmt: skip


def _shape_count(picture: NativePicture) -> int:
    return len(picture.shapes)


def _tell_order(names: tuple[str, ...], findings: Findings) -> None:
    findings.add(
        Place("."), "class_order", "notice", expected="a class list in the source", got="names at the boxes only",
        action=f"They were numbered by the alphabet; to keep these ids next time: --classes {','.join(names)}.",
    )  # fmt: skip


def _tell_unused(wanted: tuple[str, ...], used: Iterable[str], wish: ClassWish, findings: Findings) -> None:
    seen = {wish.renames.get(name, name) for name in used}
    unused = [name for name in wanted if name not in seen]
    if unused:
        findings.add(
            Place("."), "class_without_box", "notice", expected="boxes of every class of the project",
            got=f"none of {', '.join(unused)}", action="Nothing to do if the source shows none of them.",
        )  # fmt: skip


def _migration(
    names: Sequence[str], wanted: Sequence[str], command: list[str], wish: ClassWish, *, declared: bool
) -> str:
    """What differs, and the command that says that it is meant; only a declared list has an order and gaps."""
    maps, new = _guess_renames(names, wanted)
    after = tuple(dict.fromkeys(maps.get(name, name) for name in names))
    gone = [name for name in wanted if name not in after] if declared else []
    why = [f"{old} may be {name}" for old, name in maps.items()]
    why += [f"{', '.join(new)} would be new, at the end"] if new else []
    why += [f"{', '.join(gone)} would be without a box"] if gone else []
    why += ["the order is another"] if declared and _order_differs(after, wanted) else []
    classes = [*wanted, *new]
    command = [*command, "--classes", "DATA_YAML" if any("," in name for name in classes) else ",".join(classes)]
    for old, name in ({**wish.renames, **maps}).items():
        command += ["--map", f"{old}={name}"]
    command += ["--by-name"] if declared and after != (*wanted, *new) else []
    return f"Nothing was renumbered: {'; '.join(why)}. If that is meant, run: {shlex.join(command)}"


def _order_differs(names: Sequence[str], wanted: Sequence[str]) -> bool:
    both = [name for name in wanted if name in names]
    return [name for name in names if name in wanted] != both


def _guess_renames(names: Sequence[str], wanted: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Which unknown names look like a missing one, and which look new.

    >>> _guess_renames(["MT_Crack", "Pin Hole", "dent"], ["crack", "pin-hole"])
    ({'MT_Crack': 'crack', 'Pin Hole': 'pin-hole'}, ['dent'])
    """
    free = {_letters(name): name for name in wanted if name not in names}
    maps: dict[str, str] = {}
    for name in (name for name in names if name not in wanted):
        letters = _letters(name)
        within = [key for key in free if key and (key in letters or (letters and letters in key))]
        alike = within or difflib.get_close_matches(letters, free, 1, _LOOKS_LIKE)
        if alike:
            maps[name] = free.pop(alike[0])
    return maps, [name for name in names if name not in wanted and name not in maps]


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
