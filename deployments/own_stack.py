"""A local stack with a state folder and ports of its own, for measurements and tests; stopped whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.environment import LOOPBACK, StackSettings, load_stack_settings

if TYPE_CHECKING:
    from deployments.programs import Program

Say = Callable[[str], None]


@contextmanager
def own_settings() -> Iterator[StackSettings]:
    """Settings with a temporary folder and free ports; this process talks to that stack while the block lasts."""
    prefect, mlflow, service = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="passline-stack-") as folder:
        changes = {"home": Path(folder), "prefect_port": prefect, "mlflow_port": mlflow, "service_port": service}
        settings = load_stack_settings().model_copy(update=changes)
        with environment(settings.training_environment()):
            yield settings


@contextmanager
def own_stack(settings: StackSettings, programs: frozenset[str] | None, say: Say) -> Iterator[None]:
    """The stack, up; of its programs only those named, None for all."""
    from deployments.stack import Stack, check_tools

    class Part(Stack):
        """The named programs of a stack."""

        def programs(self) -> tuple[Program, ...]:
            return tuple(one for one in super().programs() if programs is None or one.name in programs)

    check_tools()
    stack = Part(settings)
    try:
        stack.up(say)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # a deadline that rings now would leave processes behind
        stack.down(say)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """`values` in the environment of this process, and what was there before back at the end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        _refresh_prefect()
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _refresh_prefect() -> None:
    """Prefect reads its environment once, on its first import: when that is over, have it read again."""
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
