"""The errors of Passline.

    PasslineError                     everything we raise on purpose
    ├── InvalidInput                  a person or a client sent something wrong; they can mend it
    │   ├── DatasetError              a dataset, its labels or its revision
    │   ├── JobError                  a job file, a form or a parameter block
    │   └── ImageError                a picture
    │       ├── EmptyImage            no bytes at all
    │       ├── UnsupportedImage      not a picture, or a kind that we do not read
    │       ├── UndecodableImage      a known kind, but damaged
    │       ├── ImageTooLarge         over the byte or pixel limit
    │       └── ImageTooSmall         too few pixels to show anything
    ├── BundleError                   a bundle is incomplete, altered or contradicts itself
    ├── ReleaseError                  a wish for the release state that cannot be granted
    ├── NotReady                      nothing here can answer correctly yet
    ├── Overloaded                    the request cannot be answered in time; try again later
    ├── EngineError                   an engine failed or answered something impossible
    └── OutsideSystemError            a system that we depend on refused, failed or was not there
        ├── RegistryError             MLflow
        ├── DatasetRepoError          DVC, git or the data remote
        └── ServiceManagerError       the process manager of the inference host

The service adds how a request body may be wrong (`serving.bodies`, `serving.multipart`, `serving.frames`,
`serving.problems`), the trainer how a training may fail (`tasks.yolo.TrainingError`, an OutsideSystemError).

An error carries `problems`: all that was found wrong, collected before it is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, in the words that a person needs to mend it."""

    subject: str
    expected: str
    got: str
    action: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, got {self.got}. {self.action}"


class PasslineError(Exception):
    """Base of all errors raised on purpose."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems: tuple[Problem | str, ...] = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class InvalidInput(PasslineError):
    """Something given from outside is wrong and whoever gave it can mend it."""


class DatasetError(InvalidInput):
    """A dataset, its labels or its revision."""


class JobError(InvalidInput):
    """A job file, a form or a parameter block."""


class ImageError(InvalidInput):
    """A picture."""


class EmptyImage(ImageError):
    """No bytes at all."""


class UnsupportedImage(ImageError):
    """Not a picture, or a kind that we do not read."""


class UndecodableImage(ImageError):
    """A known kind of picture, but damaged."""


class ImageTooLarge(ImageError):
    """Over the byte or pixel limit."""


class ImageTooSmall(ImageError):
    """Too few pixels to show anything."""


class BundleError(PasslineError):
    """A bundle is incomplete, altered or contradicts itself."""


class ReleaseError(PasslineError):
    """A wish for the release state that cannot be granted."""


class NotReady(PasslineError):
    """Nothing here can answer correctly yet."""


class Overloaded(PasslineError):
    """The request cannot be answered in time."""

    def __init__(self, *problems: Problem | str, retry_after_s: float = 1.0) -> None:
        super().__init__(*problems)
        self.retry_after_s = retry_after_s


class EngineError(PasslineError):
    """An engine failed or answered something impossible."""


class OutsideSystemError(PasslineError):
    """A system that we depend on refused, failed or was not there."""


class RegistryError(OutsideSystemError):
    """MLflow."""


class DatasetRepoError(OutsideSystemError):
    """DVC, git or the data remote."""


class ServiceManagerError(OutsideSystemError):
    """The process manager of the inference host."""


def raise_if_any(error: type[PasslineError], problems: Iterable[Problem | str]) -> None:
    """Raise `error` with all `problems` at once; do nothing when there are none."""
    found = tuple(problems)
    if found:
        raise error(*found)
