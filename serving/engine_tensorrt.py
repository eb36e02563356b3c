"""TensorRT through ONNX Runtime. The engine is built on the host that runs it, before the host says that it is ready.

A build takes minutes; kept on the disk it takes seconds to load. What is kept may be unreadable, through a damaged disk
or a library that was exchanged in place: then it is thrown away and built once more, and if that fails too the wish
cannot be had.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data_contracts.bundle import ModelSpec
from data_contracts.errors import PasslineError
from serving import gpu, ort
from serving.bundle import hash_file
from serving.engine_cache import BuildHost, EngineFolder, EngineKey
from serving.engine_onnxruntime import (
    CUDA_OPTIONS,
    PROVIDER_NAMES,
    OnnxEngine,
    ProviderList,
    check_session,
    new_session,
    require_compiled_in,
    require_first,
)
from serving.engine_types import EngineOptions, Unusable, model_file_for

SAY_EVERY_S = 5.0
DIGEST_DIGITS = 64
Say = Callable[[str], None]
_log = logging.getLogger("passline.engines")


def open_tensorrt(model: Path, spec: ModelSpec, options: EngineOptions, say: Say = _log.info) -> OnnxEngine:
    """The engine, loaded or built. Raises Unusable when it cannot be had, BundleError for a file that is not ours."""
    require_compiled_in("tensorrt")
    model_file = model_file_for(model, options.precision)
    ort.load_gpu_libraries()
    if options.engine_cache is None:
        return _open_or_raise(model_file, spec, options, None, say)
    folder = EngineFolder(options.engine_cache, engine_key(model_file, spec, options))
    with folder.locked():
        folder.prepare()
        if folder.is_whole:
            try:
                return _open(model_file, spec, options, folder, say)
            except (Unusable, PasslineError):
                raise
            except Exception as error:  # noqa: BLE001  ONNX Runtime's errors have no common base below it
                say(f"the TensorRT engine in {folder.path} does not load, building it again: {error}")
                folder.discard()
                folder.prepare()
        engine = _open_or_raise(model_file, spec, options, folder, say)
        folder.finish()
        return engine


def engine_key(model_file: Path, spec: ModelSpec, options: EngineOptions) -> EngineKey:
    """For what an engine made here and now would be good. Raises Unusable without a GPU or TensorRT."""
    facts = gpu.read_gpu()
    parent = model_file.absolute().parent.name
    return EngineKey(
        bundle=parent if len(parent) == DIGEST_DIGITS else "",
        model=hash_file(model_file).sha256,
        precision=options.precision,
        shapes=" to ".join((profile(spec, 1), profile(spec, options.max_batch))),
        workspace_bytes=options.workspace_bytes,
        host=BuildHost(
            onnxruntime=ort.onnxruntime.__version__,
            tensorrt=gpu.tensorrt_version(),
            driver=facts.driver,
            gpu=facts.name,
            capability=facts.capability,
        ),
    )


def _open_or_raise(
    model_file: Path, spec: ModelSpec, options: EngineOptions, folder: EngineFolder | None, say: Say
) -> OnnxEngine:
    """As `_open`, with whatever goes wrong as the reason why the engine cannot be had."""
    try:
        return _open(model_file, spec, options, folder, say)
    except (Unusable, PasslineError):
        raise
    except Exception as error:
        raise Unusable(f"TensorRT gives no engine: {error}") from error


def _open(
    model_file: Path, spec: ModelSpec, options: EngineOptions, folder: EngineFolder | None, say: Say
) -> OnnxEngine:
    words = "loading" if folder and folder.is_whole else "building"
    with reported(f"{words} TensorRT engine {options.precision} for {model_file.parent.name[:12]}", say):
        session = new_session(model_file, options, providers_for(spec, options, folder))
        require_first("tensorrt", session)
        check_session(model_file, session, spec)
        _first_calls(session, spec, options.max_batch)
    return OnnxEngine(session, spec, "tensorrt", options)


def _first_calls(session: Any, spec: ModelSpec, max_batch: int) -> None:
    """The provider may build, or read what it kept, no sooner than at the first call: make it now."""
    width, height = spec.input.wh
    for size in sorted({1, max_batch}):
        session.run([spec.output.tensor], {spec.input.tensor: np.zeros((size, 3, height, width), np.float32)})


def providers_for(spec: ModelSpec, options: EngineOptions, folder: EngineFolder | None) -> ProviderList:
    """TensorRT first; CUDA and the CPU for single nodes that it does not take."""
    return [
        (PROVIDER_NAMES["tensorrt"], tensorrt_options(spec, options, folder)),
        (PROVIDER_NAMES["cuda"], CUDA_OPTIONS),
        PROVIDER_NAMES["cpu"],
    ]


def tensorrt_options(spec: ModelSpec, options: EngineOptions, folder: EngineFolder | None) -> dict[str, str]:
    """The provider's options: one engine for all batches from one picture to the largest, fastest at the largest.

    A quantised file names the scales itself; what it leaves in float runs in FP16.
    """
    wished = {
        "trt_fp16_enable": "1" if options.precision in ("fp16", "int8") else "0",
        "trt_int8_enable": "1" if options.precision == "int8" else "0",
        "trt_profile_min_shapes": profile(spec, 1),
        "trt_profile_opt_shapes": profile(spec, options.max_batch),
        "trt_profile_max_shapes": profile(spec, options.max_batch),
    }
    if options.workspace_bytes is not None:
        wished["trt_max_workspace_size"] = str(options.workspace_bytes)
    if folder is not None:
        wished |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(folder.path)}
        wished |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(folder.timing)}
    return wished


def profile(spec: ModelSpec, batch: int) -> str:
    """A shape as the provider reads it: `images:8x3x640x640`."""
    width, height = spec.input.wh
    return f"{spec.input.tensor}:{batch}x3x{height}x{width}"


@contextmanager
def reported(words: str, say: Say, every_s: float = SAY_EVERY_S) -> Iterator[None]:
    """Say every few seconds that it still goes on, and how long it took when it took longer than that."""
    started, over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not over.wait(every_s):
            say(f"{words} ... {time.monotonic() - started:.0f} s")

    teller = threading.Thread(target=tell, name="engine-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        if time.monotonic() - started > every_s:
            say(f"{words}: over after {time.monotonic() - started:.0f} s")
