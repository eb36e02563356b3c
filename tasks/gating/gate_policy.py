"""What a candidate must reach: the numbers behind every gate."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from data_contracts.base import Contract, Fraction

Occasion = Literal["new class", "new line", "security fix"]
PromotionRule = Literal["first", "superiority", "non-inferiority"]


class GatePolicy(Contract):
    """What a candidate must reach, on the test split."""

    min_map50: Fraction = Field(description="Least mAP50.")
    min_instances: int = Field(ge=1, description="Least true boxes of each class, for its numbers to mean anything.")
    max_escape_rate: Fraction = Field(description="Most missed true boxes of each class, as a share.")
    max_overkill_rate: Fraction = Field(description="Most pictures without defects judged NG, as a share.")
    max_false_alarms_per_picture: float = Field(ge=0, allow_inf_nan=False, description="Most false boxes per picture.")
    compared: Literal["map50", "map50_95"] = Field(description="The number that is compared with the champion's.")
    margin: Fraction = Field(description="A candidate is not worse while it lies no further below the champion.")
    admission_level: float = Field(
        gt=0, le=0.3, description="How often chance may pass for not worse, to be registered."
    )
    promotion_level: float = Field(gt=0, le=0.2, description="How often chance may pass for what promotion asks for.")
    promote_if: Literal["better", "not_worse"] = Field(description="What replaces the champion.")
    occasion: Occasion | None = Field(description="Why not worse is enough; null where better is asked for.")
    classes: Literal["same", "may_grow"] = Field(description="Whether the candidate may know more classes.")
    max_forgotten: Fraction = Field(description="Most defects that the champion finds and the candidate misses: share.")
    min_slice: int = Field(ge=1, description="Least defects found by the champion for a class to be watched for that.")
    remembered_champions: int = Field(
        ge=0, le=20, description="Earlier champions whose found defects must still be found, beside today's."
    )
    max_int8_loss: Fraction = Field(
        description="Most AP50 that a class may lose by INT8; in a rare class one true box."
    )
    speed_batches: tuple[Annotated[int, Field(ge=1, le=64)], ...] = Field(
        min_length=1, max_length=8, description="Pictures per call with which time and memory are measured."
    )
    speed_rounds: int = Field(ge=3, le=1000, description="Measured calls of each, candidate and champion in turns.")
    max_slowdown: float = Field(ge=1, le=10, description="Most time of a call, as a multiple of the champion's.")
    max_memory_growth: float = Field(ge=1, le=10, description="Most peak memory, as a multiple of the champion's.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.promote_if == "not_worse") != (self.occasion is not None):
            raise ValueError("expected an occasion with promote_if not_worse, and none with better")
        return self

    @property
    def rule(self) -> PromotionRule:
        """What a candidate must show where there is a champion."""
        return "superiority" if self.promote_if == "better" else "non-inferiority"
