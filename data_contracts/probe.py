"""The probe set: pictures with expected answers, by which a host judges an engine before it may serve.

    <digest>/
      probe.json      what FP32 ONNX Runtime found in each picture; its canonical JSON's SHA-256 is the digest
      pictures/       picture files, byte for byte as in the dataset

It is an artifact of its own beside the bundle that names it: a host that only uses FP32 ONNX Runtime needs none.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from data_contracts.base import Contract, Fraction, Sha256, canonical_json, sha256_of
from data_contracts.bundle import FileEntry, GoldenPicture

PROBE_FILE = "probe.json"
PROBE_PICTURES_DIR = "pictures"
PROBES_DIR = "probes"
"""Folder of probe sets, beside the folder of bundles, wherever bundles lie: sealed, in a channel, in a store."""
MAX_PROBE_PICTURES = 200


class ProbePicture(GoldenPicture):
    """One picture file and what FP32 ONNX Runtime found in it."""

    entry: FileEntry


class ProbeSet(Contract):
    """probe.json. The recorded boxes are those over `score_floor`."""

    schema_version: Literal[1]
    model: Sha256 = Field(description="SHA-256 of the model file that gave the answers.")
    score_floor: Fraction
    pictures: tuple[ProbePicture, ...] = Field(min_length=1, max_length=MAX_PROBE_PICTURES)

    @model_validator(mode="after")
    def _files_are_distinct(self) -> Self:
        if len({picture.file for picture in self.pictures}) != len(self.pictures):
            raise ValueError("pictures: a file stands twice")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of this set."""
        return sha256_of(canonical_json(self.model_dump(mode="json")))
