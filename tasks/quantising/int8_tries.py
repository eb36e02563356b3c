"""One model being quantised: make a try, judge it, measure what a section of the graph does to the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from data_contracts.bundle import INT8_MODEL_FILE, Int8ClassResult, ModelSpec
from data_contracts.errors import BundleError, EngineError
from serving.detector import Detector
from serving.engines import open_engine
from serving.probe import ProbeRule
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.export import ExportedModel
from tasks.ground_truth import GroundTruth
from tasks.pictures import cpu_options, draft_detector
from tasks.quantising.int8_gate import class_results, measure_draft, objections
from tasks.quantising.int8_model import Tensor, load_named, quantisable_operators, write_int8
from tasks.quantising.int8_search import Section, output_change
from tasks.quantising.onnx_head import head_nodes
from tasks.quantising.quantise_config import QuantiseConfig

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Graph:
    """A loaded model, and its operators by what may become of them, in the order of the graph."""

    model: Any
    head: Section
    quantisable: Section

    def sections(self, count: int) -> list[Section]:
        """The quantisable operators in up to `count` runs of nearly equal size."""
        parts = min(count, len(self.quantisable))
        bounds = [len(self.quantisable) * part // max(parts, 1) for part in range(parts + 1)]
        return [self.quantisable[start:end] for start, end in pairwise(bounds)]


def read_graph(model_file: Path) -> Graph:
    """Head and quantisable operators of a model file. Raises Unquantisable."""
    model, kinds = load_named(model_file), set(quantisable_operators())
    head = head_nodes(model)
    rest = [node for node in model.graph.node if node.name not in set(head)]
    return Graph(model, head, tuple(node.name for node in rest if node.op_type in kinds))


def int8_detector(model_file: Path, spec: ModelSpec) -> Detector:
    """A detector for a quantised model that is not sealed yet."""
    return Detector(spec, open_engine(model_file, spec, replace(cpu_options(), precision="int8")))


@dataclass(frozen=True, eq=False)
class Question:
    """By what a try is judged: pictures, the rule of hosts, and the limits of the job."""

    truth: Sequence[GroundTruth]
    rule: ProbeRule
    config: QuantiseConfig
    evaluate: EvaluateConfig


class Tries:
    """The tries of one search, in the folder `target`. `classes` are those of the last one that ran."""

    def __init__(
        self, exported: ExportedModel, graph: Graph, ranges: Any, question: Question, target: Path, say: Say
    ) -> None:
        self.model_file = target / INT8_MODEL_FILE
        self.classes: tuple[Int8ClassResult, ...] = ()
        self._exported, self._graph, self._ranges, self._question = exported, graph, ranges, question
        self._say, self._count = say, 0
        self._reference = draft_detector(exported.model, exported.spec)
        self._fp32 = measure_draft(self._reference, question.truth, question.rule.verdict, question.evaluate)

    def attempt(self, left_out: Section) -> tuple[str, ...]:
        """Make a model with these operators in float and say what speaks against it."""
        self._count += 1
        write_int8(self._graph.model, self.model_file, self._ranges, {*self._graph.head, *left_out})
        try:
            against = self._judged(int8_detector(self.model_file, self._exported.spec))
        except (BundleError, EngineError) as error:
            against = (f"it does not run: {error}",)
        words = "; ".join(against) or "it holds its limits"
        self._say(f"INT8, try {self._count}, {len(left_out)} operators in float beside the head: {words}")
        return against

    def _judged(self, detector: Detector) -> tuple[str, ...]:
        ask = self._question
        int8 = measure_draft(detector, ask.truth, ask.rule.verdict, ask.evaluate)
        self.classes = class_results(self._fp32, int8, self._exported.spec.class_names)
        return objections(self._fp32, int8, self.classes, ask.rule, ask.config)

    def harm(self, section: Section, tensors: Sequence[Tensor]) -> float:
        """Change of the output on calibration tensors when only this section is quantised; infinite if it fails."""
        file = self.model_file.with_name("section.onnx")
        others = set(self._graph.quantisable) - set(section)
        write_int8(self._graph.model, file, self._ranges, {*self._graph.head, *others})
        layout = self._exported.spec.output.layout
        try:
            detector = int8_detector(file, self._exported.spec)
            changes = [output_change(self._reference.predict(one), detector.predict(one), layout) for one in tensors]
        except (BundleError, EngineError):
            return float("inf")
        finally:
            file.unlink()
        return float(np.mean(changes))
