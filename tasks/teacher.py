"""The teacher of a distillation: trained weights whose inner answers a smaller model learns beside the labels.

Ultralytics compares what feeds the two detection heads, weighted by the best score that the teacher gives to a place.
It never looks at class names, and a teacher of other classes would point the student at the wrong places without a
word: so names are compared here. The finished student holds nothing of its teacher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from data_contracts.errors import JobError, Problem, raise_if_any
from serving.bundle import hash_file
from tasks import yolo
from tasks.model_files import find_model

FIELD = "train.teacher"
TAG = "passline.teacher.sha256"


@dataclass(frozen=True)
class Teacher:
    """Trained weights on this machine."""

    weights: Path
    sha256: str


def check_teacher(teacher: str | None, weights_home: Path, *, allow_download: bool) -> Iterator[Problem]:
    """The teacher is a weights file that is here, or may be fetched; imports nothing heavy."""
    if teacher is None:
        return
    may_fetch = allow_download and Path(teacher).suffix == ".pt"
    is_here = Path(teacher).suffix == ".pt" and find_model(teacher, weights_home) is not None
    if not (is_here or may_fetch):
        got = "no such file" if Path(teacher).suffix == ".pt" else "another kind of file"
        action = f"Give the path of trained weights, put them into {weights_home}, or set train.allow_download."
        yield Problem(f"{FIELD} {teacher!r}", "a weights file (.pt)", got, action)


def find_teacher(teacher: str | None, data_yaml: Path, weights_home: Path, *, allow_download: bool) -> Teacher | None:
    """The teacher of a job, fetched where that is allowed, None where it has none.

    Ultralytics must be configured. Raises JobError when it is missing or knows other classes than the dataset.
    """
    if teacher is None:
        return None
    raise_if_any(JobError, check_teacher(teacher, weights_home, allow_download=allow_download))
    try:
        weights = yolo.resolve_model(teacher, weights_home, allow_download=allow_download)
    except JobError as error:
        raise JobError(*(_about_teacher(problem, teacher) for problem in error.problems)) from error
    names = yaml.safe_load(data_yaml.read_text("utf-8"))["names"]
    raise_if_any(JobError, check_classes(yolo.weights_class_names(weights), list(names.values()), teacher))
    return Teacher(weights, hash_file(weights).sha256)


def _about_teacher(problem: Problem | str, teacher: str) -> Problem | str:
    return replace(problem, subject=f"{FIELD} {teacher!r}") if isinstance(problem, Problem) else problem


def check_classes(known: Sequence[str], wanted: Sequence[str], teacher: str) -> Iterator[Problem]:
    """Teacher and dataset have the same class names; their order does not matter to a distillation."""
    lacks, more = sorted(set(wanted) - set(known)), sorted(set(known) - set(wanted))
    if lacks or more:
        got = f"lacks {', '.join(lacks) or 'none'}, has {_shortened(more) or 'none'} more"
        action = "Train the teacher on this dataset first, or leave train.teacher empty."
        yield Problem(f"classes of {FIELD} {teacher!r}", f"those of the dataset ({', '.join(wanted)})", got, action)


def _shortened(names: Sequence[str], most: int = 5) -> str:
    """The first names and how many follow: published weights know 80 classes.

    >>> _shortened(["a", "b", "c"], most=2)
    'a, b and 1 others'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} others" if rest > 0 else "")


def distill_arguments(teacher: Teacher | None) -> dict[str, object]:
    """What `yolo train` is told about the teacher; a resumed training reads it from its checkpoint."""
    return {} if teacher is None else {"distill_model": str(teacher.weights)}


def teacher_tags(teacher: Teacher | None) -> dict[str, str]:
    """The teacher as tags of the MLflow run."""
    return {} if teacher is None else {TAG: teacher.sha256}
