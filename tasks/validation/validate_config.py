"""The configuration of step `validate`: limits, and what each rule's findings weigh and do."""

from __future__ import annotations

from pydantic import Field, field_validator

from data_contracts.base import Contract, Fraction
from tasks.scanning.scan_rows import GroupPattern
from tasks.validation.expectations import RuleOutcome, Severity, rule_severities, whole_table_rules
from tasks.validation.findings import Policy


class ValidateConfig(Contract):
    """When a dataset is fit to train on."""

    max_bytes: int = Field(ge=1, le=2**30, description="Largest picture file, bytes.")
    max_pixels: int = Field(ge=1, le=2**30, description="Largest picture, width times height.")
    min_side_px: int = Field(ge=10, le=4096, description="Smallest side of a picture, pixels; the trainer needs 10.")
    modes: tuple[str, ...] = Field(min_length=1, description="Kinds of colour that are expected, as Pillow names them.")
    max_bit_depth: int = Field(ge=1, le=32, description="Most bits per colour value without a remark.")
    min_box_px: float = Field(ge=0, le=100, description="Smallest side of a defect box, pixels.")
    min_pictures: int = Field(ge=1, description="Smallest number of pictures in a split.")
    min_class_instances: int = Field(ge=1, description="Smallest number of boxes of a class in each split.")
    max_unlabelled_share: Fraction = Field(
        description="Largest share of a split's pictures that have no label file and are not listed as backgrounds."
    )
    group_pattern: GroupPattern = Field(
        description="Regular expression on a picture's name; its first group is the part, lot or burst."
    )
    severities: dict[str, Severity] = Field(description="Rules whose severity differs from the suite's.")
    policies: dict[str, Policy] = Field(
        description="What an error of a rule does: `reject` the dataset, as rules that are not named do, or "
        "`quarantine` the picture, which is then kept out of training."
    )
    max_quarantined_share: Fraction = Field(description="Largest share of the pictures in quarantine.")

    @field_validator("severities", "policies")
    @classmethod
    def _rules_exist(cls, given: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(set(given) - set(rule_severities())):
            raise ValueError(f"unknown rules {', '.join(unknown)}; known: {', '.join(sorted(rule_severities()))}")
        return given

    @field_validator("policies")
    @classmethod
    def _only_pictures_are_quarantined(cls, policies: dict[str, Policy]) -> dict[str, Policy]:
        wide = whole_table_rules()
        if wrong := sorted(rule for rule, policy in policies.items() if policy == "quarantine" and rule in wide):
            raise ValueError(f"{', '.join(wrong)}: no fault of single pictures, so that nothing could be kept out")
        return policies

    def severity(self, outcome: RuleOutcome) -> Severity:
        """The severity of a rule after the overrides."""
        return self.severities.get(outcome.rule, outcome.severity)

    def policy(self, outcome: RuleOutcome) -> Policy:
        """What an error of a rule does."""
        return self.policies.get(outcome.rule, "reject")
