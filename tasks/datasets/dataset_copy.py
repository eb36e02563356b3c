"""A user's folder, copied into the one layout that dataset repositories hold: images/<split>/.., labels/<split>/.."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import yaml

from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import DatasetError, Problem, raise_if_any
from tasks.datasets.dataset_layout import SPLIT_KEYS, DatasetLayout

if TYPE_CHECKING:
    from tasks.splits import SplitConfig

logger = logging.getLogger(__name__)


def copy_dataset(
    layout: DatasetLayout,
    target: Path,
    extras: tuple[str, ...] = (),
    *,
    previous: Path | None = None,
    splits: SplitConfig | None = None,
) -> None:
    """Write pictures, their labels, data.yaml and `extras` (files of the folder, kept at their path) to `target`.

    With `splits`, also splits.csv: what `previous`, the data folder of the newest revision, recorded, and what is drawn
    for new pictures. A picture that is listed as a background gets an empty label file. The source is only read.
    Raises DatasetError for pictures that would get the same name, missing extras, and a wrong splits.csv or groups.csv.
    """
    from tasks.datasets.dataset_record import (
        copy_record,  # It brings pandas along, which listing datasets can do without.
    )

    places = place_pictures(layout)
    problems = [
        Problem(f"extra file {name}", "a file in the dataset folder", "nothing", "Correct the name.")
        for name in extras
        if not (layout.root / name).is_file()
    ]
    if not places:
        action = "Check the split folders in data.yaml and the kinds of the files."
        problems.append(Problem(str(layout.root), "pictures in the split folders", "no picture", action))
    raise_if_any(DatasetError, problems)
    for source, places_of_source in places.items():
        for place in places_of_source:
            _copy(layout.root / source, target / place)
            if (label := layout.root / label_path_of(source)).is_file():
                _copy(label, target / label_path_of(place))
            elif source in layout.backgrounds:
                (target / label_path_of(place)).parent.mkdir(parents=True, exist_ok=True)
                (target / label_path_of(place)).touch(exist_ok=False)
    for name in extras:
        _copy(layout.root / name, target / name)
    (target / "data.yaml").write_text(dataset_yaml(layout), "utf-8")
    copy_record(layout, places, target, previous, splits)
    for note in layout.notes:
        logger.warning(note)
    if layout.others:
        names = ", ".join(map(str, layout.others[:10]))
        logger.warning("%d files are no pictures that we read and stay out: %s", len(layout.others), names)


def place_pictures(layout: DatasetLayout) -> dict[PurePosixPath, list[PurePosixPath]]:
    """Where each picture goes; a picture that two splits name goes to both, which validation then reports."""
    places: dict[PurePosixPath, list[PurePosixPath]] = {}
    taken: dict[PurePosixPath, PurePosixPath] = {}
    problems = []
    for split, pictures in layout.splits.items():
        for picture in pictures:
            place = _place_of(picture, split)
            if place in taken:
                got = f"{taken[place]} and {picture}, both {place}"
                problems.append(Problem(str(layout.root), "distinct picture names", got, "Rename one of them."))
            taken[place] = picture
            places.setdefault(picture, []).append(place)
    raise_if_any(DatasetError, problems)
    return places


def _place_of(picture: PurePosixPath, split: Split) -> PurePosixPath:
    """images/<split>/.. for a picture of any accepted layout; deeper folders stay.

    >>> str(_place_of(PurePosixPath("valid/images/lot7/a.png"), Split.VAL))
    'images/val/lot7/a.png'
    """
    folders = list(picture.parts[:-1])
    if "images" in folders:
        del folders[len(folders) - 1 - folders[::-1].index("images")]
    own = next((folder for folder in folders if folder in SPLIT_KEYS[split]), None)
    if own is not None:
        folders.remove(own)
    return PurePosixPath("images", split, *folders, picture.name)


def dataset_yaml(layout: DatasetLayout) -> str:
    """data.yaml of the normal layout: class names by id and relative split folders."""
    fields: dict[str, object] = {split.value: f"images/{split}" for split in Split if layout.splits.get(split)}
    fields["names"] = dict(enumerate(layout.class_names))
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise DatasetError(Problem(str(source), "a place of its own", f"{target} twice", "Rename one of the files."))
    shutil.copyfile(source, target)  # Contents only: the source may be read-only.
