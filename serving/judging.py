"""Whether an engine may serve a bundle: by what is kept, else by a trial on the probe set."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from time import monotonic

from data_contracts.bundle import MODEL_FILE
from data_contracts.errors import EngineError, PasslineError
from data_contracts.release import now
from data_contracts.tuning import EngineChoice, EngineVerdict
from serving.bundle import Bundle
from serving.engine_choice import kind_of, needs_no_judgement
from serving.probe_files import ProbeFolder
from serving.store import ReleaseStore
from serving.trial import TrialTimeout
from serving.trials import BUILDS_WITHIN_S, Trials, opens_within_s
from serving.tuning_cache import TuningCache

LEAST_S = 2.0
"""With less time left, a trial process would not even have its engine loaded."""

_log = logging.getLogger("passline.tuning")


def probe_set_of(store: ReleaseStore, bundle: Bundle) -> tuple[ProbeFolder | None, str]:
    """The bundle's probe set as it lies on this host, or None and the reason."""
    wanted = bundle.manifest.probe_set
    if wanted is None:
        return None, "the bundle names no probe set"
    try:
        folder = store.probe_set(wanted)
    except PasslineError as error:
        _log.error("bundle %s: probe set %s: %s", bundle.digest[:12], wanted[:12], error)
        state = "broken" if (store.probes / wanted).exists() else "not there"
        words = f"the bundle's probe set {wanted[:12]} is {state} on this host; redeploy the release to fetch it"
        return None, words
    if folder.probe.model != bundle.manifest.files[MODEL_FILE].sha256:
        return None, "the bundle's probe set was recorded with another model"
    return folder, ""


@dataclass
class Judges:
    """Judges the engines of one bundle.

    Where something is served meanwhile, all judgements together have the probe budget: trials then only get what the
    CPUs have to spare, and whoever activates a release waits for it.
    """

    bundle: Bundle
    probe: ProbeFolder
    trials: Trials
    cache: TuningCache
    started: float = field(default_factory=monotonic)

    def verdict(self, engine: EngineChoice) -> EngineVerdict:
        """What holds about an engine, found out where nothing is known."""
        kind = kind_of(engine)
        kept = self.cache.verdict(self.bundle, kind, beside=self.trials.idle)
        if kept is not None:
            return kept
        if needs_no_judgement(kind):
            return EngineVerdict(outcome="passed", words="", judged_at=now())
        found = self._tried(engine)
        self.cache.keep_verdict(self.bundle, kind, found)
        return found

    def _tried(self, engine: EngineChoice) -> EngineVerdict:
        limit_s = self._limit_s(engine)
        try:
            if limit_s < LEAST_S:
                raise TrialTimeout("other engines took the time")
            report = self.trials.judged(self.bundle, self.probe, engine, limit_s)
        except EngineError as error:
            if isinstance(error, TrialTimeout) and self.trials.idle:
                words = f"not judged beside live traffic: {error}"
                return EngineVerdict(outcome="deferred", words=words, judged_at=now())
            return EngineVerdict(outcome="failed", words=str(error), judged_at=now())
        return EngineVerdict(outcome="passed" if report.passed else "refused", words=report.words, judged_at=now())

    def _limit_s(self, engine: EngineChoice) -> float:
        budget_s, kind = self.trials.settings.probe_budget_s, kind_of(engine)
        if not self.trials.idle:
            return opens_within_s(kind) + budget_s
        left_s = budget_s - (monotonic() - self.started)
        return left_s + BUILDS_WITHIN_S if kind[0] == "tensorrt" else left_s
