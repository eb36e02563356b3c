"""Write a quantised model: INT8 with the scales in the file (Q/DQ), by ONNX Runtime's static quantisation.

Ranges are taken once, over the calibration tensors; after that any choice of operators left in float is a matter of
seconds. Weights are signed with a scale per channel, activations unsigned.
"""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import CalibrationMethod
from serving.engines import session_options
from serving.ort import onnxruntime as ort
from tasks.quantising.onnx_head import name_nodes

Tensor = npt.NDArray[np.float32]


class Unquantisable(Exception):
    """Why ONNX Runtime's tools cannot quantise this model."""


PERCENTILE = 99.99
"""Of a tensor's values: what lies further out is clipped, by the method `percentile`."""


def load_named(model_file: Path) -> Any:
    """The ONNX model with inferred shapes, every operator with a name of its own."""
    from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

    with _asking_tools():
        model = load_model_with_shape_infer(model_file)
    name_nodes(model)
    return model


def quantisable_operators() -> list[str]:
    """Operator types that ONNX Runtime quantises."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QDQRegistry, *QLinearOpsRegistry})


def calibrate(
    model_file: Path, tensors: Iterable[Tensor], input_name: str, method: CalibrationMethod, threads: int
) -> Any:
    """The range of every tensor of the model, over `tensors`, each (n, 3, height, width): ONNX Runtime's TensorsData.

    One tensor after the other, for `percentile` holds all values in memory of those that it is given at once.
    Raises Unquantisable.
    """
    with tempfile.TemporaryDirectory(prefix="passline-calibration-") as folder, _asking_tools():
        calibrator = _calibrator(method)(
            model_file, quantisable_operators(), augmented_model_path=str(Path(folder) / "augmented.onnx")
        )
        calibrator.augment_graph()
        calibrator.infer_session = _plain_session(calibrator.augmented_model_path, threads)
        for tensor in tensors:
            calibrator.collect_data(_reader({input_name: tensor}))
        return calibrator.compute_data()


def _calibrator(method: CalibrationMethod) -> Callable[..., Any]:
    from functools import partial

    from onnxruntime.quantization.calibrate import MinMaxCalibrater, PercentileCalibrater

    return MinMaxCalibrater if method == "minmax" else partial(PercentileCalibrater, percentile=PERCENTILE)


def _plain_session(model_file: str, threads: int) -> Any:
    """Without optimisation, which would fuse the tensors away whose ranges are wanted."""
    options = session_options(threads)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model_file, options, providers=["CPUExecutionProvider"])


def _reader(inputs: dict[str, Tensor]) -> Any:
    """What a calibrator asks for one input after the other; it wants its own class."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[dict[str, Tensor]] = iter([inputs])

        def get_next(self) -> dict[str, Tensor] | None:
            return next(self._left, None)

    return Reader()


def write_int8(named: Any, target: Path, ranges: Any, float_nodes: Collection[str], *, symmetric: bool = False) -> None:
    """Write a model of `load_named`, quantised by `ranges` but for the operators `float_nodes`; it stays as it is.

    `symmetric`: activations around zero and biases in float, as TensorRT takes it. Raises Unquantisable.
    """
    from onnxruntime.quantization import QDQQuantizer, QuantType

    copied = type(named)()
    copied.CopyFrom(named)
    with _asking_tools():
        quantizer = QDQQuantizer(
            copied,
            True,  # noqa: FBT003  (a scale per channel)
            False,  # noqa: FBT003  (all 8 bits)
            QuantType.QInt8,
            QuantType.QInt8 if symmetric else QuantType.QUInt8,
            ranges,
            [],
            sorted(float_nodes),
            quantisable_operators(),
            {"ActivationSymmetric": True, "QuantizeBias": False} if symmetric else {},
        )
        quantizer.quantize_model()
        quantizer.model.save_model_to_file(str(target))


@contextmanager
def _asking_tools() -> Iterator[None]:
    """ONNX Runtime's tools, without their words and with one kind of error.

    They speak by the root logger and by print, of a pre-processing that the exporter has done and of every tensor. A
    handler is there meanwhile, for the first such line would install one for the whole process.
    """
    root, silent = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.setLevel(logging.ERROR)
    root.addHandler(silent)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    except Exception as error:  # they raise whatever went wrong inside them, and ONNX Runtime's errors have no base
        raise Unquantisable(f"{type(error).__name__}: {error}") from error
    finally:
        root.removeHandler(silent)
        root.setLevel(level)
