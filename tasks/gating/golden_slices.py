"""The forgetting guard: defects that the champion finds must still be found.

A mean may rise while a kind of defect is lost. So the defects of each class that the champion finds are followed one by
one: they are its golden slice, made anew from its evaluation on today's pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from data_contracts.base import Contract
from tasks.evaluation.picture_scores import PictureScores
from tasks.gating.gate_checks import GateCheck, at_most, yes_or_no
from tasks.gating.gate_policy import GatePolicy


class GoldenSlice(Contract):
    """The true boxes of one class, by who finds them at its own operating point."""

    name: str
    instances: int = Field(ge=0)
    champion_found: int = Field(ge=0)
    still_found: int = Field(ge=0, description="By the candidate, of those that the champion finds.")
    newly_found: int = Field(ge=0, description="By the candidate, of those that the champion misses.")


def golden_slices(
    candidate: PictureScores, champion: PictureScores, class_names: Sequence[str]
) -> tuple[GoldenSlice, ...]:
    """One slice per class; both were measured on the same true boxes in the same order."""
    now, before = candidate.true_found, champion.true_found
    return tuple(
        GoldenSlice(
            name=name,
            instances=int((own := champion.true_class == class_id).sum()),
            champion_found=int((own & before).sum()),
            still_found=int((own & before & now).sum()),
            newly_found=int((own & ~before & now).sum()),
        )
        for class_id, name in enumerate(class_names)
    )


def forgetting_checks(slices: Iterable[GoldenSlice], policy: GatePolicy) -> Iterable[GateCheck]:
    """No class may lose more of what the champion finds than the policy allows."""
    for one in slices:
        check, found = f"{one.name}: forgotten", one.champion_found
        if found < policy.min_slice:
            few = f"the champion finds {found} of {one.instances}, too few to tell: {policy.min_slice} are needed."
            yield yes_or_no(check, holds=True, good=few)
            continue
        lost = found - one.still_found
        action = (
            f"Of {found} defects that the champion finds {lost} are missed, and {one.newly_found} are new. "
            f"Look at them; is every picture of {one.name} still in the training data?"
        )
        yield at_most(check, lost / found, policy.max_forgotten, action)
