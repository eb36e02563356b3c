"""The release store of an inference host: the folder in which wishes, bundles and states meet.

    intents/<id>.json, <id>.outcome.json     wishes and what became of them
    releases/<digest>/                       verified bundles
    probes/<digest>/                         verified probe sets
    engines/                                 what was built or measured on this host
    release.json                             desired state, written by the host agent alone
    workers/<id>.json                        observed state, one file per service worker

Every file is replaced as a whole, so a reader sees the old or the new content and never a half.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from data_contracts.base import Name, Sha256
from data_contracts.bundle import ATTESTATIONS_DIR, MANIFEST_FILE
from data_contracts.errors import PasslineError, Problem, ReleaseError
from data_contracts.probe import PROBE_FILE
from data_contracts.release import DesiredState, HostReport, Intent, IntentOutcome, WorkerReport, now
from serving.atomic import read_capped, write_atomically
from serving.bundle import Bundle, open_bundle
from serving.placing import copy_files, placed
from serving.probe_files import ProbeFolder, open_probe_set

LIVE_WITHIN_S = 5.0
"""A worker reports every second; silent for longer than this, it counts as gone."""

OUTCOME_SUFFIX = ".outcome"
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_DIGEST: TypeAdapter[str] = TypeAdapter(Sha256)
_log = logging.getLogger(__name__)


class ReleaseStore:
    """Reads and writes the release store at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.intents = root / "intents"
        self.releases = root / "releases"
        self.probes = root / "probes"
        self.engines = root / "engines"
        self.reports = root / "workers"
        self.desired_file = root / "release.json"

    def prepare(self) -> None:
        """Make the folders."""
        for folder in (self.intents, self.releases, self.probes, self.engines, self.reports):
            folder.mkdir(parents=True, exist_ok=True)

    # Bundles

    def add_bundle(self, source: Path, expected_digest: str) -> Bundle:
        """Bring the bundle at `source` into the store, verified before and after the copy; there already is fine.

        Raises BundleError when it is not the bundle `expected_digest`, ReleaseError when it cannot be copied.
        """
        target = self._folder(self.releases, expected_digest)
        with suppress(PasslineError):
            return open_bundle(target, expected_digest)
        wanted = open_bundle(source, expected_digest)
        extra = [MANIFEST_FILE, *(f"{ATTESTATIONS_DIR}/{path.name}" for path in _attestations(wanted.path))]
        with placed(target) as incoming:
            copy_files(wanted.path, [*wanted.manifest.files, *extra], incoming)
            open_bundle(incoming, expected_digest)
        return open_bundle(target, expected_digest)

    def bundle(self, digest: str) -> Bundle:
        """The verified bundle `digest`. Raises BundleError or ReleaseError with the reason when there is none."""
        folder = self._folder(self.releases, digest)
        if not folder.is_dir():
            raise ReleaseError(
                Problem(f"release {digest[:12]}", "a bundle in the release store", "none", "Run redeploy for it first.")
            )
        return open_bundle(folder, digest)

    def add_probe_set(self, source: Path, expected_digest: str) -> ProbeFolder:
        """Bring the probe set at `source` into the store as `add_bundle` does a bundle. Raises the same errors."""
        target = self._folder(self.probes, expected_digest)
        with suppress(PasslineError):
            return open_probe_set(target, expected_digest)
        wanted = open_probe_set(source, expected_digest)
        with placed(target) as incoming:
            copy_files(wanted.path, [PROBE_FILE, *(picture.file for picture in wanted.probe.pictures)], incoming)
            open_probe_set(incoming, expected_digest)
        return open_probe_set(target, expected_digest)

    def probe_set(self, digest: str) -> ProbeFolder:
        """The verified probe set `digest`. Raises BundleError when there is none or it does not verify."""
        return open_probe_set(self._folder(self.probes, digest), digest)

    @staticmethod
    def _folder(parent: Path, digest: str) -> Path:
        try:
            return parent / _DIGEST.validate_python(digest)
        except ValidationError:
            raise ReleaseError(
                Problem("digest", "64 hexadecimal digits", repr(digest), "Give a bundle's digest.")
            ) from None

    # Desired state

    def desired(self) -> DesiredState:
        """What the host shall converge to; generation 0 where nothing was ever wished.

        Raises ReleaseError when it is unreadable.
        """
        try:
            return DesiredState.model_validate_json(read_capped(self.desired_file))
        except FileNotFoundError:
            return DesiredState(generation=0, active=None)
        except (OSError, ValueError) as error:
            raise ReleaseError(
                Problem(
                    self.desired_file.name,
                    "the desired state written by the host agent",
                    _short(error),
                    "Remove the file and activate the release again.",
                )
            ) from error

    def write_desired(self, state: DesiredState) -> None:
        """Replace the desired state. The host agent alone may do this."""
        write_atomically(self.desired_file, state.to_json())

    # Intents

    def submit(self, intent: Intent) -> None:
        """Hand the host agent a wish. The same wish again is fine; another one under its id is refused."""
        path = self._intent_file(intent.intent_id)
        with suppress(FileNotFoundError):
            if Intent.model_validate_json(read_capped(path)) == intent:
                return
            raise ReleaseError(
                Problem(f"intent {intent.intent_id}", "a new id", "an id with another wish", "Choose a new id.")
            )
        write_atomically(path, intent.to_json())

    def pending(self) -> tuple[Intent, ...]:
        """Wishes without an outcome, oldest first. Unreadable ones are left out: see `unreadable_intents`."""
        found = [intent for intent, _ in self._open_intents().values() if intent is not None]
        return tuple(sorted(found, key=lambda intent: (intent.requested_at, intent.intent_id)))

    def unreadable_intents(self) -> dict[str, str]:
        """Ids of waiting intent files that are not intents, with the reason."""
        return {intent_id: why for intent_id, (intent, why) in self._open_intents().items() if intent is None}

    def outcome(self, intent_id: str) -> IntentOutcome | None:
        """What became of a wish, None while it is open."""
        try:
            return IntentOutcome.model_validate_json(read_capped(self._outcome_file(intent_id)))
        except FileNotFoundError:
            return None

    def write_outcome(self, outcome: IntentOutcome) -> None:
        """Say what became of a wish. The host agent alone does this."""
        write_atomically(self._outcome_file(outcome.intent_id), outcome.to_json())

    def prune_intents(self, keep: int) -> None:
        """Forget all but the latest `keep` wishes that have their outcome."""
        done = sorted(self.intents.glob(f"*{OUTCOME_SUFFIX}.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in done[keep:]:
            # The wish goes first: an outcome without a wish is harmless, a wish without an outcome would be granted.
            (self.intents / f"{path.name.removesuffix(OUTCOME_SUFFIX + '.json')}.json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _open_intents(self) -> dict[str, tuple[Intent | None, str]]:
        found: dict[str, tuple[Intent | None, str]] = {}
        for path in self.intents.glob("*.json"):
            intent_id = path.name.removesuffix(".json")
            if not _is_intent_id(intent_id) or self._outcome_file(intent_id).exists():
                continue
            try:
                intent = Intent.model_validate_json(read_capped(path))
            except (OSError, ValueError) as error:
                found[intent_id] = (None, _short(error))
                continue
            same = intent.intent_id == intent_id
            found[intent_id] = (intent, "") if same else (None, f"the file names intent {intent.intent_id!r}")
        return found

    def _intent_file(self, intent_id: str) -> Path:
        if not _is_intent_id(intent_id):
            raise ReleaseError(
                Problem("intent id", f"a name not ending in {OUTCOME_SUFFIX}", repr(intent_id), "Choose another id.")
            )
        return self.intents / f"{intent_id}.json"

    def _outcome_file(self, intent_id: str) -> Path:
        return self._intent_file(intent_id).with_name(f"{intent_id}{OUTCOME_SUFFIX}.json")

    # Workers

    def workers(self, live_within_s: float = LIVE_WITHIN_S) -> tuple[WorkerReport, ...]:
        """Reports of the workers that were heard within the last `live_within_s` seconds, by id."""
        limit, found = timedelta(seconds=live_within_s), []
        for path in sorted(self.reports.glob("*.json")):
            try:
                report = WorkerReport.model_validate_json(read_capped(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                _log.warning("worker report %s is unreadable: %s", path.name, _short(error))
                continue
            # A report from the future means that the clock was set back: it is as good as a fresh one only if near.
            if abs(now() - report.reported_at) <= limit:
                found.append(report)
        return tuple(found)

    def write_worker(self, report: WorkerReport) -> None:
        """Replace a worker's report. It is renewed every second, so it is not forced to the disk."""
        write_atomically(self.reports / f"{report.worker_id}.json", report.to_json(), durable=False)

    def forget_worker(self, worker_id: str) -> None:
        """Remove the report of a worker that leaves."""
        (self.reports / f"{_NAME.validate_python(worker_id)}.json").unlink(missing_ok=True)

    def prune_workers(self, silent_for_s: float) -> None:
        """Remove reports, and left-overs of writing them, that nobody touched for `silent_for_s` seconds."""
        for path in self.reports.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > silent_for_s:
                    path.unlink()

    # Locks

    @contextmanager
    def lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold the lock `name` of this store; gives False where another process has it and `wait` is off.

        The kernel frees it when the holder dies.
        """
        with (self.root / f"{name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True


def host_report(store: ReleaseStore, host_name: str, outcome: IntentOutcome | None = None) -> HostReport:
    """What this host says about itself."""
    return HostReport(host=host_name, desired=store.desired(), workers=store.workers(), outcome=outcome)


def wait_for_outcome(store: ReleaseStore, intent_id: str, timeout_s: float) -> IntentOutcome:
    """Wait for the host agent's answer to a wish. Raises ReleaseError when none comes in time."""
    give_up = time.monotonic() + timeout_s
    while True:
        outcome = store.outcome(intent_id)
        if outcome is not None:
            return outcome
        if time.monotonic() > give_up:
            raise ReleaseError(
                Problem(
                    f"intent {intent_id}",
                    f"an outcome within {timeout_s:g} s",
                    "none",
                    "Check that the host agent runs (`python -m serving.agent`) and works on this release store.",
                )
            )
        time.sleep(0.1)


def _is_intent_id(text: str) -> bool:
    try:
        return not _NAME.validate_python(text).endswith(OUTCOME_SUFFIX)
    except ValidationError:
        return False


def _attestations(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / ATTESTATIONS_DIR).glob("*.json") if path.is_file())


def _short(error: Exception) -> str:
    """The first lines of an error's text; pydantic's are long."""
    return " ".join(str(error).split())[:300]
