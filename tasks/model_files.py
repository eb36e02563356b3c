"""Where the file lies that a training starts from. Imports neither Ultralytics nor torch: looking is cheap."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from data_contracts.errors import Problem

ARCHITECTURES = Path(__file__).parent / "architectures"


def find_model(model: str, weights_home: Path) -> Path | None:
    """The file that `model` names, or None; imports nothing.

    Looked for as a path, then by name among the weights in `weights_home`, the architectures of this project and those
    that come with Ultralytics (where `yolov8n.yaml` is scale n of `yolov8.yaml`).
    """
    given = Path(model)
    if given.suffix == ".pt":
        return next((path for path in (given, weights_home / given.name) if path.is_file()), None)
    if given.suffix not in (".yaml", ".yml"):
        return None
    own = next((path for path in (given, ARCHITECTURES / given.name) if path.is_file()), None)
    return own or _built_in_architecture(given.name)


def _built_in_architecture(name: str) -> Path | None:
    spec = importlib.util.find_spec("ultralytics")
    if spec is None or spec.origin is None:
        return None
    names = (name, re.sub(r"(\d+)([nslmx])(.+)$", r"\1\3", name))
    folder = Path(spec.origin).parent / "cfg" / "models"
    found = next((path for wanted in names for path in sorted(folder.rglob(wanted))), None)
    return found and found.with_name(name)


def missing_model(model: str, weights_home: Path) -> Problem:
    """The words for a model file that is not here."""
    return Problem(
        f"train.model {model!r}",
        "an architecture (.yaml: a path, 'pico.yaml', or a name that Ultralytics brings) or a weights file (.pt)",
        "no such file",
        f"Give the path of an existing file, put the weights into {weights_home}, or set train.allow_download.",
    )
