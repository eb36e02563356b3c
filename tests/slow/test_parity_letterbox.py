"""Reading, letterbox, boxes and suppression against Ultralytics itself. Importing it takes seconds, hence slow."""

from __future__ import annotations

import warnings

import cv2
import numpy as np
import pytest

import builders
from builders import encode, model_spec, noisy_plate
from data_contracts.bundle import NmsSettings
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX, boxes_to_image, fit_letterbox
from picture_files import READ
from serving.images import ImageLimits, read_image
from serving.postprocess import boxes_of
from serving.preprocess import letterbox_image, to_tensor

RULE = ULTRALYTICS_LETTERBOX


@pytest.fixture(scope="module")
def ultralytics(tmp_path_factory):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        import torch
        import torchvision  # noqa: F401  Ultralytics uses its NMS when it is imported
        from ultralytics.data.augment import LetterBox
        from ultralytics.utils.nms import non_max_suppression
        from ultralytics.utils.ops import scale_boxes
        from ultralytics.utils.patches import imread

        return {
            "torch": torch,
            "LetterBox": LetterBox,
            "nms": non_max_suppression,
            "scale": scale_boxes,
            "imread": imread,
        }


def many_sizes(seed: int, count: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    fixed = [(640, 200), (200, 640), (641, 333), (1, 1), (1, 3000), (3000, 1), (160, 160), (159, 161), (2448, 100)]
    return fixed + [(int(w), int(h)) for w, h in rng.integers(1, 900, (count, 2))]


@pytest.mark.parametrize("input_wh", [(64, 64), (160, 160), (192, 160)], ids=str)
def test_the_letterboxed_pixels_are_the_same(ultralytics, input_wh):
    theirs = ultralytics["LetterBox"](new_shape=(input_wh[1], input_wh[0]), auto=False)
    for number, wh in enumerate(many_sizes(1, 60)):
        image = noisy_plate(wh, seed=number)
        ours = letterbox_image(image, fit_letterbox(wh, input_wh, RULE), RULE)
        np.testing.assert_array_equal(ours, theirs(image=image), err_msg=str(wh))


def test_the_place_is_the_same_for_every_size(ultralytics):
    """Geometry alone, from Ultralytics' own numbers, for thousands of sizes."""
    for input_side in (160, 320, 640):
        theirs = ultralytics["LetterBox"](new_shape=(input_side, input_side), auto=False)
        for wh in many_sizes(2, 2000):
            numbers = theirs.get_params({"img": np.empty((wh[1], wh[0], 0), np.uint8)})
            ours = fit_letterbox(wh, (input_side, input_side), RULE)
            assert (ours.resized_wh, ours.pad_xy_px) == (numbers["new_unpad"], (numbers["left"], numbers["top"])), wh


def test_boxes_come_back_to_the_same_place(ultralytics):
    rng = np.random.default_rng(3)
    for wh in many_sizes(3, 500):
        boxes = rng.uniform(-10, 170, (20, 4)).astype(np.float32)
        theirs = ultralytics["scale"]((160, 160), boxes.copy(), (wh[1], wh[0]))
        ours = boxes_to_image(boxes, fit_letterbox(wh, (160, 160), RULE))
        np.testing.assert_allclose(ours, theirs, atol=max(wh) * 1e-5, rtol=0, err_msg=str(wh))


def test_the_tensor_is_the_same_to_the_last_bit(ultralytics):
    """As in Ultralytics' prediction: letterbox on BGR, then RGB, channels first, float, divided by 255."""
    torch = ultralytics["torch"]
    image = noisy_plate((641, 333))
    bgr = ultralytics["LetterBox"](new_shape=(160, 160), auto=False)(image=image[..., ::-1].copy())
    theirs = torch.from_numpy(np.ascontiguousarray(bgr[..., ::-1].transpose(2, 0, 1))).float() / 255
    ours, _ = to_tensor(image, model_spec(wh=(160, 160)))
    np.testing.assert_array_equal(ours, theirs.numpy())


def random_output(seed: int, classes: int, anchors: int) -> np.ndarray:
    """A crowded raw output: many anchors on few places, so that suppression has work to do."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(20, 620, (anchors // 20 + 1, 2))[rng.integers(0, anchors // 20 + 1, anchors)]
    centres = places + rng.normal(0, 6, (anchors, 2))
    sizes = rng.uniform(10, 90, (anchors, 2))
    scores = rng.random((anchors, classes)) ** 3
    return np.hstack([centres, sizes, scores]).T.astype(np.float32)


@pytest.mark.parametrize("classes", [1, 3, 20])
@pytest.mark.parametrize("iou", [0.3, 0.45, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_suppression_is_the_same(ultralytics, classes, iou, seed):
    output = random_output(seed, classes, 800)
    tensor = ultralytics["torch"].from_numpy(output[None].copy())
    (theirs,) = ultralytics["nms"](tensor, conf_thres=0.1, iou_thres=iou, max_det=100)
    nms = NmsSettings(iou=iou, max_candidates=30_000, max_detections=100)
    spec = model_spec([f"c{number}" for number in range(classes)], (640, 640), nms=nms)
    ours = boxes_of(output, spec, fit_letterbox((640, 640), (640, 640), RULE), 0.1)
    assert len(ours) > 20
    np.testing.assert_array_equal(ours.scores, theirs[:, 4].numpy())
    np.testing.assert_array_equal(ours.class_ids, theirs[:, 5].numpy())
    np.testing.assert_array_equal(ours.boxes_xyxy_px, np.clip(theirs[:, :4].numpy(), 0, 640))


def tied(output: np.ndarray) -> np.ndarray:
    """Only ten different scores: most boxes tie with others."""
    output[4:] = np.ceil(output[4:] * 10) / 10
    return output


def on_one_place(output: np.ndarray) -> np.ndarray:
    """All boxes the same."""
    output[:4] = [[320], [320], [50], [50]]
    return output


def flat(output: np.ndarray) -> np.ndarray:
    """Boxes without area."""
    output[3] = 0
    return output


CROWDS = {
    "ties": (tied, 800, 300, 30_000),
    "ties of one place": (lambda output: tied(on_one_place(output)), 400, 300, 30_000),
    "without area": (flat, 400, 300, 30_000),
    "more than may be found": (lambda output: output, 8400, 20, 30_000),
    "more candidates than the cap": (lambda output: output, 8400, 300, 500),
}
"""Ties at the cap are left out: there Ultralytics' own sort picks any of them."""


@pytest.mark.parametrize(("shape", "anchors", "found", "candidates"), CROWDS.values(), ids=CROWDS)
def test_suppression_is_the_same_in_crowds(ultralytics, shape, anchors, found, candidates):
    output = shape(random_output(1, 3, anchors))
    tensor = ultralytics["torch"].from_numpy(output[None].copy())
    (theirs,) = ultralytics["nms"](tensor, conf_thres=0.05, iou_thres=0.5, max_det=found, max_nms=candidates)
    spec = model_spec("abc", (640, 640), nms=NmsSettings(iou=0.5, max_candidates=candidates, max_detections=found))
    ours = boxes_of(output, spec, fit_letterbox((640, 640), (640, 640), RULE), 0.05)
    np.testing.assert_array_equal(ours.scores, theirs[:, 4].numpy())
    # Which of several equal scores comes first is nobody's promise: where there are ties, the boxes are a set.
    rows = [np.hstack([ours.boxes_xyxy_px, ours.scores[:, None], ours.class_ids[:, None]]), theirs.numpy()]
    rows[1][:, :4] = rows[1][:, :4].clip(0, 640)
    np.testing.assert_array_equal(*(table[np.lexsort(table.T)].astype(np.float32) for table in rows))


def test_an_end_to_end_output_is_cut_the_same_way(ultralytics):
    rng = np.random.default_rng(0)
    rows = np.hstack(
        [rng.uniform(0, 300, (300, 2)), rng.uniform(300, 640, (300, 2)), np.sort(rng.random((300, 1)), 0)[::-1]]
    )
    output = np.hstack([rows, rng.integers(0, 3, (300, 1))]).astype(np.float32)
    (theirs,) = ultralytics["nms"](ultralytics["torch"].from_numpy(output[None].copy()), conf_thres=0.25, max_det=100)
    nms = NmsSettings(iou=0.1, max_candidates=30_000, max_detections=100)
    spec = model_spec("abc", (640, 640), layout="end_to_end", nms=nms)
    ours = boxes_of(output, spec, fit_letterbox((640, 640), (640, 640), RULE), 0.25)
    assert len(ours) == 100
    np.testing.assert_array_equal(ours.boxes_xyxy_px, theirs[:, :4].numpy())
    np.testing.assert_array_equal(ours.scores, theirs[:, 4].numpy())


LIMITS = ImageLimits(2**26, 2**26)


@pytest.mark.parametrize("name", READ)
def test_the_trainer_s_reader_gives_the_same_pixels_of_every_kind(ultralytics, tmp_path, name):
    """A12: what the service reads, the trainer reads the same way."""
    file = tmp_path / ("picture.tif" if "tiff" in name else "picture.png")
    file.write_bytes(READ[name][0])
    theirs = ultralytics["imread"](file, cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(read_image(file, LIMITS)[..., ::-1], theirs)


def test_the_trainer_s_reader_sees_the_same_pixels(ultralytics):
    folder = builders.shared_data()
    files = sorted((folder / "nasty").iterdir())
    for dataset in ("neu-det-yolo", "deeppcb-yolo", "magnetic-tile-yolo", "kolektor-sdd-yolo", "lpbf-metal-yolo"):
        pictures = sorted(path for path in (folder / dataset).rglob("*") if path.suffix in (".jpg", ".png", ".bmp"))
        files += pictures[::25]
    compared = 0
    for file in files:
        try:
            ours = read_image(file, LIMITS)
        except Exception:  # noqa: BLE001, S112  refusing is another test's matter
            continue
        theirs = ultralytics["imread"](file, cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(ours[..., ::-1], theirs, err_msg=file.name)
        compared += 1
    assert compared > 60


TURNED = [(kind, orientation) for kind in ("jpeg", "png", "webp", "tiff") for orientation in (None, 2, 3, 5, 6, 8)]


@pytest.mark.parametrize(("kind", "orientation"), [*TURNED, ("bmp", None)])
def test_the_trainer_s_reader_turns_pictures_the_same_way(ultralytics, tmp_path, kind, orientation):
    file = tmp_path / f"picture.{kind}"
    file.write_bytes(encode(noisy_plate((80, 40)), kind, orientation))
    theirs = ultralytics["imread"](file, cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(read_image(file, LIMITS)[..., ::-1], theirs)
