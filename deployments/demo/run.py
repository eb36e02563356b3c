"""`passline demo`: the main job from nothing to an inspected picture, on this machine.

Data are generated and pinned while the stack starts; then `retrain` runs through its deployment, as it does at night,
and unseen pictures go to the endpoint as a line would send them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from data_contracts.dataset import DatasetPin
from data_contracts.errors import OutsideSystemError, Problem
from data_contracts.release import now
from deployments.cli_training import enter_training_side
from deployments.demo.collect import inspect_held_out, interpreters, read_outcome
from deployments.demo.plates import PlateCounts, held_out_folder, write_plates
from deployments.demo.report import report_picture, write_report
from deployments.demo.report_model import DatasetFacts, DemoReport, ServiceFacts, Urls
from deployments.demo.summary import summary_table
from deployments.deploy import deploy
from deployments.environment import StackSettings
from deployments.follow import RunEnd, follow_run, start_retrain
from deployments.params import load_params
from deployments.stack import Stack, check_tools
from serving.status import service_status
from tasks.dataset_repo import add_dataset
from tasks.settings import load_site_settings

SEED = 7
COUNTS = PlateCounts(train=216, val=32, test=80, held_out=8)
Say = Callable[[str], None]


def run_demo(say: Say) -> DemoReport:
    """The whole demonstration; leaves the stack up. On Ctrl-C and on any failure to start, nothing is left running.

    Raises OutsideSystemError when the retraining itself fails; the stack then stays up for a look.
    """
    check_tools()
    settings = enter_training_side()
    stack, seconds = Stack(settings), dict[str, float]()
    try:
        pin = _prepare(stack, settings, seconds, say)
        params = load_params(settings.project / "params.yaml")
        say("retrain: started through its deployment")
        with _timed(seconds, "retrain, in all"):
            run_id = start_retrain(params.job, params.promote)
            end = follow_run(run_id, say)
        if not end.completed:
            raise OutsideSystemError(
                Problem(
                    f"retrain run {run_id}", "Completed", f"{end.name}: {end.message}", f"See {settings.prefect_url}."
                )
            )
        report = _report(settings, str(run_id), pin, end, seconds, say)
    except KeyboardInterrupt:
        stack.down(say)
        raise
    for line in summary_table(report):
        say(line)
    return report


def _prepare(stack: Stack, settings: StackSettings, seconds: dict[str, float], say: Say) -> DatasetPin:
    with ThreadPoolExecutor(1) as pool:
        data = pool.submit(_pinned_plates, settings, seconds, say)
        with _timed(seconds, "stack start"):
            stack.up(say)
        pin = data.result()
    with _timed(seconds, "deploy"):
        deploy(settings.project)
    say("deployments applied")
    return pin


def _pinned_plates(settings: StackSettings, seconds: dict[str, float], say: Say) -> DatasetPin:
    folder = settings.home / "demo" / "plates"
    with _timed(seconds, "generate and pin data"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_plates(folder, SEED, COUNTS)
        pin = add_dataset(folder, load_site_settings().datasets, "plates", f"generated from seed {SEED}")
    say(f"data: {COUNTS.train + COUNTS.val + COUNTS.test} plates, revision {pin.commit[:12]}, {pin.dvc_hash}")
    return pin


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    seconds[stage] = time.monotonic() - started


def _report(
    settings: StackSettings, run_id: str, pin: DatasetPin, end: RunEnd, seconds: dict[str, float], say: Say
) -> DemoReport:
    folder = settings.home / "demo"
    outcome = read_outcome(load_site_settings(), run_id, end)
    with _timed(seconds, "inspect held-out pictures"):
        pictures = inspect_held_out(settings.service_url, held_out_folder(folder / "plates"), folder / "annotated")
    status = service_status(settings.service_url)
    if status is None or status.active is None:
        raise OutsideSystemError(
            Problem(settings.service_url, "an active release", str(status), "See `passline status`.")
        )
    report = DemoReport(
        created_at=now().isoformat(timespec="seconds"),
        dataset=DatasetFacts(name=pin.name, revision=pin.commit, hash=pin.dvc_hash),
        service=ServiceFacts(digest=status.active.digest, version=status.active.version, url=settings.service_url),
        pictures=pictures,
        seconds={**{name: value for name, value in seconds.items() if name != "retrain, in all"}, **end.stages},
        interpreters=interpreters(settings),
        urls=Urls(
            prefect=settings.prefect_url,
            mlflow=settings.mlflow_url,
            service=settings.service_url,
            data_report=outcome.data_report,
        ),
        **outcome.facts,
    )
    (folder / "report.json").write_text(json.dumps(report.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    shown = [report_picture(picture, (folder / picture.annotated).read_bytes()) for picture in pictures]
    say(f"report: {write_report(report, shown, folder / 'report.html')}")
    return report
