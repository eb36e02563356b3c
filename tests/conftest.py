"""Markers by folder: what lies in tests/slow is slow."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

SLOW = Path(__file__).parent / "slow"


def pytest_configure() -> None:
    """No search for garbage while the tests are collected: there is none."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder, and run the slow ones last."""
    for item in items:
        if SLOW in item.path.parents:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_collection_finish() -> None:
    """What was imported stays for good: no search for garbage looks at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()
