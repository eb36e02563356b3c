"""Native annotation formats for tests: exporters of known boxes, and the reading of what an import wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
import yaml

from builders import encode, plate
from data_contracts.dataset import label_path_of
from tasks.importers import Imported, import_dataset

BoxPx = tuple[float, float, float, float]
"""left, top, right, bottom"""


@dataclass(frozen=True)
class Annotated:
    """A picture with its boxes: file name, displayed size, and class name with corners in pixels per box."""

    name: str
    wh: tuple[int, int]
    boxes: tuple[tuple[str, BoxPx], ...] = ()
    data: bytes | None = None

    def picture(self) -> bytes:
        """The bytes of the picture file."""
        return self.data or encode(plate(self.wh), "jpeg" if self.name.endswith("jpg") else "png")


def put(folder: Path, files: Mapping[str, bytes | str | object]) -> Path:
    """Write files: bytes and text as they are, everything else as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
        path.write_bytes(json.dumps(content).encode() if data is None else data)
    return folder


def export_yolo(folder: Path, pictures: Sequence[Annotated], names: Sequence[str]) -> None:
    """Boxes as fractions, in the train split."""
    put(folder, {"data.yaml": yaml.safe_dump({"train": "images/train", "names": list(names)})})
    for picture in pictures:
        (width, height), stem = picture.wh, PurePosixPath(picture.name).stem
        rows = [
            f"{names.index(name)} {(box[0] + box[2]) / 2 / width:.6f} {(box[1] + box[3]) / 2 / height:.6f} "
            f"{(box[2] - box[0]) / width:.6f} {(box[3] - box[1]) / height:.6f}\n"
            for name, box in picture.boxes
        ]
        put(folder, {f"images/train/{picture.name}": picture.picture(), f"labels/train/{stem}.txt": "".join(rows)})


def export_coco(folder: Path, pictures: Sequence[Annotated], names: Sequence[str]) -> None:
    """One JSON file, category ids from 1."""
    images, annotations = [], []
    for number, picture in enumerate(pictures):
        put(folder, {f"images/{picture.name}": picture.picture()})
        images.append({"id": number, "file_name": picture.name, "width": picture.wh[0], "height": picture.wh[1]})
        for name, (left, top, right, bottom) in picture.boxes:
            box = [left, top, right - left, bottom - top]
            annotations.append(
                {"id": len(annotations), "image_id": number, "category_id": names.index(name) + 1, "bbox": box}
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(names, start=1)]
    put(folder, {"train.json": {"images": images, "annotations": annotations, "categories": categories}})


def voc_xml(
    filename: str, wh: tuple[int, int], boxes: Sequence[tuple[str, BoxPx]], *, more: str = "", whole: bool = True
) -> str:
    """One Pascal VOC file; corners in whole pixels, as its tools write them."""
    objects = "".join(
        f"\n<object>\n<name>{name}</name><difficult>0</difficult><bndbox>"
        + "".join(
            f"<{tag}>{round(value) if whole else value}</{tag}>"
            for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        )
        + "</bndbox>\n</object>"
        for name, box in boxes
    )
    size = f"<size><width>{wh[0]}</width><height>{wh[1]}</height><depth>3</depth></size>"
    return f"<annotation>\n<filename>{filename}</filename>{size}{more}{objects}\n</annotation>\n"


def export_voc(folder: Path, pictures: Sequence[Annotated], _names: Sequence[str]) -> None:
    """JPEGImages and Annotations."""
    for picture in pictures:
        xml = voc_xml(picture.name, picture.wh, picture.boxes)
        stem = PurePosixPath(picture.name).stem
        put(folder, {f"JPEGImages/{picture.name}": picture.picture(), f"Annotations/{stem}.xml": xml})


def export_deeppcb(folder: Path, pictures: Sequence[Annotated], names: Sequence[str]) -> None:
    """A group with its text files, and the list of boards."""
    lines = []
    for picture in pictures:
        path = PurePosixPath(picture.name)
        rows = [
            " ".join(str(round(value)) for value in box) + f" {names.index(name) + 1}" for name, box in picture.boxes
        ]
        put(
            folder,
            {
                f"g1/{path.stem[:5]}/{path.stem}_test{path.suffix}": picture.picture(),
                f"g1/{path.stem[:5]}_not/{path.stem}.txt": "\n".join(rows),
            },
        )
        lines.append(f"g1/{path.stem[:5]}/{path.name} g1/{path.stem[:5]}_not/{path.stem}.txt")
    put(folder, {"trainval.txt": "\n".join(lines), "classes.txt": "\n".join(names)})


def export_masks(folder: Path, pictures: Sequence[Annotated], names: Sequence[str]) -> None:
    """Class ids from 1 in PNG masks."""
    for picture in pictures:
        mask = np.zeros(picture.wh[::-1], np.uint8)
        for name, box in picture.boxes:
            left, top, right, bottom = (round(value) for value in box)
            mask[top:bottom, left:right] = names.index(name) + 1
        stem = PurePosixPath(picture.name).stem
        data = cv2.imencode(".png", mask)[1].tobytes()
        put(folder, {f"images/{picture.name}": picture.picture(), f"masks/{stem}.png": data})
    put(folder, {"classes.txt": "\n".join(names)})


