"""Pictures that must not be parted: the same content, the same group (part, lot, burst), and near copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from tasks.splitting.stratify import UnitCounts

BACKGROUND = -1
"""Stands for "no defect" among the class ids, so that pictures without defects are shared out like a class."""

Key = TypeVar("Key", PurePosixPath, int)


@dataclass(frozen=True)
class PictureLabels:
    """What drawing needs to know of one picture: class ids of its boxes, and a hash of its content."""

    class_ids: tuple[int, ...]
    content: str


@dataclass(frozen=True)
class Ties:
    """What ties pictures beside equal content: group by picture, and pairs of near copies."""

    groups: Mapping[PurePosixPath, str] = field(default_factory=dict)
    near: tuple[tuple[PurePosixPath, PurePosixPath], ...] = ()


@dataclass(frozen=True)
class Unit:
    """Pictures that stay together. A core shares content or group; near copies join cores."""

    cores: tuple[tuple[PurePosixPath, ...], ...]

    @property
    def pictures(self) -> tuple[PurePosixPath, ...]:
        """All pictures of the unit."""
        return tuple(picture for core in self.cores for picture in core)


def join_units(
    pictures: Iterable[PurePosixPath], labels: Mapping[PurePosixPath, PictureLabels], ties: Ties
) -> list[Unit]:
    """The units of `pictures`, each picture in one of them. Pairs that name other pictures are of no account."""
    ordered = sorted(pictures, key=lambda picture: (labels[picture].content, picture))
    cores = _joined(ordered, [*_equal(ordered, lambda one: labels[one].content), *_equal(ordered, ties.groups.get)])
    core_of = {picture: number for number, core in enumerate(cores) for picture in core}
    near = [(core_of[one], core_of[other]) for one, other in ties.near if one in core_of and other in core_of]
    joined = _joined(list(range(len(cores))), near)
    return [Unit(tuple(tuple(cores[number]) for number in numbers)) for numbers in joined]


def _equal(
    pictures: Sequence[PurePosixPath], key: Callable[[PurePosixPath], str | None]
) -> list[tuple[PurePosixPath, PurePosixPath]]:
    """Each picture with the first one that has the same key."""
    first: dict[str, PurePosixPath] = {}
    return [(first.setdefault(name, picture), picture) for picture in pictures if (name := key(picture)) is not None]


def _joined(members: Sequence[Key], pairs: Iterable[tuple[Key, Key]]) -> list[list[Key]]:
    """The sets that `pairs` make of `members`, in the order of their first members."""
    head = {member: member for member in members}

    def find(member: Key) -> Key:
        while head[member] != member:
            head[member] = member = head[head[member]]
        return member

    for one, other in pairs:
        head[find(other)] = find(one)
    sets: dict[Key, list[Key]] = {}
    for member in members:
        sets.setdefault(find(member), []).append(member)
    return list(sets.values())


def count_boxes(pictures: Iterable[PurePosixPath], labels: Mapping[PurePosixPath, PictureLabels]) -> UnitCounts:
    """What pictures bring to a part; one without boxes counts as one that shows the background."""
    boxes: Counter[int] = Counter()
    showing: Counter[int] = Counter()
    number = 0
    for picture in pictures:
        class_ids = labels[picture].class_ids
        boxes.update(class_ids)
        showing.update(set(class_ids) or (BACKGROUND,))
        number += 1
    return UnitCounts(number, boxes, showing)
