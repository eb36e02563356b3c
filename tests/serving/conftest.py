"""The door of the service, for the tests of what comes in and goes out. Other tests here do not pay for its imports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from door import Door


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    import builders
    from door import Door
    from serving.bundle import open_bundle
    from serving.detector import open_detector

    bundle = open_bundle(builders.first_bundle(tmp_path_factory.mktemp("bundle")))
    door = Door(bundle, open_detector(bundle, builders.CPU), tmp_path_factory.mktemp("store"))
    yield door
    door.host.stop()


@pytest.fixture
def door(opened: Door) -> Door:
    opened.start()
    return opened
