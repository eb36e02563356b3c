"""What a running service is made of, as one hash: two that differ must not be taken for the same."""

from __future__ import annotations

from pathlib import Path

import data_contracts
import serving
from data_contracts.base import canonical_json, sha256_of
from serving.library_versions import library_versions
from serving.settings import HostSettings, load_host_settings

LIBRARIES = (
    "bentoml",
    "fastapi",
    "numpy",
    "onnxruntime",
    "onnxruntime-gpu",
    "opencv-python-headless",
    "openvino",
    "prometheus-client",
    "pydantic",
    "python-multipart",
    "starlette",
    "uvicorn",
)


def serving_fingerprint(settings: HostSettings) -> str:
    """SHA-256 over the sources of `serving` and `data_contracts`, the libraries that matter and the host's settings.

    A service that reports another one than its operator computes runs other code or another configuration.
    """
    return sha256_of(
        canonical_json(
            {
                "sources": {package.__name__: _sources(package.__path__[0]) for package in (data_contracts, serving)},
                "libraries": library_versions(LIBRARIES),
                "settings": settings.model_dump(mode="json"),
            }
        )
    )


def _sources(folder: str) -> dict[str, str]:
    """SHA-256 per source file, by its path in the package."""
    root = Path(folder)
    return {path.relative_to(root).as_posix(): sha256_of(path.read_bytes()) for path in sorted(root.rglob("*.py"))}


if __name__ == "__main__":
    print(serving_fingerprint(load_host_settings()))
