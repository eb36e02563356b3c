"""Run a module at the lowest priority: `python -m serving.idle MODULE`. What is served beside it keeps the CPUs."""

from __future__ import annotations

import os
import runpy
import sys

LOWEST_NICE = 19


def step_back() -> None:
    """Let this process, and whatever it starts, run only where nobody else wants to."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a container that does not allow it
        os.nice(LOWEST_NICE)


if __name__ == "__main__":
    step_back()  # before the module is imported: the threads of an engine inherit it
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
