"""Decide whether a candidate may be registered, and whether it may replace today's champion. `decide` is pure.

A refusal is a result, not an error. To be registered a candidate must reach the floors and be no worse than the
champion; to replace it, better, or no worse where the job says why that is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from prefect import task
from pydantic import Field, model_validator

from data_contracts.base import Contract
from tasks.evaluation.comparison import PairedComparison
from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.gating.champion_checks import champion_checks, promotion_check
from tasks.gating.cost_checks import int8_checks, speed_checks
from tasks.gating.gate_checks import GateCheck, floor_checks, parity_check
from tasks.gating.gate_policy import GatePolicy, PromotionRule
from tasks.gating.remembered import EarlierChampion, memory_checks
from tasks.gating.speed_result import SpeedResult
from tasks.parity import ParityResult
from tasks.run_log import current_logger

GATES_FILE = "gates.json"


class Evidence(Contract):
    """All that a decision rests on. `champion` is today's, measured on the same pictures; null when there is none."""

    candidate: EvaluationResult
    parity: ParityResult
    champion: EvaluationResult | None = None
    comparison: PairedComparison | None = Field(default=None, description="Asked for when there is a champion.")
    int8: EvaluationResult | None = Field(default=None, description="Of the same bundle; null when it has no INT8.")
    speed: SpeedResult | None = Field(default=None, description="Asked for when there is a champion.")
    earlier: tuple[EarlierChampion, ...] = Field(default=(), description="What earlier champions found.")


class GateReport(Contract):
    """All checks of one candidate. `accepted`: may be registered; `promotable`: may replace the champion, too."""

    digest: str
    champion: str | None = Field(description="Digest that it was compared with.")
    accepted: bool
    promotable: bool
    checks: tuple[GateCheck, ...]
    rule: PromotionRule = Field(description="What `promotion` asked for.")
    promotion: GateCheck
    comparison: PairedComparison | None = None

    @model_validator(mode="after")
    def _follows_from_its_checks(self) -> Self:
        accepted = bool(self.checks) and all(check.holds for check in self.checks)
        if (self.accepted, self.promotable) != (accepted, accepted and self.promotion.holds):
            raise ValueError("accepted and promotable: expected what the checks say")
        return self

    @property
    def refusals(self) -> tuple[GateCheck, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.holds)


def all_checks(evidence: Evidence, policy: GatePolicy) -> Iterable[GateCheck]:
    """Every check that admission asks for."""
    candidate, champion = evidence.candidate, evidence.champion
    yield from floor_checks(candidate, policy)
    yield parity_check(evidence.parity)
    if champion is not None:
        yield from champion_checks(candidate, champion, evidence.comparison, policy)
        yield from speed_checks(evidence.speed, candidate.digest, champion.digest, policy)
    yield from memory_checks(evidence.earlier, policy)
    if evidence.int8 is not None:
        yield from int8_checks(candidate, evidence.int8, policy)


def decide(evidence: Evidence, policy: GatePolicy) -> GateReport:
    """All checks at once."""
    checks = tuple(all_checks(evidence, policy))
    champion = evidence.champion
    accepted = all(check.holds for check in checks)
    promotion = promotion_check(champion, evidence.comparison, policy)
    return GateReport(
        digest=evidence.candidate.digest,
        champion=None if champion is None else champion.digest,
        accepted=accepted,
        promotable=accepted and promotion.holds,
        checks=checks,
        rule="first" if champion is None else policy.rule,
        promotion=promotion,
        comparison=evidence.comparison,
    )


@task
def decide_gates(evidence: Evidence, policy: GatePolicy, folder: Path) -> GateReport:
    """Decide on a candidate, say in the log why, and keep the report in `folder` as gates.json."""
    report = decide(evidence, policy)
    (folder / GATES_FILE).write_text(report.to_json(), encoding="utf-8")
    log = current_logger()
    for check in (*report.checks, report.promotion):
        log.info("%s %s", "holds: " if check.holds else "REFUSED:", check.words)
    return report
