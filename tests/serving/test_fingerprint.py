from __future__ import annotations

from pathlib import Path

import pytest

from serving import fingerprint
from serving.fingerprint import serving_fingerprint
from serving.settings import HostSettings

SETTINGS = HostSettings(store=Path("/somewhere"))


def test_it_is_the_same_for_the_same() -> None:
    assert serving_fingerprint(SETTINGS) == serving_fingerprint(SETTINGS.model_copy())


@pytest.mark.parametrize(
    "changes", [{"service_port": 3001}, {"threads": 2}, {"store": Path("/elsewhere")}, {"max_batch": 1}], ids=str
)
def test_another_setting_changes_it(changes: dict[str, object]) -> None:
    assert serving_fingerprint(SETTINGS.model_copy(update=changes)) != serving_fingerprint(SETTINGS)


def test_another_library_version_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = serving_fingerprint(SETTINGS)
    monkeypatch.setattr(fingerprint, "library_versions", lambda names: dict.fromkeys(names, "0.0.1"))
    assert serving_fingerprint(SETTINGS) != before


def test_another_source_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(fingerprint.serving, "__path__", [str(tmp_path)])
    before = serving_fingerprint(SETTINGS)
    (tmp_path / "a.py").write_text("x = 2\n")
    assert serving_fingerprint(SETTINGS) != before
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.txt").write_text("no source")
    assert serving_fingerprint(SETTINGS) == before
