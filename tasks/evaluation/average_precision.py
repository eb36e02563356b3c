"""Average precision as COCO defines it, by faster-coco-eval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from tasks.ground_truth import GroundTruth


@dataclass(frozen=True, eq=False)
class AveragePrecisions:
    """By class, float64 (classes,): at IoU 0.5, and the mean over IoU 0.5 to 0.95. NaN: no true box of the class."""

    at_50: npt.NDArray[np.float64]
    at_50_95: npt.NDArray[np.float64]

    @property
    def means(self) -> tuple[float | None, float | None]:
        """mAP50 and mAP50-95 over the classes that have true boxes; None when there are none."""
        known = ~np.isnan(self.at_50)
        if not known.any():
            return None, None
        return float(self.at_50[known].mean()), float(self.at_50_95[known].mean())


def average_precisions(
    truth: Sequence[GroundTruth], found: Sequence[Detections], class_count: int, max_detections: int
) -> AveragePrecisions:
    """AP by class over all pictures: 101 recall points, the best `max_detections` boxes of each picture and class."""
    from faster_coco_eval import COCO, COCOeval_faster

    true_set = COCO(_coco_dataset(truth, class_count))
    judge = COCOeval_faster(true_set, true_set.loadRes(_coco_results(found)), "bbox")
    judge.params.maxDets = [max_detections]
    judge.evaluate()
    judge.accumulate()
    # (IoU thresholds, recall points, classes, areas, detection limits); -1 where a class has no true box
    precision = np.asarray(judge.eval["precision"], np.float64)[:, :, :, 0, 0]
    precision[precision < 0] = np.nan
    by_iou = precision.mean(axis=1)
    return AveragePrecisions(by_iou[0], by_iou.mean(axis=0))


def _coco_dataset(truth: Sequence[GroundTruth], class_count: int) -> dict[str, Any]:
    """Ids start at 1, as in COCO's own files: some tools take an id of 0 as "none"."""
    boxes = [
        (picture, class_id, box)
        for picture, true in enumerate(truth, start=1)
        for class_id, box in zip(true.class_ids, true.boxes_xyxy_px, strict=True)
    ]
    return {
        "images": [
            {"id": number, "width": true.image_wh[0], "height": true.image_wh[1]}
            for number, true in enumerate(truth, 1)
        ],
        "categories": [{"id": number, "name": str(number)} for number in range(1, class_count + 1)],
        "annotations": [
            {
                "id": number,
                "image_id": picture,
                "category_id": int(class_id) + 1,
                "bbox": _xywh(box),
                "area": float((box[2] - box[0]) * (box[3] - box[1])),
                "iscrowd": 0,
            }
            for number, (picture, class_id, box) in enumerate(boxes, start=1)
        ],
    }


def _coco_results(found: Sequence[Detections]) -> list[dict[str, Any]]:
    return [
        {"image_id": picture, "category_id": int(class_id) + 1, "bbox": _xywh(box), "score": float(score)}
        for picture, boxes in enumerate(found, start=1)
        for box, score, class_id in zip(boxes.boxes_xyxy_px, boxes.scores, boxes.class_ids, strict=True)
    ]


def _xywh(box: npt.NDArray[np.floating]) -> list[float]:
    left, top, right, bottom = (float(side) for side in box)
    return [left, top, right - left, bottom - top]
