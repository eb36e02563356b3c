"""Make an INT8 model beside the FP32 one, and decide on the validation split whether it may ship.

It is right or absent: where its limits cannot be held the bundle has FP32 only, and its manifest says why. That fails
no run, for the FP32 model is as good as before.
"""

from __future__ import annotations

import time
from pathlib import Path

from prefect import task

from data_contracts.bundle import BuildWish, Quantisation, VerdictRule
from data_contracts.dataset import Split
from serving.cpus import threads_from_quota
from serving.probe import ProbeRule
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.export import ExportedModel
from tasks.ground_truth import read_ground_truth
from tasks.quantising.calibration import Calibration, calibration_tensors, choose_calibration
from tasks.quantising.int8_model import Unquantisable, calibrate
from tasks.quantising.int8_search import SECTIONS, Found, search
from tasks.quantising.int8_tries import Graph, Question, Say, Tries, read_graph
from tasks.quantising.quantise_config import QuantiseConfig
from tasks.quantising.quantised import Quantised
from tasks.run_log import current_logger
from tasks.seal import SealConfig

HARM_PICTURES = 8
"""Calibration pictures by which the harm of a section is measured."""


def quantise(
    exported: ExportedModel,
    rule: VerdictRule,
    working_copy: Path,
    config: QuantiseConfig,
    evaluate: EvaluateConfig,
    seal: SealConfig,
    target: Path,
    say: Say,
) -> Quantised:
    """Write model.int8.onnx into the folder `target` and say whether it may ship, by the limits of job and hosts."""
    if not config.wished:
        return Quantised(build_wishes=config.build_wishes)
    chosen = choose_calibration(working_copy, config.pictures)
    truth = read_ground_truth(working_copy, Split.VAL)
    tolerance, limit = seal.tolerances.get("int8"), seal.probe_limits.get("int8")
    if tolerance is None or limit is None:
        return _without(config, chosen, "no host may serve it: seal.tolerances and seal.probe_limits need int8")
    if not (truth and chosen.files):
        return _without(config, chosen, "there are no pictures to calibrate it by in train, or to judge it by in val")
    question = Question(truth, ProbeRule(rule, tolerance, limit), config, evaluate)
    try:
        return _searched(exported, chosen, question, target, say)
    except Unquantisable as error:
        return _without(config, chosen, f"ONNX Runtime cannot quantise this model: {error}")


def _searched(exported: ExportedModel, chosen: Calibration, question: Question, target: Path, say: Say) -> Quantised:
    config, spec, until = question.config, exported.spec, time.monotonic() + question.config.budget_s
    graph = read_graph(exported.model)
    if not graph.quantisable:
        return _without(config, chosen, "the model has no operator outside its head that could be quantised")
    tensors = calibration_tensors(chosen.files, spec)
    ranges = calibrate(exported.model, tensors, spec.input.tensor, config.method, threads_from_quota(1))
    target.mkdir(parents=True, exist_ok=True)
    tries = Tries(exported, graph, ranges, question, target, say)
    few = tuple(calibration_tensors(chosen.files[:: max(1, len(chosen.files) // HARM_PICTURES)][:HARM_PICTURES], spec))
    found = search(
        tries.attempt,
        lambda section: tries.harm(section, few),
        graph.sections(SECTIONS),
        config.max_rounds,
        lambda: time.monotonic() < until,
    )
    made = _record(config, chosen, graph, found, tries)
    return Quantised(tries.model_file if made.shipped else None, made, config.build_wishes)


def _record(config: QuantiseConfig, chosen: Calibration, graph: Graph, found: Found, tries: Tries) -> Quantisation:
    ships = not found.objections
    words = "; ".join((*found.objections, found.stopped) if found.stopped else found.objections)
    return Quantisation(
        shipped=ships,
        reason="it holds its limits on the validation split" if ships else words,
        method=config.method,
        calibration=chosen.pictures,
        head_nodes=len(graph.head),
        quantised_nodes=len(graph.quantisable) - len(found.left_out),
        further_float_nodes=found.left_out,
        tries=found.tries,
        classes=tries.classes,
    )


def _without(config: QuantiseConfig, chosen: Calibration, reason: str) -> Quantised:
    """No model, for a reason that needed no try."""
    made = Quantisation(
        shipped=False,
        reason=reason,
        method=config.method,
        calibration=chosen.pictures,
        head_nodes=0,
        quantised_nodes=0,
        further_float_nodes=(),
        tries=0,
        classes=(),
    )
    return Quantised(None, made, config.build_wishes)


def outcome_words(quantised: Quantised) -> str:
    """What came out, for the run's log."""
    made = quantised.made
    if made is None:
        return "INT8 was not asked for: the bundle has FP32 only"
    if not made.shipped:
        return f"INT8 is left out, the bundle has FP32 only: {made.reason}"
    floats = f"{made.head_nodes} operators of the head and {len(made.further_float_nodes)} others stay in float"
    return f"INT8 goes into the bundle after {made.tries} tries: {floats}"


def wish_words(wishes: tuple[BuildWish, ...]) -> str:
    """Engines that hosts are asked to build, for the run's log."""
    return ", ".join(f"{wish.provider} {wish.precision}" for wish in wishes) or "none"


@task
def quantise_model(
    exported: ExportedModel,
    rule: VerdictRule,
    working_copy: Path,
    config: QuantiseConfig,
    evaluate: EvaluateConfig,
    seal: SealConfig,
    target: Path,
) -> Quantised:
    """Quantise an exported model, and say in the log what came of it."""
    log = current_logger()
    quantised = quantise(exported, rule, working_copy, config, evaluate, seal, target, log.info)
    log.info("%s", outcome_words(quantised))
    if quantised.build_wishes:
        log.info("hosts are asked to build: %s", wish_words(quantised.build_wishes))
    return quantised
