"""What the tuner found out, kept in `<store>/engines/`. Remove a file to have it found out again.

    speeds-<key>.json             how fast engines are with models of one structure
    latency-<key>.json            how long calls of one engine take by batch size, with models of one structure
    judged-<digest>-<key>.json    whether one engine answers as it must with one bundle

Speeds do not depend on the weights: a retrained model of the same structure is judged and not measured.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from data_contracts.base import Contract, canonical_json, sha256_of
from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from data_contracts.release import now
from data_contracts.tuning import EngineChoice, EngineVerdict, LatencyPoints, SpeedTable
from serving.atomic import read_capped, write_atomically
from serving.bundle import Bundle
from serving.engine_choice import Kind
from serving.host_facts import host_facts
from serving.latency import LatencyTable
from serving.onnx_structure import structure_digest
from serving.settings import HostSettings
from serving.store import ReleaseStore

TRY_AGAIN_AFTER = timedelta(hours=24)
"""An engine that crashed, hung or would not load gets another chance then: the cause may have been the hour's."""

KEEP_SPEEDS = 8
"""Tables of each kind that stay, the last used: one per structure and setting that comes back."""

DECIDING_SETTINGS = {"provider", "precision", "threads", "streams", "tune", "tune_for", "max_batch"}
Model = TypeVar("Model", bound=Contract)
_log = logging.getLogger("passline.tuning")


@dataclass(frozen=True)
class TuningCache:
    """Speeds and verdicts of this host, for workers with `cpus` CPUs and these settings."""

    store: ReleaseStore
    settings: HostSettings
    cpus: int

    def speeds(self, bundle: Bundle) -> SpeedTable | None:
        """The table for models of this structure; None where there is none, or where it is unreadable."""
        file = self._speeds_file(bundle)
        found = _read(file, SpeedTable)
        if found is not None:
            _tolerated(lambda: os.utime(file))  # in use: the last to be pruned
        return found

    def keep_speeds(self, bundle: Bundle, table: SpeedTable) -> None:
        """Keep a table, and drop those that were not used for the longest time."""
        _write(self._speeds_file(bundle), table)
        self._prune("speeds")

    def latency(self, bundle: Bundle, engine: EngineChoice) -> LatencyTable | None:
        """What was measured of this engine with models of this structure; None where there is nothing of use."""
        file = self._latency_file(bundle, engine)
        found = _read(file, LatencyPoints)
        if found is None:
            return None
        _tolerated(lambda: os.utime(file))
        try:
            return LatencyTable(found.points)
        except ValueError as error:
            _log.warning("%s is of no use: %s", file.name, error)
            return None

    def keep_latency(self, bundle: Bundle, engine: EngineChoice, table: LatencyTable) -> None:
        """Keep it, and drop those that were not used for the longest time."""
        _write(self._latency_file(bundle, engine), LatencyPoints(measured_at=now(), points=table.points))
        self._prune("latency")

    def _prune(self, kind: str) -> None:
        files = sorted(self.store.engines.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for file in files[KEEP_SPEEDS:]:
            file.unlink(missing_ok=True)

    def verdict(self, bundle: Bundle, kind: Kind, *, beside: bool) -> EngineVerdict | None:
        """What holds about an engine now; `beside`: something is being served meanwhile."""
        found = _read(self._verdict_file(bundle, kind), EngineVerdict)
        if found is None or found.outcome in ("passed", "refused"):
            return found
        holds = is_recent(found) and (beside or found.outcome == "failed")
        return found if holds else None

    def keep_verdict(self, bundle: Bundle, kind: Kind, verdict: EngineVerdict) -> None:
        """Keep a verdict, and drop those of bundles that are no longer in the store."""
        _write(self._verdict_file(bundle, kind), verdict)
        for file in self.store.engines.glob("judged-*.json"):
            digest = file.name.split("-")[1]
            if digest != bundle.digest and not (self.store.releases / digest).is_dir():
                file.unlink(missing_ok=True)

    def _speeds_file(self, bundle: Bundle) -> Path:
        key = {
            "structures": self._structures(bundle),
            "input_wh": bundle.manifest.model.input.wh,
            "settings": self.settings.model_dump(mode="json", include=DECIDING_SETTINGS),
            "host": self._host,
        }
        return self.store.engines / f"speeds-{_short(key)}.json"

    def _latency_file(self, bundle: Bundle, engine: EngineChoice) -> Path:
        key = {
            "structures": self._structures(bundle),
            "engine": engine.model_dump(mode="json"),
            "max_batch": self.settings.max_batch,
            "host": self._host,
        }
        return self.store.engines / f"latency-{_short(key)}.json"

    def _verdict_file(self, bundle: Bundle, kind: Kind) -> Path:
        key = {
            "probe_set": bundle.manifest.probe_set,
            "engine": kind,
            "max_batch": self.settings.max_batch,
            "host": self._host,
        }
        return self.store.engines / f"judged-{bundle.digest}-{_short(key)}.json"

    def _structures(self, bundle: Bundle) -> dict[str, str]:
        """Read once: it is the whole of each model file, and part of every key."""
        if bundle.digest not in self._known:
            self._known[bundle.digest] = _structures(bundle)
        return self._known[bundle.digest]

    @cached_property
    def _known(self) -> dict[str, dict[str, str]]:
        return {}

    @cached_property
    def _host(self) -> dict[str, object]:
        return {"cpus": self.cpus, **host_facts()}


def is_recent(found: EngineVerdict | SpeedTable) -> bool:
    """Whether a failure in it still counts. One from the future, by a clock that was set back, does not."""
    age = now() - (found.judged_at if isinstance(found, EngineVerdict) else found.measured_at)
    return timedelta(0) <= age < TRY_AGAIN_AFTER


def _structures(bundle: Bundle) -> dict[str, str]:
    """The structure of each model file; a file without one stands for itself."""
    found = {}
    for name in (MODEL_FILE, INT8_MODEL_FILE):
        if name in bundle.manifest.files:
            try:
                found[name] = structure_digest(bundle.path / name)
            except (OSError, ValueError):
                found[name] = bundle.manifest.files[name].sha256
    return found


def _read(file: Path, model: type[Model]) -> Model | None:
    try:
        return model.model_validate_json(read_capped(file))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        _log.warning("%s is unreadable and found out again: %s", file.name, error)
        return None


def _write(file: Path, content: Contract) -> None:
    """A full disk costs the next start a measurement, not this one its release."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.to_json())
    except OSError as error:
        _log.warning("%s could not be kept: %s", file.name, error)


def _tolerated(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError as error:
        _log.warning("%s", error)


def _short(key: object) -> str:
    return sha256_of(canonical_json(key))[:32]
