"""A quantised copy of a model, to measure engines with, made as `tasks.quantise` makes that of a bundle.

Without its gate: the engine is measured, not the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from serving.engines import threads_from_quota
from tasks.quantising.int8_model import calibrate, load_named, write_int8
from tasks.quantising.onnx_head import head_nodes

Tensor = npt.NDArray[np.float32]


def quantise(model_file: Path, target: Path, batches: Sequence[Tensor], input_name: str, *, symmetric: bool) -> None:
    """Write the quantised model to `target`, with ranges from `batches`, each (n, 3, height, width).

    `symmetric`: around zero, biases in float, as TensorRT takes it.
    """
    model = load_named(model_file)
    ranges = calibrate(model_file, batches, input_name, "minmax", threads_from_quota(1))
    write_int8(model, target, ranges, head_nodes(model), symmetric=symmetric)
