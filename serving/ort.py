"""ONNX Runtime without its usage reports: import it from here.

The library reports to its maker from the moment it is imported, unless a variable stands in the environment by then;
switching it off afterwards comes too late. So this module is the one that sets a variable when imported.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
