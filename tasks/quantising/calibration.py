"""The pictures that ranges are taken from: training pictures, prepared as the service prepares a request's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_contracts.bundle import CalibrationPicture, ModelSpec
from data_contracts.dataset import Split
from serving.bundle import hash_file
from serving.preprocess import to_tensor
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.kinds_of_pictures import choose_of_all_kinds
from tasks.pictures import read_picture
from tasks.quantising.int8_model import Tensor


@dataclass(frozen=True)
class Calibration:
    """Chosen files, and how the bundle names them: path in the working copy and SHA-256, in the same order."""

    files: tuple[Path, ...]
    pictures: tuple[CalibrationPicture, ...]


def choose_calibration(working_copy: Path, count: int) -> Calibration:
    """Up to `count` pictures of the training split, of all kinds; none whose bytes lie in another split too.

    What a model is judged by must not have shaped it, and a picture may have been put into two splits by hand.
    """
    kept_out = {
        hash_file(one.picture).sha256
        for split in (Split.VAL, Split.TEST)
        for one in read_ground_truth(working_copy, split)
    }
    chosen = _without(read_ground_truth(working_copy, Split.TRAIN), count, kept_out)
    return Calibration(
        tuple(chosen),
        tuple(
            CalibrationPicture(picture=file.relative_to(working_copy).as_posix(), sha256=sha256)
            for file, sha256 in chosen.items()
        ),
    )


def _without(truth: Sequence[GroundTruth], count: int, kept_out: Collection[str]) -> dict[Path, str]:
    """SHA-256 by chosen file. Chosen again without those kept out, so that the number stays what was wished for."""
    left = list(truth)
    while True:
        chosen = {one.picture: hash_file(one.picture).sha256 for one in choose_of_all_kinds(left, count)}
        shared = {file for file, sha256 in chosen.items() if sha256 in kept_out}
        if not shared:
            return chosen
        left = [one for one in left if one.picture not in shared]


def calibration_tensors(files: Sequence[Path], spec: ModelSpec) -> Iterator[Tensor]:
    """One tensor (1, 3, input height, input width) per file, as `serving.detector` makes it; one in memory."""
    for file in files:
        tensor, _ = to_tensor(read_picture(file), spec)
        yield tensor[None]
