"""What the tuner asks of trial processes, and for how long it waits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from data_contracts.errors import EngineError
from data_contracts.tuning import EngineChoice, TunedCandidate
from serving.bundle import Bundle
from serving.engine_choice import Kind, choice
from serving.engines import Provider, possible_engines
from serving.probe_files import ProbeFolder
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.trial import Listed, TrialReport, TrialRequest, Try

OPENS_WITHIN_S = 60.0
"""Start of a trial process, loading and compiling a model for all its layouts."""

BUILDS_WITHIN_S = 900.0
"""The same where an engine is built for the device, as TensorRT does."""

LIGHT: frozenset[Provider] = frozenset({"cpu", "cuda"})
"""Their part of the list loads no library that the service would not load anyway."""

_log = logging.getLogger("passline.tuning")


@dataclass(frozen=True)
class Trials:
    """Asks for one host. `idle`: something is being served meanwhile, so trials run at the lowest priority."""

    store: ReleaseStore
    settings: HostSettings
    try_engine: Try
    idle: bool

    def listed(self, bundle: Bundle, providers: Sequence[Provider]) -> tuple[Listed, ...]:
        """What these providers could run of the bundle; where they cannot be asked, that is their reason."""
        if LIGHT.issuperset(providers):
            found = possible_engines(bundle.path, providers)
            return tuple(Listed(provider=one.provider, precision=one.precision, reason=one.reason) for one in found)
        request = TrialRequest(what="list", bundle=bundle.path, providers=tuple(providers), idle=self.idle)
        try:
            return self.try_engine(request, OPENS_WITHIN_S).listed
        except EngineError as error:
            _log.error("engines of this host could not be listed: %s", error)
            fp32 = [(one, "" if one == "cpu" else str(error)) for one in providers]
            return tuple(Listed(provider=one, precision="fp32", reason=reason) for one, reason in fp32)

    def measured(
        self, bundle: Bundle, kind: Kind, ways: Iterable[tuple[int, int]], share_s: float
    ) -> list[TunedCandidate]:
        """One row for each (streams, threads), measured for `share_s`; all refused where the trial fails."""
        engines = tuple(choice(kind, streams, threads) for streams, threads in ways)
        _log.info("bundle %s: measuring %s %s", bundle.digest[:12], *kind)
        request = self._request("measure", bundle, engines).model_copy(update={"measure_s": share_s})
        try:
            report = self.try_engine(request, opens_within_s(kind) + 2 * share_s * len(engines))
        except EngineError as error:
            return [TunedCandidate(engine=engine, refused=str(error)) for engine in engines]
        return [
            TunedCandidate(engine=one.engine, pictures_per_s=one.pictures_per_s, call_ms=one.call_ms)
            for one in report.measured
        ]

    def judged(self, bundle: Bundle, probe: ProbeFolder, engine: EngineChoice, limit_s: float) -> TrialReport:
        """What the probe set and the golden pictures say. Raises EngineError, TrialTimeout after `limit_s`."""
        _log.info("bundle %s: judging %s %s", bundle.digest[:12], engine.provider, engine.precision)
        request = self._request("judge", bundle, (engine,)).model_copy(update={"probe_set": probe.path})
        return self.try_engine(request, limit_s)

    def _request(
        self, what: Literal["measure", "judge"], bundle: Bundle, engines: tuple[EngineChoice, ...]
    ) -> TrialRequest:
        return TrialRequest(
            what=what,
            bundle=bundle.path,
            engines=engines,
            policy=self.settings.tune_for,
            engine_cache=self.store.engines,
            max_batch=self.settings.max_batch,
            workspace_bytes=self.settings.trt_workspace_bytes,
            idle=self.idle,
        )


def opens_within_s(kind: Kind) -> float:
    """How long a trial process may take until its engine answers."""
    return BUILDS_WITHIN_S if kind[0] == "tensorrt" else OPENS_WITHIN_S
