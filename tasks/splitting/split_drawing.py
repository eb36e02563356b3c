"""Drawing that keeps what was drawn before: recorded pictures stay, new relatives join them, the rest is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from data_contracts.dataset import Split
from data_contracts.errors import DatasetError, Problem
from tasks.splitting.split_record import SplitRecord
from tasks.splitting.split_units import PictureLabels, Ties, Unit, count_boxes, join_units
from tasks.splitting.stratify import stratify

Parts = dict[Split, list[PurePosixPath]]


class TooFewPictures(DatasetError):
    """A split would stay empty, whatever is drawn."""


@dataclass(frozen=True)
class Pool:
    """The pictures to share out, and those of the fixed test part, which only their relatives matter for."""

    pictures: tuple[PurePosixPath, ...]
    fixed: tuple[PurePosixPath, ...]
    labels: Mapping[PurePosixPath, PictureLabels]
    ties: Ties


@dataclass(frozen=True)
class Drawn:
    """Pictures of the pool per split, those of them that are new, and what to say about them."""

    parts: Parts
    new: Parts
    notes: tuple[str, ...]


def draw(pool: Pool, record: SplitRecord, shares: Mapping[Split, float], seed: int) -> Drawn:
    """A split of `shares` for every picture of the pool that `record` does not know; recorded ones keep theirs.

    Raises TooFewPictures when a split would stay empty.
    """
    drawing = _Drawing(pool, record)
    units = join_units(dict.fromkeys([*pool.pictures, *pool.fixed]), pool.labels, pool.ties)
    free = sorted((unit for unit in units if drawing.leaves_free(unit)), key=lambda unit: _rank(unit, pool, seed))
    chosen = _share_out(free, drawing.parts(), pool.labels, shares)
    _fill_empty(chosen, drawing.parts(), shares, len(units))
    drawing.given |= {picture: split for unit, split in chosen.items() for picture in unit.pictures}
    return Drawn(drawing.parts(), _parts_of(drawing.given), tuple(drawing.notes()))


class _Drawing:
    """Which pictures have a split, and where relatives could not be kept together."""

    def __init__(self, pool: Pool, record: SplitRecord) -> None:
        self._record, self._groups, self._fixed = record, pool.ties.groups, set(pool.fixed)
        found = ((picture, record.split_of(picture, pool.labels[picture].content)) for picture in pool.pictures)
        self.known = {picture: split for picture, split in found if split is not None and picture not in self._fixed}
        self.given: dict[PurePosixPath, Split] = {}
        self._bridging: list[PurePosixPath] = []
        self._parted: list[PurePosixPath] = []
        self._touching: list[PurePosixPath] = []

    def parts(self) -> Parts:
        """The pictures of every split so far."""
        return _parts_of(self.known | self.given)

    def leaves_free(self, unit: Unit) -> bool:
        """Whether a unit is to be drawn. Otherwise its new pictures are given the split of their relatives."""
        new = [picture for picture in unit.pictures if picture not in self.known and picture not in self._fixed]
        splits = {self.known[picture] for picture in unit.pictures if picture in self.known}
        if not self._fixed.isdisjoint(unit.pictures):
            self._touching += [picture for picture in unit.pictures if picture not in self._fixed]
            splits = splits or {Split.TRAIN}
        if len(splits) > 1:
            self._give_by_core(unit, new, splits)
            return False
        splits = splits or {split for one in new for split in self._record.splits_of_group(self._groups.get(one, ""))}
        if splits:
            self.given |= dict.fromkeys(new, _first(splits))
        return bool(new) and not splits

    def _give_by_core(self, unit: Unit, new: list[PurePosixPath], splits: set[Split]) -> None:
        self._parted.append(min(picture for picture in unit.pictures if picture in self.known))
        self._bridging += new
        for core in unit.cores:
            own = {self.known[picture] for picture in core if picture in self.known}
            self.given |= dict.fromkeys((picture for picture in core if picture in new), _first(own or splits))

    def notes(self) -> Iterator[str]:
        """Sentences on relatives that lie in several splits."""
        if self._bridging:
            yield (
                f"{len(self._bridging)} new pictures belong to pictures of several splits, such as "
                f"{min(self._bridging)}: what was recorded stays; each went where its own group is, or else to the "
                "first of train, val and test that it belongs to."
            )
        if self._parted:
            yield (
                f"{len(self._parted)} sets of groups, copies or near copies lie in several splits, as recorded, such "
                f"as that of {min(self._parted)}. Results on them flatter the model."
            )
        if self._touching:
            yield (
                f"{len(self._touching)} pictures of train belong by group, copy or near copy to pictures of the fixed "
                f"test split, such as {min(self._touching)}: they are not drawn. Results on those flatter the model."
            )


def _first(splits: Iterable[Split]) -> Split:
    """Train before val before test: what cannot be kept apart shall not enter a part that judges."""
    return min(splits, key=list(Split).index)


def _rank(unit: Unit, pool: Pool, seed: int) -> str:
    """Order of drawing: by the seed and the content, so that neither names nor neighbours matter."""
    return hashlib.sha256(f"{seed} {pool.labels[unit.pictures[0]].content}".encode()).hexdigest()


def _share_out(
    units: Sequence[Unit], held: Parts, labels: Mapping[PurePosixPath, PictureLabels], shares: Mapping[Split, float]
) -> dict[Unit, Split]:
    counts = [count_boxes(unit.pictures, labels) for unit in units]
    parts = stratify(counts, [count_boxes(held[split], labels) for split in shares], list(shares.values()))
    splits = list(shares)
    return {unit: splits[part] for unit, part in zip(units, parts, strict=True)}


def _fill_empty(chosen: dict[Unit, Split], held: Parts, shares: Mapping[Split, float], units: int) -> None:
    """With very few units a small share can come out empty: it then gets the smallest unit of the largest part."""
    for split in shares:
        counts = {part: len(held[part]) for part in shares}
        for unit, part in chosen.items():
            counts[part] += len(unit.pictures)
        if counts[split]:
            continue
        spare = [unit for unit, part in chosen.items() if counts[part] > len(unit.pictures)]
        if not spare:
            expected = f"more than {len(shares) - 1} groups of pictures to draw from"
            got = f"{units} in all, none left for {split}"
            action = "Add pictures, name val and test in data.yaml, or correct the groups or splits.csv."
            raise TooFewPictures(Problem("split train", expected, got, action))
        chosen[max(spare, key=lambda unit: (counts[chosen[unit]], -len(unit.pictures)))] = split


def _parts_of(given: Mapping[PurePosixPath, Split]) -> Parts:
    parts: Parts = {split: [] for split in Split}
    for picture, split in given.items():
        parts[split].append(picture)
    return parts
