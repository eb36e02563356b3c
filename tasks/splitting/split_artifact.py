"""What the splits of a run hold, for the Prefect UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_contracts.dataset import Split
from tasks.artifacts import markdown_table


@dataclass(frozen=True)
class SplitCounts:
    """What one split of the working copy holds."""

    pictures: int
    labelled: int
    boxes: int
    class_boxes: tuple[int, ...]
    """Boxes of every class, in the order of the class ids."""


def splits_markdown(counts_of: Mapping[Split, SplitCounts], class_names: Sequence[str], notes: Sequence[str]) -> str:
    """Pictures and boxes of every split by class, each with its share of all, and how the splits came about."""
    counts = [counts_of[split] for split in Split]
    rows = [("pictures", *_with_share([found.pictures for found in counts]))]
    rows += [
        (f"boxes: {name}", *_with_share([found.class_boxes[number] for found in counts]))
        for number, name in enumerate(class_names)
    ]
    table = markdown_table(["", *(split.value for split in Split)], rows)
    return "\n\n".join([table, *(f"- {note}" for note in notes)])


def _with_share(counts: list[int]) -> list[str]:
    total = sum(counts) or 1
    return [f"{count} ({count / total:.1%})" for count in counts]
