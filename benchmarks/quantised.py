"""A quantised copy of a model, to measure engines with: INT8 with the scales in the file (Q/DQ), the head in float.

The head stays in float, for its outputs mix boxes of hundreds of pixels with scores under 1, and one scale for both
zeroes the scores.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import serving.ort  # noqa: F401  (its reports are off before the tools below load it)

Tensor = npt.NDArray[np.float32]
_PART = re.compile(r"/model\.(\d+)/")


def quantise(model_file: Path, target: Path, batches: Sequence[Tensor], input_name: str, *, symmetric: bool) -> None:
    """Write the quantised model to `target`, with ranges from `batches`, each (n, 3, height, width).

    `symmetric`: around zero, biases in float, as TensorRT takes it.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    names = [node.name for node in onnx.load(model_file, load_external_data=False).graph.node]
    extra = {"ActivationSymmetric": True, "QuantizeBias": False} if symmetric else {}
    logging.disable(logging.WARNING)  # it advises a pre-processing that the exporter has done
    quantize_static(
        str(model_file),
        str(target),
        _reader(batches, input_name),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=head_nodes(names),
        extra_options=extra,
    )
    logging.disable(logging.NOTSET)


def head_nodes(names: Sequence[str]) -> list[str]:
    """Nodes of the detection head: those of the last part, as the exporter numbers them.

    >>> head_nodes(["/model.0/conv/Conv", "/model.22/cv2/Conv", "/model.22/Concat_5"])
    ['/model.22/cv2/Conv', '/model.22/Concat_5']
    """
    parts = {name: int(found[1]) for name in names if (found := _PART.search(name))}
    last = max(parts.values(), default=None)
    return [name for name in names if parts.get(name) == last] if last is not None else []


def _reader(batches: Sequence[Tensor], input_name: str) -> Any:
    """What the quantiser asks for one batch after the other; it wants its own class."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Tensor] = iter(batches)

        def get_next(self) -> dict[str, Tensor] | None:
            batch = next(self._left, None)
            return None if batch is None else {input_name: batch}

    return Reader()
