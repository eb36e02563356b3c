"""The tuner: which engine, precision, threads and streams serve a bundle on this host.

FP32 ONNX Runtime is the reference and needs no leave. Any other engine or precision must pass the probe set, in a
process of its own, before it may serve; of those that do, the fastest is taken. What is found out is kept: speeds for
all models of a structure, verdicts for each bundle.

Speeds are only measured while nothing is served. A new bundle that is loaded beside live traffic is judged with what
the CPUs have to spare; what would have to be measured for it waits for the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from data_contracts.bundle import INT8_MODEL_FILE
from data_contracts.release import now
from data_contracts.tuning import EngineChoice, EngineVerdict, SpeedTable, TunedCandidate, Tuning
from serving.bundle import Bundle
from serving.engine_choice import (
    REFERENCE,
    Kind,
    best_first,
    by_rule,
    is_wanted,
    kind_of,
    layouts,
    needs_no_judgement,
    only_reference,
    wish_words,
)
from serving.engines import PRECISIONS, Provider
from serving.judging import Judges, probe_set_of
from serving.latency import LatencyTable
from serving.probe_files import ProbeFolder
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.trial import Try, run_trial
from serving.trials import Trials
from serving.tuning_cache import TuningCache, is_recent

NOT_MEASURED = "speeds of models of this structure are unknown here and not measured beside live traffic"
Layouts = tuple[tuple[int, int], ...]
_log = logging.getLogger("passline.tuning")


@dataclass(frozen=True)
class Tuner:
    """Decides for one host. `cpus` are those of one worker; `beside`: a release is being served meanwhile."""

    store: ReleaseStore
    settings: HostSettings
    cpus: int
    try_engine: Try = run_trial
    beside: bool = False

    def choose(self, bundle: Bundle) -> Tuning:
        """The engine for `bundle`. One that is not as wished has `degraded` set; whether it may serve is not said."""
        if only_reference(self.settings, int8=INT8_MODEL_FILE in bundle.manifest.files):
            return self._by_rule(REFERENCE, "by rule: only the layout is free")
        probe, why_none = probe_set_of(self.store, bundle)
        if probe is None:
            return self._unjudged(bundle, f"no other engine can be judged: {why_none}")
        with self.store.lock("tuning", wait=True):  # another worker of this host may be at it: then read its result
            tuning = self._found_out(bundle, probe)
        _log.info("bundle %s: %r, %s %s", bundle.digest[:12], tuning.chosen, tuning.how, tuning.deferred)
        return tuning

    def reference(self, why: str, rows: Sequence[TunedCandidate] = ()) -> Tuning:
        """FP32 ONNX Runtime in the place of an engine that could not be had, `why` being the reason."""
        wanted = wish_words(self.settings)
        words = f"wanted {wanted}, running on cpu fp32" if wanted else "running on cpu fp32"
        return self._by_rule(REFERENCE, "FP32 ONNX Runtime as a fallback", f"{words}: {why}", rows)

    def failed(self, bundle: Bundle, tuning: Tuning, why: str) -> None:
        """Remember that the chosen engine did not hold what it promised: others are taken for a while."""
        verdict = EngineVerdict(outcome="failed", words=f"it failed in service: {why}", judged_at=now())
        self._cache.keep_verdict(bundle, kind_of(tuning.chosen), verdict)

    def latency(self, bundle: Bundle, engine: EngineChoice, measure: Callable[[], LatencyTable]) -> LatencyTable:
        """How long its calls take: measured now, or, beside live traffic, as it was measured without."""
        if self.beside and (kept := self._cache.latency(bundle, engine)) is not None:
            return kept
        table = measure()
        if not self.beside:
            self._cache.keep_latency(bundle, engine, table)
        return table

    # What could be used

    @property
    def _trials(self) -> Trials:
        return Trials(self.store, self.settings, self.try_engine, idle=self.beside)

    @cached_property
    def _cache(self) -> TuningCache:
        return TuningCache(self.store, self.settings, self.cpus)

    @property
    def _providers(self) -> tuple[Provider, ...]:
        wished = self.settings.provider
        return tuple(PRECISIONS) if wished == "auto" else (wished,)

    def _list(self, bundle: Bundle, providers: Sequence[Provider]) -> tuple[tuple[Kind, ...], list[TunedCandidate]]:
        """Engines that the settings allow, the reference first: those that can be had here, and those that cannot."""
        listed = self._trials.listed(bundle, providers)
        wanted = [one for one in listed if is_wanted((one.provider, one.precision), self.settings)]
        usable = self._in_order([(one.provider, one.precision) for one in wanted if not one.reason])
        absent = [self._row((one.provider, one.precision), one.reason) for one in wanted if one.reason]
        return usable, absent

    def _in_order(self, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
        """The reference first, then other FP32; without the tuner only the first counts."""
        ordered = sorted(kinds, key=lambda kind: (kind != REFERENCE, kind[1] != "fp32"))
        return tuple(ordered if self.settings.tune else ordered[:1])

    # By rule

    def _unjudged(self, bundle: Bundle, why: str) -> Tuning:
        """What needs no judgement, the accelerated first."""
        wished = self.settings.provider
        usable, absent = self._list(bundle, ("cpu", "cuda") if wished == "auto" else (wished,))
        free = [kind for kind in usable if needs_no_judgement(kind)]
        if free:
            return self._by_rule(free[-1], f"by rule: {why}")
        return self.reference(_reasons(absent) if absent and not usable else why, absent)

    def _by_rule(self, kind: Kind, how: str, degraded: str = "", rows: Sequence[TunedCandidate] = ()) -> Tuning:
        chosen = by_rule(kind, self.cpus, self.settings)
        return Tuning(chosen=chosen, policy=self.settings.tune_for, how=how, degraded=degraded, candidates=tuple(rows))

    def _row(self, kind: Kind, refused: str = "") -> TunedCandidate:
        return TunedCandidate(engine=by_rule(kind, self.cpus, self.settings), refused=refused)

    # By speeds and verdicts

    def _found_out(self, bundle: Bundle, probe: ProbeFolder) -> Tuning:
        judges = Judges(bundle, probe, self._trials, self._cache)
        kept = self._cache.speeds(bundle)
        if kept is None and self.beside:
            return self._unmeasured(bundle, judges)
        table = self._measured(bundle, kept)
        if not table.usable:
            return self.reference(_reasons(table.absent), table.absent)
        if {kind_of(row.engine) for row in table.usable} == {REFERENCE}:
            tuning = self._by_rule(REFERENCE, "by rule: this host has no other engine", rows=table.absent)
        else:
            how = "measured: the best that may serve" if len(table.usable) > 1 else "as the settings wish"
            tuning = self._best_that_passes(judges, table, how)
        return tuning.model_copy(update={"cached": table == kept})

    def _unmeasured(self, bundle: Bundle, judges: Judges) -> Tuning:
        """By rule until the next start: what needs no judgement, else the first wish that passes."""
        int8 = INT8_MODEL_FILE in bundle.manifest.files
        possible: list[Kind] = [(one, precision) for one in self._providers for precision in PRECISIONS[one]]
        wanted = [kind for kind in possible if is_wanted(kind, self.settings) and (int8 or kind[1] != "int8")]
        kinds = self._in_order(wanted)
        if any(map(needs_no_judgement, kinds)):
            return self._unjudged(bundle, NOT_MEASURED).model_copy(update={"deferred": NOT_MEASURED})
        table = SpeedTable(measured_at=now(), usable=tuple(map(self._row, kinds)), absent=())
        tuning = self._best_that_passes(judges, table, "by rule: the first wish that passes")
        return tuning.model_copy(update={"deferred": tuning.deferred or (NOT_MEASURED if self._ways(kinds) else "")})

    def _best_that_passes(self, judges: Judges, table: SpeedTable, how: str) -> Tuning:
        """Judge from the best on, take the first that passes."""
        judged: dict[Kind, EngineVerdict] = {}
        chosen = None
        for row in best_first(table.usable, self.settings.tune_for):
            kind = kind_of(row.engine)
            if kind not in judged:
                judged[kind] = judges.verdict(row.engine)
            if judged[kind].outcome == "passed":
                chosen = row.engine
                break
        rows = (*(_with_verdict(row, judged.get(kind_of(row.engine))) for row in table.usable), *table.absent)
        deferred = next((one.words for one in judged.values() if one.outcome == "deferred"), "")
        if chosen is not None:
            tuning = Tuning(chosen=chosen, policy=self.settings.tune_for, how=how, candidates=rows)
        elif any(kind_of(row.engine) == REFERENCE for row in table.usable):
            tuning = self._by_rule(REFERENCE, "by rule: nothing could be measured", rows=rows)
        else:
            tuning = self.reference(_reasons(rows), rows)
        return tuning.model_copy(update={"deferred": deferred})

    # Measuring

    def _measured(self, bundle: Bundle, kept: SpeedTable | None) -> SpeedTable:
        """The kept table, with what failed long ago measured again, or a new one. One without engines is not kept."""
        if kept is None:
            kinds, absent = self._list(bundle, self._providers)
            ways = self._ways(kinds)
            rows = self._measure(bundle, ways) if ways else [self._row(kind) for kind in kinds]
            table = SpeedTable(measured_at=now(), usable=tuple(rows), absent=tuple(absent))
        else:
            again = {kind_of(row.engine) for row in kept.usable if row.refused}
            if self.beside or not again or is_recent(kept):
                return kept
            rows = [row for row in kept.usable if not row.refused]
            rows += self._measure(bundle, {kind: layouts(kind, self.cpus, self.settings) for kind in again})
            table = kept.model_copy(update={"measured_at": now(), "usable": tuple(rows)})
        if table.usable:
            self._cache.keep_speeds(bundle, table)
        return table

    def _measure(self, bundle: Bundle, ways: dict[Kind, Layouts]) -> list[TunedCandidate]:
        """One row per engine and layout."""
        share_s = self.settings.tune_budget_s / sum(map(len, ways.values()))
        return [row for kind in ways for row in self._trials.measured(bundle, kind, ways[kind], share_s)]

    def _ways(self, kinds: tuple[Kind, ...]) -> dict[Kind, Layouts]:
        """The layouts of each engine that are to be compared; empty where there is nothing to compare."""
        ways = {kind: layouts(kind, self.cpus, self.settings) for kind in kinds}
        only_one = sum(map(len, ways.values())) <= 1 or kinds == (REFERENCE,)
        return {} if only_one or not self.settings.tune else ways


def _with_verdict(row: TunedCandidate, verdict: EngineVerdict | None) -> TunedCandidate:
    """The verdict counts for all layouts of an engine; one that was refused before keeps its own reason."""
    if verdict is None or row.refused:
        return row
    judgement = verdict.words if verdict.outcome in ("passed", "refused") else ""
    refused = "" if verdict.outcome == "passed" else verdict.words
    return row.model_copy(update={"judgement": judgement, "refused": refused})


def _reasons(rows: Sequence[TunedCandidate]) -> str:
    """Why none of these may serve, each reason once."""
    return "; ".join(dict.fromkeys(row.refused for row in rows if row.refused)) or "no engine offers that"
