"""The example pictures of one page: decoded side by side, each once, within what the page may weigh."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from serving.cpus import threads_from_quota
from tasks.pictures import DATASET_LIMITS
from tasks.reporting.report_examples import Example
from tasks.reporting.report_pictures import SmallPicture, data_uri, small_picture

BUDGET_BYTES = 3_300_000
"""JPEG bytes of all pictures; as text in the page they grow by a third."""
UNREADABLE = "The picture cannot be read."
LEFT_OUT = "Left out, so that the page stays small."


@dataclass(frozen=True)
class ShownPicture:
    """One picture on the page: data URIs, or why there are none."""

    caption: str
    note: str
    whole: str | None = None
    close_up: str | None = None
    why_none: str = ""


class Gallery:
    """Pictures of `root` made small; the first examples get their pictures first when the budget is short."""

    def __init__(self, root: Path, examples: Iterable[Example], budget_bytes: int = BUDGET_BYTES) -> None:
        wanted = list(dict.fromkeys(examples))
        with ThreadPoolExecutor(threads_from_quota(1)) as pool:
            made = list(pool.map(lambda example: _made(root, example), wanted))
        self.left_out = 0
        self._shown: dict[Example, ShownPicture] = {}
        for example, small in zip(wanted, made, strict=True):
            fits = small is None or small.size_bytes <= budget_bytes
            budget_bytes -= small.size_bytes if small and fits else 0
            self.left_out += not fits
            self._shown[example] = _shown(example, small if fits else None, UNREADABLE if small is None else LEFT_OUT)

    def show(self, example: Example) -> ShownPicture:
        """What the page shows of one of the examples."""
        return self._shown[example]


def _made(root: Path, example: Example) -> SmallPicture | None:
    return small_picture(root / example.path, example.marks, DATASET_LIMITS) if example.readable else None


def _shown(example: Example, small: SmallPicture | None, why_none: str) -> ShownPicture:
    if small is None:
        return ShownPicture(example.caption, example.note, why_none=why_none)
    close_up = data_uri(small.close_up) if small.close_up else None
    return ShownPicture(example.caption, example.note, data_uri(small.whole), close_up)
