"""Where the pictures of a source go in the project's layout, and the writing of it: all of it, or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from data_contracts.dataset import Split
from data_contracts.errors import DatasetError, Problem
from tasks.importers.native import Findings, NativePicture, Place
from tasks.importers.source import split_of, split_word

_PLAIN_FOLDERS = frozenset({"images", "jpegimages"})


def place_pictures(
    pictures: Iterable[NativePicture], findings: Findings
) -> dict[PurePosixPath, tuple[PurePosixPath, Split]]:
    """The path of each picture in the target, by its path in the source, with its split.

    The source's folders stay, but for those that say the split or `images`. Two pictures whose label files would be one
    get their kinds into their names.
    """
    placed = {picture.path: _place_of(picture) for picture in pictures}
    by_label = Counter(_label_key(path) for path, _ in placed.values())
    for source, (path, split) in placed.items():
        if by_label[_label_key(path)] > 1:
            renamed = path.with_name(f"{path.stem}_{path.suffix[1:]}{path.suffix}")
            placed[source] = (renamed, split)
            findings.add(
                Place(str(source)), "name_clash", "notice", expected="a name that is no other picture's without suffix",
                got=source.name, action=f"It was imported as {renamed}, so that each has its own label file.",
            )  # fmt: skip
    _check_distinct(placed)
    return placed


def _label_key(path: PurePosixPath) -> str:
    return str(path.with_suffix("")).casefold()


def _check_distinct(placed: dict[PurePosixPath, tuple[PurePosixPath, Split]]) -> None:
    by_target: dict[str, list[PurePosixPath]] = defaultdict(list)
    for source, (path, _) in placed.items():
        by_target[_label_key(path)].append(source)
    problems = [
        Problem("picture names", "distinct ones", " and ".join(map(str, sources)), "Rename one of them.")
        for sources in by_target.values()
        if len(sources) > 1
    ]
    if problems:
        raise DatasetError(*problems)


def _place_of(picture: NativePicture) -> tuple[PurePosixPath, Split]:
    split = picture.split or split_of(picture.path) or Split.TRAIN
    folders = [part for part in picture.path.parts[:-1] if not _is_plain(part)]
    return PurePosixPath("images", split, *folders, picture.path.name), split


def _is_plain(folder: str) -> bool:
    return folder.casefold() in _PLAIN_FOLDERS or split_word(folder) is not None


class DraftFolder:
    """A folder beside the target that becomes the target when everything is written."""

    def __init__(self, target: Path, source: Path) -> None:
        """Raises DatasetError for a target that is not empty, or that lies in the source."""
        self.target = target.absolute()
        if self.target.exists() and not (self.target.is_dir() and not any(self.target.iterdir())):
            action = "Name a folder that does not exist yet; nothing is overwritten."
            raise DatasetError(Problem(str(target), "a new or empty folder", "one with content", action))
        if self.target.resolve().is_relative_to(source.resolve()):
            action = "Name one outside; the source is only read."
            raise DatasetError(Problem(str(target), "a folder outside the source", "one inside", action))

    def __enter__(self) -> DraftFolder:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f".{self.target.name}-", dir=self.target.parent))
        self.path.chmod(0o755)
        return self

    def __exit__(self, *_failure: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, path: PurePosixPath, data: bytes) -> None:
        """Write one file of the draft."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def publish(self) -> None:
        """Make the draft the target."""
        self.path.replace(self.target)
