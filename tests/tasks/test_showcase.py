"""What a run leaves for people: the numbers in short, and the links to its records."""

from __future__ import annotations

from pathlib import Path

from made_case import made_case
from tasks import showcase


class Records:
    """Stands for MLflow; remembers what was uploaded."""

    logged: list[tuple[str, str, str]]

    def __init__(self, url: str) -> None:
        self.url = url

    def log_folder(self, run_id: str, source: Path, folder: str) -> None:
        files = sorted(path for path in source.rglob("*") if path.is_file())
        Records.logged += [(run_id, str(path.relative_to(source)), folder) for path in files]

    def run_url(self, run_id: str, public_url: str) -> str:
        return f"{public_url}/runs/{run_id}"


def test_the_data_report_lies_beside_the_run_and_is_linked(tmp_path, monkeypatch):
    links: dict[str, str] = {}
    Records.logged = []
    monkeypatch.setattr(showcase, "Registry", Records)
    monkeypatch.setattr(showcase, "leave_link", lambda key, url, text: links.update({key: url}))
    for name in ("data_report.html", "validation.json", "quarantine.csv", "data_docs/index.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    showcase.leave_links.fn("http://a", "http://public", "run1", tmp_path / "data_report.html")
    assert Records.logged == [
        ("run1", name, "data")
        for name in ("data_docs/index.html", "data_report.html", "quarantine.csv", "validation.json")
    ]
    assert links == {
        "mlflow-run": "http://public/runs/run1",
        "data-report": "http://public/runs/run1/artifacts/data/data_report.html",
    }


def test_numbers_stand_with_their_ranges(tmp_path):
    case = made_case(tmp_path, pictures=20, with_int8=False)
    ours, theirs = case.evidence.candidate, case.evidence.champion
    assert theirs
    told = showcase.metrics_markdown(ours, theirs)
    for one in (ours, theirs):
        assert one.intervals
        assert one.intervals.map50
        assert f"{one.map50:.3f} ({one.intervals.map50.low:.3f} to {one.intervals.map50.high:.3f})" in told
    assert showcase.metrics_markdown(ours, None).count("to") < told.count("to")
