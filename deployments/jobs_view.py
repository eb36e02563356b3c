"""What `passline jobs` shows: values in, text or JSON fields out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from deployments.jobs import Board, JobRun
from tasks.reporting.report_text import plural, text_table
from tasks.resources import ResourceConfig


def board_text(board: Board) -> str:
    """The board for a terminal: a line per job, and below it what there is to say."""
    lines = [*_group("waiting", board.waiting, numbered=True), "", *_group("running", board.running), ""]
    lines += _group("ended", board.finished)
    if board.next_scheduled is not None:
        lines += ["", f"the next scheduled job is due at {_clock(board.next_scheduled)}"]
    if not board.workers:
        lines += ["", "no worker of the pool is online: nothing starts"]
    return "\n".join(lines)


def _group(title: str, jobs: Sequence[JobRun], *, numbered: bool = False) -> Iterator[str]:
    yield f"{title} ({len(jobs)})"
    rows = [_row(number if numbered else None, one) for number, one in enumerate(jobs, start=1)]
    for one, line in zip(jobs, text_table([""] * 7, rows)[1:], strict=True):
        yield f"  {line}"
        yield from (f"      {words}" for words in one.words.splitlines())


def _row(number: int | None, one: JobRun) -> list[str]:
    place = "" if number is None else f"{number}."
    needs = needs_words(one.job.needs)
    return [place, one.name, one.job.output, f"priority {one.job.priority}", needs, one.state, _clock(one.at)]


def needs_words(needs: ResourceConfig) -> str:
    """What a job needs, short.

    >>> needs_words(ResourceConfig(cpus=2, memory_mib=2048, devices=1, device_memory_mib=0))
    '2 cores, 2,048 MiB, 1 GPU'
    """
    parts = [plural(needs.cpus, "core"), f"{needs.memory_mib:,} MiB"]
    if needs.devices:
        memory = f" with {needs.device_memory_mib:,} MiB" if needs.device_memory_mib else ""
        parts.append(plural(needs.devices, "GPU") + memory)
    return ", ".join(parts)


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def board_fields(board: Board) -> dict[str, Any]:
    """The board as JSON fields; times in ISO 8601."""
    return {
        "waiting": [{"position": number, **_fields(one)} for number, one in enumerate(board.waiting, start=1)],
        "running": [_fields(one) for one in board.running],
        "ended": [_fields(one) for one in board.finished],
        "next_scheduled": board.next_scheduled.isoformat() if board.next_scheduled else None,
        "workers_online": board.workers,
    }


def _fields(one: JobRun) -> dict[str, Any]:
    return {
        "run_id": str(one.run_id),
        "name": one.name,
        "state": one.state,
        "output": one.job.output,
        "priority": one.job.priority,
        "needs": one.job.needs.model_dump(),
        "at": one.at.isoformat(),
        "words": one.words,
    }
