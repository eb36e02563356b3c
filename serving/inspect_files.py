"""`passline inspect IMAGE...`: picture files in, one line of answer per file out.

A service answers (`url`), or a bundle on this disk does (`bundle`). A file that cannot be inspected is reported under
its name, and the others go on. A folder stands for the picture files in it, in the order of their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import httpx
from pydantic import ValidationError

from data_contracts.base import Contract, WidthHeight
from data_contracts.detections import Detection, Verdict
from data_contracts.errors import InvalidInput, OutsideSystemError, PasslineError, Problem
from data_contracts.inspection import Inspection, ProblemDetails, ReleaseRef
from serving.annotate import draw_detections, encode_image
from serving.bundle import open_bundle
from serving.cpus import threads_from_quota
from serving.detector import check_golden, open_detector
from serving.engines import EngineOptions
from serving.images import ImageLimits, decode_image
from serving.settings import HostSettings
from serving.verdict import judge, score_floor

TIMEOUT_S = 60.0
PICTURE_NAMES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"))
"""What counts in a folder. A file that is named itself counts whatever its name is."""
MOST_BYTES = 2**30


class FileAnswer(Contract):
    """What was found in one picture."""

    verdict: Verdict
    detections: tuple[Detection, ...]
    image_wh: WidthHeight
    release: ReleaseRef


class FileInspection(Contract):
    """One file: an answer, or the error that stands in its place, or both where only the drawing failed."""

    file: str
    answer: FileAnswer | None = None
    annotated: str | None = None
    error: str | None = None


Inspector = Callable[[bytes], FileAnswer]


def inspect_files(
    paths: Iterable[Path], *, url: str | None = None, bundle: Path | None = None, annotate_dir: Path | None = None
) -> list[FileInspection]:
    """Inspect each file, in order. With `annotate_dir`, a drawing of each is written there.

    Raises InvalidInput unless exactly one of `url` and `bundle` is given, BundleError for a bad bundle and
    OutsideSystemError when nobody answers at `url`.
    """
    if (url is None) == (bundle is None):
        got = "both" if url else "neither"
        raise InvalidInput(Problem("inspect", "a service's URL or a bundle folder", got, "Give one of the two."))
    taken: set[Path] = set()
    with _open_inspector(url, bundle) as inspect:
        return [_inspect_file(path, inspect, annotate_dir, taken) for path in _files(paths)]


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files to inspect; a folder without any stays, to be reported."""
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else []
        pictures = [one for one in inside if one.suffix.lower() in PICTURE_NAMES and not one.name.startswith(".")]
        yield from pictures or (path,)


def _open_inspector(url: str | None, bundle: Path | None) -> AbstractContextManager[Inspector]:
    if bundle is not None:
        return nullcontext(_bundle_inspector(bundle))
    return _ServiceInspector(str(url))


def _inspect_file(path: Path, inspect: Inspector, annotate_dir: Path | None, taken: set[Path]) -> FileInspection:
    name, answer, annotated = _shown(path), None, None
    try:
        data = _read(path)
        answer = inspect(data)
        annotated = _annotate(path, data, answer, annotate_dir, taken) if annotate_dir else None
    except OSError as error:
        reason = f"{error.strerror}: {_shown(error.filename)}" if error.filename else str(error)
        return FileInspection(file=name, answer=answer, error=reason)
    except PasslineError as error:
        return FileInspection(file=name, answer=answer, error=str(error))
    return FileInspection(file=name, answer=answer, annotated=annotated and _shown(annotated))


def _shown(path: Path | str) -> str:
    """A name as it can be printed: not every file name is text."""
    return os.fsencode(path).decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise InvalidInput(Problem("folder", "picture files in it", "none", "Name a picture."))
    if path.exists() and not path.is_file():
        raise InvalidInput(Problem("file", "a plain file", "something else", "Name a picture."))
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InvalidInput(Problem("file", f"at most {MOST_BYTES} bytes", f"{size}", "Is it a picture?"))
    return path.read_bytes()


def _limits() -> ImageLimits:
    """The limits that a host has unless it is told otherwise."""
    settings = HostSettings()
    return ImageLimits(settings.max_bytes, settings.max_pixels, settings.min_side_px)


def _bundle_inspector(folder: Path) -> Inspector:
    opened = open_bundle(folder)
    options = EngineOptions(provider="cpu", allow_fallback=False, threads=threads_from_quota(1))
    detector, manifest, limits = open_detector(opened, options), opened.manifest, _limits()
    check_golden(detector, opened)
    release = ReleaseRef(digest=opened.digest, name=manifest.name, version=manifest.version)

    def inspect(data: bytes) -> FileAnswer:
        image = decode_image(data, limits)
        (found,) = detector.detect([image], score_floor(manifest.verdict))
        verdict, over = judge(found, manifest.verdict)
        return FileAnswer(
            verdict=verdict,
            detections=over.records(manifest.model.class_names),
            image_wh=(image.shape[1], image.shape[0]),
            release=release,
        )

    return inspect


class _ServiceInspector:
    """Posts each picture as it is to `/v1/inspect`."""

    def __init__(self, url: str) -> None:
        self._base = url.rstrip("/")
        self._url = f"{self._base}/v1/inspect"
        self._client = httpx.Client(timeout=TIMEOUT_S)

    def __enter__(self) -> Inspector:
        """Said once for all pictures: nobody answers."""
        try:
            self._client.get(f"{self._base}/livez")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._client.close()
            raise self._no_answer(error) from error
        return self._inspect

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def _inspect(self, data: bytes) -> FileAnswer:
        headers = {"Content-Type": "application/octet-stream"}
        try:
            response = self._client.post(self._url, content=data, headers=headers)
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        return _answer_of(response, self._url)

    def _no_answer(self, error: Exception) -> OutsideSystemError:
        action = "Is the service up? See `passline status`, or inspect with `--bundle`."
        return OutsideSystemError(Problem(self._base, "an answer of the service", str(error) or repr(error), action))


def _answer_of(response: httpx.Response, url: str) -> FileAnswer:
    try:
        if response.status_code != httpx.codes.OK:
            problem = ProblemDetails.model_validate_json(response.content)
            raise InvalidInput(f"{problem.title} ({problem.status}): {problem.detail}")
        answer = Inspection.model_validate_json(response.content)
    except ValidationError:
        got = f"status {response.status_code} with {response.text[:80]!r}"
        action = "Is this the address of a Passline service?"
        raise OutsideSystemError(Problem(url, "an inspection", got, action)) from None
    return FileAnswer(
        verdict=answer.verdict, detections=answer.detections, image_wh=answer.image_wh, release=answer.release
    )


def _annotate(path: Path, data: bytes, answer: FileAnswer, folder: Path, taken: set[Path]) -> Path:
    """Write the drawing as `<stem>-inspected.png`, numbered when two pictures share a stem."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_detections(decode_image(data, _limits()), answer.detections, answer.verdict)
    number, target = 2, folder / f"{path.stem}-inspected.png"
    while target in taken:
        number, target = number + 1, folder / f"{path.stem}-inspected-{number}.png"
    taken.add(target)
    target.write_bytes(encode_image(drawn, "png"))
    return target
