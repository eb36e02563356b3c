"""OpenVINO without its usage reports: load it through here.

Its Python package reports every import to its maker when the package `openvino-telemetry` is installed beside it, and
uses a silent stub when not. Our locks leave that package out; where something else has brought it, it is hidden here.
OpenVINO is loaded only when an engine asks for it: it costs memory, and a host may be without it.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from types import ModuleType
from typing import Any

from serving.engine_types import Unusable

REPORTER = "openvino_telemetry"
_LOADING = threading.Lock()


def load_openvino() -> ModuleType:
    """The module `openvino`, unable to report. Raises Unusable where it is not installed or does not load."""
    if "openvino" not in sys.modules:
        # None makes every later import of it fail, as if it were not installed.
        sys.modules[REPORTER] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise Unusable(f"OpenVINO does not load here: {error}") from None


def openvino_core() -> Any:
    """The process's `Core`: one is enough for all engines. Raises Unusable without OpenVINO."""
    with _LOADING:
        return _core()


@functools.cache
def _core() -> Any:
    openvino = load_openvino()
    # Its table of NumPy types is made on first use, and two threads that come first at once wait for each other for
    # ever (2026.4.1: one holds the table's lock and waits for Python's, the other the reverse). So it is made here.
    openvino.Type.f32.to_dtype()
    return openvino.Core()


def cpu_capabilities() -> tuple[str, ...]:
    """What OpenVINO computes natively on this CPU, such as FP32, INT8 and BF16. Raises Unusable without OpenVINO."""
    return tuple(openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
