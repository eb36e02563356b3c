"""What a quantisation hands on to the seal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data_contracts.bundle import BuildWish, Quantisation


@dataclass(frozen=True)
class Quantised:
    """What a bundle gets beside FP32. `model` is None where INT8 may not ship; `made` then says why.

    `made` is None where none was wished for.
    """

    model: Path | None = None
    made: Quantisation | None = None
    build_wishes: tuple[BuildWish, ...] = ()

    def refused(self, reason: str) -> Quantised:
        """The same without the model, for `reason`."""
        made = None if self.made is None else self.made.model_copy(update={"shipped": False, "reason": reason})
        return Quantised(None, made, self.build_wishes)


FP32_ONLY = Quantised()
