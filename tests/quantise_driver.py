"""Exports, quantises, seals and measures one family of detectors with its first weights, and prints what came out.

Run as a program of its own: with pytest loaded, Ultralytics switches parts of itself off.
Arguments: working folder, architecture, output layout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PX = 96


def main(folder: Path, architecture: str, layout: Any) -> dict[str, Any]:
    """Scores of first weights mean nothing, so the limits are wide: the graph is what is tried."""
    from tasks import yolo

    yolo.configure_ultralytics(folder / "var")
    import torch
    from ultralytics import YOLO

    from builders import GREEN, RED, provenance
    from data_contracts.bundle import ProbeLimit, Tolerance, VerdictRule
    from data_contracts.dataset import Split
    from quantise_fakes import config, working_copy
    from serving.bundle import open_bundle
    from tasks.evaluate import evaluate
    from tasks.export import ExportConfig, export
    from tasks.ground_truth import read_ground_truth
    from tasks.quantise import quantise
    from tasks.quantising.int8_tries import read_graph
    from tasks.seal import SealConfig, seal
    from training_fakes import EVALUATE

    torch.manual_seed(0)
    weights = folder / "first.pt"
    YOLO(architecture, task="detect").save(str(weights))
    export_config = ExportConfig(
        opset=17, simplify=True, layout=layout, nms_iou=0.7, max_candidates=3000, max_detections=300,
        largest_difference=0.01,
    )  # fmt: skip
    exported = export(weights, PX, folder / "export", export_config)
    names = exported.spec.class_names
    copy = working_copy(folder / "copy", px=PX, colours=(RED, GREEN))
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5,) * len(names), chosen_on="a test")
    far = Tolerance(box_px=50.0, score=0.5)
    seal_config = SealConfig(
        name="plates", golden_pictures=2, golden_score_floor=0.5, tolerances={"fp32": far, "int8": far},
        probe_pictures=4, probe_limits={"int8": ProbeLimit(max_flip_share=1.0, min_box_share=0.0)},
    )  # fmt: skip
    wide = config(max_loss=100.0, max_mean_loss=100.0)
    quantised = quantise(exported, rule, copy, wide, EVALUATE, seal_config, folder / "int8", lambda _: None)
    sealed = seal(
        exported, rule, read_ground_truth(copy, Split.VAL), provenance(), seal_config, folder / "bundles", quantised
    )
    test = read_ground_truth(copy, Split.TEST)
    results = [evaluate(sealed.path, test, names, Split.TEST, EVALUATE, one) for one in ("fp32", "int8")]
    graph = read_graph(exported.model)
    return {
        "layout": open_bundle(sealed.path).manifest.model.output.layout,
        "int8": sealed.int8,
        "reason": quantised.made.reason if quantised.made else "",
        "head": list(graph.head),
        "quantisable": list(graph.quantisable),
        "best": [[float(boxes.scores.max(initial=0.0)) for boxes in one.found] for one in results],
    }


if __name__ == "__main__":
    result = main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    print("RESULT " + json.dumps(result))