def labelme_json(picture: Annotated, **fields: object) -> dict[str, object]:
    """One LabelMe document with rectangles."""
    shapes = [
        {"label": name, "points": [[box[0], box[1]], [box[2], box[3]]], "shape_type": "rectangle", "flags": {}}
        for name, box in picture.boxes
    ]
    size = {"imageWidth": picture.wh[0], "imageHeight": picture.wh[1]}
    return {"version": "5.5.0", "shapes": shapes, "imagePath": picture.name, "imageData": None, **size, **fields}


def export_labelme(folder: Path, pictures: Sequence[Annotated], _names: Sequence[str]) -> None:
    """JSON beside the pictures."""
    for picture in pictures:
        stem = PurePosixPath(picture.name).stem
        put(folder, {picture.name: picture.picture(), f"{stem}.json": labelme_json(picture)})


def cvat_xml(labels: Sequence[str], images: str) -> str:
    """A CVAT document."""
    named = "".join(f"<label><name>{name}</name></label>" for name in labels)
    meta = f"<meta><job><labels>{named}</labels></job></meta>"
    return f'<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version>{meta}\n{images}</annotations>'


def export_cvat(folder: Path, pictures: Sequence[Annotated], names: Sequence[str]) -> None:
    """annotations.xml and images."""
    images = ""
    for number, picture in enumerate(pictures):
        put(folder, {f"images/{picture.name}": picture.picture()})
        boxes = "".join(
            f'<box label="{name}" xtl="{box[0]:.2f}" ytl="{box[1]:.2f}" xbr="{box[2]:.2f}" ybr="{box[3]:.2f}"/>\n'
            for name, box in picture.boxes
        )
        size = f'width="{picture.wh[0]}" height="{picture.wh[1]}"'
        images += f'<image id="{number}" name="{picture.name}" {size}>\n{boxes}</image>\n'
    put(folder, {"annotations.xml": cvat_xml(names, images)})


def region(name: str, box: BoxPx, wh: tuple[int, int], **value: object) -> dict[str, object]:
    """A rectangle of Label Studio."""
    left, top, right, bottom = box
    percent = {
        "x": left / wh[0] * 100, "y": top / wh[1] * 100,
        "width": (right - left) / wh[0] * 100, "height": (bottom - top) / wh[1] * 100,
    }  # fmt: skip
    return {
        "id": f"{name}-{left:g}-{top:g}", "type": "rectanglelabels", "original_width": wh[0], "original_height": wh[1],
        "value": {**percent, "rotation": 0, "rectanglelabels": [name], **value},
    }  # fmt: skip


def export_labelstudio(folder: Path, pictures: Sequence[Annotated], _names: Sequence[str]) -> None:
    """An export with uploaded pictures."""
    tasks = []
    for number, picture in enumerate(pictures):
        put(folder, {f"images/{picture.name}": picture.picture()})
        regions = [region(name, box, picture.wh) for name, box in picture.boxes]
        data = {"image": f"/data/upload/1/0123abcd-{picture.name}"}
        tasks.append({"id": number, "data": data, "annotations": [{"id": number, "result": regions}]})
    put(folder, {"export.json": tasks})


EXPORTERS: dict[str, Callable[[Path, Sequence[Annotated], Sequence[str]], None]] = {
    "yolo": export_yolo,
    "coco": export_coco,
    "voc": export_voc,
    "deeppcb": export_deeppcb,
    "masks": export_masks,
    "labelme": export_labelme,
    "cvat": export_cvat,
    "labelstudio": export_labelstudio,
}


def bring_in(folder: Path, source_format: str, **options: object) -> Imported:
    """Import `folder` beside itself."""
    target = folder.parent / f"{folder.name}-imported"
    return import_dataset(folder, source_format, target, **options)  # type: ignore[arg-type]


def boxes_of(imported: Imported, wh: tuple[int, int] | Mapping[str, tuple[int, int]]) -> dict[str, list[object]]:
    """Class and corners in pixels of every box, sorted, by picture name; None for a picture without a label file."""
    found: dict[str, list[object]] = {}
    for path in (PurePosixPath(path) for path in imported.origin if path.startswith("images/")):
        width, height = wh[path.name] if isinstance(wh, Mapping) else wh
        label = imported.folder / label_path_of(path)
        if not label.is_file():
            found[path.name] = None  # type: ignore[assignment]
            continue
        rows = [[float(field) for field in line.split()] for line in label.read_text().splitlines()]
        found[path.name] = sorted(
            (
                imported.class_names[int(row[0])],
                (
                    round((row[1] - row[3] / 2) * width, 3), round((row[2] - row[4] / 2) * height, 3),
                    round((row[1] + row[3] / 2) * width, 3), round((row[2] + row[4] / 2) * height, 3),
                ),
            )
            for row in rows
        )  # fmt: skip
    return found


def rules_of(imported: Imported) -> list[str]:
    """The rules of the findings that are no notices, sorted, each once."""
    return sorted({finding.rule for finding in imported.findings if finding.severity != "notice"})
