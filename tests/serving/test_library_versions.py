"""Versions of libraries, there or not."""

from __future__ import annotations

import numpy as np

from serving.library_versions import library_versions


def test_one_that_is_there_has_its_version_and_one_that_is_not_has_none() -> None:
    assert library_versions(["no-such-library", "numpy"]) == {"no-such-library": None, "numpy": np.__version__}
