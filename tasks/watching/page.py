"""What a person sees of a training in the Prefect UI while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tasks.artifacts import markdown_pictures, markdown_table
from tasks.training.events import EpochDone
from tasks.watching.curves import curves_svg, svg_uri
from tasks.watching.progress import Progress, duration_words

SHOWN_EPOCHS = 8
COLUMNS = (
    ("mAP50", "metrics/mAP50(B)"),
    ("mAP50-95", "metrics/mAP50-95(B)"),
    ("precision", "metrics/precision(B)"),
    ("recall", "metrics/recall(B)"),
    ("box loss", "train/box_loss"),
    ("class loss", "train/cls_loss"),
)


def curves_markdown(progress: Progress, state: str) -> str:
    """State, curves, the best and the latest epochs."""
    parts = [f"## Training\n\n{state[:1].upper()}{state[1:]}."]
    if history := history_words(progress):
        parts.append(history)
    if progress.epochs_done:
        parts.append(f"![curves]({svg_uri(curves_svg(progress.epochs_done, progress.epochs))})")
        parts.append(epochs_table(progress.epochs_done))
    return "\n\n".join(parts)


def samples_markdown(epoch: int, sheet: bytes) -> str:
    """The sheet of sample pictures, JPEG, with what its frames mean."""
    return markdown_pictures([(f"After epoch {epoch}. White: labelled. Coloured: found, with its score", sheet)])


def history_words(progress: Progress) -> str:
    """What the curves do not show: earlier epochs, and that the training was brought back."""
    words = []
    if progress.first_epoch > 1:
        words.append(f"Epochs before {progress.first_epoch} ran in an earlier process: MLflow has their metrics.")
    if progress.starts > 1:
        words.append(f"The training was started {progress.starts} times.")
    return " ".join(words)


def epochs_table(epochs: Sequence[EpochDone]) -> str:
    """The best epoch by mAP50-95 and the latest ones, newest first."""
    best = best_epoch(epochs)
    rows = [_row(one, "best" if one is best else "") for one in epochs[: -SHOWN_EPOCHS - 1 : -1]]
    if best is not None and best not in epochs[-SHOWN_EPOCHS:]:
        rows.append(_row(best, "best"))
    return markdown_table(["epoch", *(name for name, _ in COLUMNS), "took", ""], rows)


def best_epoch(epochs: Sequence[EpochDone]) -> EpochDone | None:
    """The first epoch with the highest mAP50-95, None where no epoch has one."""
    measured = [one for one in epochs if math.isfinite(one.metrics.get("metrics/mAP50-95(B)", math.nan))]
    return max(measured, key=lambda one: one.metrics["metrics/mAP50-95(B)"], default=None)


def _row(one: EpochDone, remark: str) -> list[object]:
    values = [one.metrics.get(metric) for _, metric in COLUMNS]
    return [one.epoch, *("-" if value is None else value for value in values), duration_words(one.seconds), remark]
