"""ONNX Runtime without its usage reports: import it from here.

The library reports to its maker from the moment it is imported, unless a variable stands in the environment by then;
switching it off afterwards comes too late. So this module is the one that sets a variable when imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["load_gpu_libraries", "onnxruntime"]

TENSORRT_LIBRARIES = ("libnvinfer.so.*", "libnvinfer_plugin.so.*", "libnvonnxparser.so.*")
_log = logging.getLogger(__name__)


def load_gpu_libraries() -> None:
    """Load CUDA, cuDNN and TensorRT from their Python packages, where ONNX Runtime's GPU providers do not look.

    What is not there is left to the system's search path; a provider that then lacks a library does not load.
    """
    words = io.StringIO()
    with contextlib.redirect_stdout(words):  # it prints what it does not find
        onnxruntime.preload_dlls()
    if words.getvalue():
        _log.warning("GPU libraries: %s", " ".join(words.getvalue().split()))
    folder = Path(str(onnxruntime.__file__)).parent.parent / "tensorrt_libs"
    for pattern in TENSORRT_LIBRARIES:
        for library in sorted(folder.glob(pattern)):
            try:
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                _log.warning("%s: %s", library.name, error)
