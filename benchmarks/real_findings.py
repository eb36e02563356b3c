"""What the measurements on a real set say: bars, and the table for the documentation."""

from __future__ import annotations

from typing import Any

from benchmarks.report import Bar, Measured, Table, at_least, at_most

PARTS = ("plain", "passline", "int8", "student", "taught", "same")
INT8_LOSS_POINTS = 0.5
WORDS = {
    "plain": "plain `yolo train`, yolov8n",
    "passline": "Passline, yolov8n",
    "int8": "Passline, yolov8n, INT8",
    "student": "Passline, pico",
    "taught": "Passline, pico, taught by yolov8n",
}
HEAD = ("model", "mAP50", "mAP50-95", "escape rate", "false alarms per picture", "overkill rate", "MiB", "time, s")


def conclude(found: dict[str, dict[str, Any]], epochs: int, *, decided: bool) -> Measured:
    """Bars and table of the parts that were measured; a bar whose parts are missing stays open."""
    loss, same = int8_loss_points(found), found.get("same")
    bars: list[Bar] = [
        at_most("int8_loss_points", loss, INT8_LOSS_POINTS, decided=decided and "int8" in found),
        at_least("same_weights", float(same["same"]) if same else None, 1.0, decided=same is not None),
    ]
    return Measured(
        settings={"epochs": epochs},
        samples=found,
        bars=tuple(bars),
        tables=(table(found),),
        notes=tuple(notes(found)),
    )


def int8_loss_points(found: dict[str, dict[str, Any]]) -> float | None:
    """mAP50 that INT8 loses, in points; 0 where FP32 is kept."""
    int8, fp32 = found.get("int8"), found.get("passline")
    if int8 is None or fp32 is None:
        return None
    measures = int8["measures"]
    return 100 * (fp32["map50"] - measures["map50"]) if measures else 0.0


def table(found: dict[str, dict[str, Any]]) -> Table:
    """One row per model; that of an INT8 model that may not ship is empty."""
    rows = []
    for name, words in WORDS.items():
        one = found.get(name)
        if one is not None:
            measures = one if name != "int8" else one["measures"]
            rows.append((words, *_cells(measures), f"{one['seconds']:.0f}"))
    return Table(HEAD, tuple(rows))


def _cells(measures: dict[str, Any] | None) -> tuple[str, ...]:
    if measures is None:
        return ("FP32 kept", "", "", "", "", "")
    numbers = ("map50", "map50_95", "escape_rate", "false_alarms_per_picture", "overkill_rate")
    cells = ["none" if measures[name] is None else f"{measures[name]:.3f}" for name in numbers]
    return (*cells, f"{measures['file_mib']:.1f}")


def notes(found: dict[str, dict[str, Any]]) -> list[str]:
    """What a reader must know to judge the table."""
    said = [
        f"{one['pictures']} pictures with {one['true_boxes']} true boxes judge; thresholds come from other pictures."
        for one in [found.get("passline") or found.get("plain") or found.get("student")]
        if one
    ]
    if "int8" in found:
        said.append(f"INT8: {found['int8']['reason']}.")
    if "plain" in found and "passline" in found:
        ratio = found["passline"]["seconds"] / found["plain"]["seconds"]
        said.append(f"Passline's training step took {ratio:.2f} times as long as the plain one, tracking included.")
    return said


def markdown(shown: Table) -> str:
    """The table as Markdown.

    >>> print(markdown(Table(("model", "mAP50"), (("pico", "0.3"),))), end="")
    | model | mAP50 |
    |---|---|
    | pico | 0.3 |
    """
    lines = [shown.head, *shown.rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(shown.head), *text[1:]]) + "\n"
