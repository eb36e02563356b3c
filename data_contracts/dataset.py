"""Datasets: the reference, the pin, and the layout on disk.

A dataset is a folder in the Ultralytics YOLO layout inside a git + DVC repository:

    data.yaml                      split folders and class names
    images/<split>/<stem>.<ext>
    labels/<split>/<stem>.txt      one row per defect box: class id, centre x, centre y, width, height (0..1)
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Self

from pydantic import Field, model_validator

from data_contracts.base import Contract, Name

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


class Split(StrEnum):
    """Parts of a dataset."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class DatasetRef(Contract):
    """Which revision of which dataset."""

    repository: str = Field(min_length=1, description="Path or URL of the git + DVC repository of the dataset.")
    path: str = Field(default="data", min_length=1, description="The DVC-tracked folder in the repository.")
    revision: str = Field(default="HEAD", min_length=1, description="Git revision: branch, tag or commit.")


class DatasetPin(Contract):
    """A dataset reference resolved to exact content."""

    name: Name
    ref: DatasetRef
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    dvc_hash: str = Field(pattern=r"^[0-9a-f]{32}\.dir$", description="MD5 of the DVC directory listing.")
    file_count: int = Field(ge=1)
    size_bytes: int = Field(ge=0)


class ClassList(Contract):
    """Class names in id order."""

    names: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        if len(set(self.names)) != len(self.names) or not all(map(is_class_name, self.names)):
            raise ValueError("names: expected distinct, non-empty class names of one line, without spaces at the ends")
        return self


def is_class_name(text: str) -> bool:
    """Whether people can read the name and write it again: one line, no spaces at the ends.

    >>> is_class_name("pin hole"), is_class_name("pit "), is_class_name("a\\tb"), is_class_name("")
    (True, False, False, False)
    """
    return text.isprintable() and text == text.strip() != ""


def label_path_of(image_path: PurePosixPath) -> PurePosixPath:
    """Where the label file of a picture lies, both relative to the dataset folder.

    The last folder named `images` becomes `labels`, as in the trainer; without one the label lies beside the picture.

    >>> str(label_path_of(PurePosixPath("images/train/a.b.jpg")))
    'labels/train/a.b.txt'
    >>> str(label_path_of(PurePosixPath("train/images/a.jpg")))
    'train/labels/a.txt'
    """
    folders = list(image_path.parts[:-1])
    if "images" in folders:
        folders[len(folders) - 1 - folders[::-1].index("images")] = "labels"
    return PurePosixPath(*folders, image_path.stem + ".txt")
