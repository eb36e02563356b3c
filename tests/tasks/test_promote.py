"""Promotion: what may be promoted today, and in which order the aliases move."""

import json
import shutil
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

import builders
from data_contracts.errors import BundleError, ReleaseError
from data_contracts.release import DesiredState, HostReport
from serving.bundle import Bundle, open_bundle
from tasks import promote as promoting
from tasks.channel import ReleaseChannel
from tasks.gates import Evidence, GateReport, decide
from tasks.promote import (
    Promotion,
    attested_report,
    find_version,
    move_aliases,
    objections,
    publish_release,
    record_promotion,
    rule_words,
)
from tasks.registry import RegisteredVersion
from tasks.seal import add_attestation
from training_fakes import comparison, evaluation, gate_policy, parity, speed

OTHER = "b" * 64


class FakeRegistry:
    """Aliases in a dictionary, every change noted."""

    def __init__(self, versions: tuple[RegisteredVersion, ...], **aliases: RegisteredVersion) -> None:
        self.known, self.held, self.journal = versions, dict(aliases), []

    def versions(self, name: str) -> tuple[RegisteredVersion, ...]:
        return self.known

    def get_alias(self, name: str, alias: str) -> RegisteredVersion | None:
        return self.held.get(alias)

    def set_alias(self, name: str, alias: str, number: int) -> None:
        self.held[alias] = next(version for version in self.known if version.number == number)
        self.journal.append((alias, number))

    def set_version_tags(self, name: str, number: int, tags: dict[str, str]) -> None:
        self.tags = tags

    def delete_alias(self, name: str, alias: str) -> None:
        self.held.pop(alias, None)
        self.journal.append((alias, None))


class Shelf:
    """A registry from which a probe set can be taken."""

    def __init__(self, probe: Path) -> None:
        self.probe = probe

    def download_probe_set(self, version: RegisteredVersion, target: Path) -> Path:
        return Path(shutil.copytree(self.probe, target / "probe_set"))


def test_the_probe_set_is_published_before_the_bundle_that_names_it(tmp_path: Path) -> None:
    path, probe = builders.probed_bundle(tmp_path / "made")
    bundle, channel, shelf = open_bundle(path), ReleaseChannel(tmp_path / "channel"), Shelf(probe)
    assert publish_release(shelf, version(1), bundle, channel, tmp_path) == channel.bundle_path(bundle.digest)
    assert channel.probe_path(probe.name).is_dir()
    broken = ReleaseChannel(tmp_path / "other")
    (probe / "pictures" / "000.png").write_bytes(b"x")
    with pytest.raises(BundleError, match=r"000\.png"):
        publish_release(shelf, version(1), bundle, broken, tmp_path / "again")
    assert not broken.bundle_path(bundle.digest).exists()


def version(number: int) -> RegisteredVersion:
    return RegisteredVersion("plates", number, f"{number:064x}", f"v{number}", "run")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(builders.make_bundle(tmp_path_factory.mktemp("bundle")))


def report_of(digest: str, champion: str | None = None, map50: float = 0.9, difference: float = 0.03) -> GateReport:
    """What the gates say of a candidate: rejected with a low mAP50, not promotable with a difference of 0."""
    ours = evaluation(digest=digest, map50=map50)
    if champion is None:
        return decide(Evidence(candidate=ours, parity=parity()), gate_policy())
    compared = comparison(difference, difference, candidate=digest, champion=champion)
    costs = speed(candidate=digest).model_copy(update={"champion": champion})
    theirs = evaluation(digest=champion)
    evidence = Evidence(candidate=ours, parity=parity(), champion=theirs, comparison=compared, speed=costs)
    return decide(evidence, gate_policy())


def attested(bundle: Bundle, tmp_path: Path, statement: dict[str, object]) -> Bundle:
    copy = Path(shutil.copytree(bundle.path, tmp_path / bundle.digest))
    add_attestation(copy, "gates", statement)
    return open_bundle(copy)


def test_the_gate_decision_is_an_attestation_on_the_sealed_digest(bundle: Bundle, tmp_path: Path) -> None:
    report = report_of(bundle.digest, OTHER)
    found = attested(bundle, tmp_path, report.model_dump(mode="json"))
    assert attested_report(found) == report
    assert (found.digest, report.digest) == (bundle.digest, bundle.digest)
    file = found.path / "attestations" / "gates.json"
    file.write_text(file.read_text().replace(bundle.digest, "e" * 64, 1))
    with pytest.raises(BundleError, match=r"attestations/gates\.json: digest"):
        open_bundle(found.path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(None, "a report of passed gates, got none", id="no attestation"),
        pytest.param({"accepted": True}, "expected what the checks say", id="rejected, but called accepted"),
        pytest.param({"accepted": "perhaps"}, "accepted: Input should be a valid boolean", id="no decision"),
        pytest.param({"checks": ()}, "expected what the checks say", id="no checks"),
    ],
)
def test_a_decision_that_cannot_be_read_promotes_nothing(
    changes: dict[str, object] | None, words: str, bundle: Bundle, tmp_path: Path
) -> None:
    rejected = report_of(bundle.digest, map50=0.5).model_dump(mode="json")
    found = bundle if changes is None else attested(bundle, tmp_path, rejected | {"promotable": True} | changes)
    with pytest.raises(ReleaseError, match=words):
        attested_report(found)


OURS = "c" * 64


@pytest.mark.parametrize(
    ("report", "champion", "words"),
    [
        pytest.param(report_of(OURS), None, [], id="first champion"),
        pytest.param(report_of(OURS, OTHER), OTHER, [], id="same champion"),
        pytest.param(report_of(OURS, OTHER, difference=0.0), OTHER, [], id="a person wants what is not better"),
        pytest.param(report_of(OURS, map50=0.5), None, ["got rejected: map50: 0.5, at least 0.8"], id="rejected"),
        pytest.param(report_of("e" * 64), None, ["one about eeeeeeeeeeee"], id="of another bundle"),
        pytest.param(report_of(OURS), OTHER, ["champion bbbbbbbbbbbb, got one with none"], id="a champion came since"),
        pytest.param(report_of(OURS, "e" * 64), OTHER, ["got one with eeeeeeeeeeee"], id="another champion since"),
        pytest.param(report_of(OURS, OTHER), None, ["with today's champion none"], id="the champion is gone"),
        pytest.param(report_of(OURS, map50=0.5), OTHER, ["rejected", "today's champion"], id="two reasons"),
        pytest.param(report_of(OURS), OURS, [], id="it is champion already"),
    ],
)
def test_gates_are_held_against_today_s_champion(report: GateReport, champion: str | None, words: list[str]) -> None:
    found = [str(problem) for problem in objections(report, OURS, champion)]
    assert len(found) == len(words)
    assert all(word in problem for word, problem in zip(words, found, strict=True)), found


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (report_of(OURS), "first"),
        (report_of(OURS, OTHER), "superiority"),
        (report_of(OURS, OTHER, difference=0.0), "by hand: superiority was not shown"),
    ],
)
def test_the_rule_of_a_promotion_is_told(report: GateReport, words: str) -> None:
    assert rule_words(report) == words


def test_the_record_of_a_promotion_names_its_rule(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = version(1), version(2)
    registry = FakeRegistry((old, new), champion=old, candidate=new)
    monkeypatch.setattr(promoting, "Registry", lambda url: registry)
    report = HostReport(
        host="host-1", desired=DesiredState(generation=4, active=new.digest, candidate=None), workers=()
    )
    promotion = Promotion(new, old, Path("published"), "superiority")
    with disable_run_logger():
        record_promotion.fn(promotion, report, "better by 3 points")
    record = json.loads(registry.tags["passline.promotion"])
    assert (record["rule"], record["reason"]) == ("superiority", "better by 3 points")
    assert (record["from_digest"], record["to_digest"]) == (old.digest, new.digest)
    assert registry.held["champion"] == new


def test_previous_moves_before_champion_so_that_a_cut_leaves_a_champion_that_serves() -> None:
    old, new = version(1), version(2)
    registry = FakeRegistry((old, new), champion=old, candidate=new)
    move_aliases(registry, new, old)  # type: ignore[arg-type]
    assert registry.journal == [("previous", 1), ("champion", 2), ("candidate", None)]


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ReleaseError, match=r"version 9.*\[1\]"):
        find_version(FakeRegistry((version(1),)), "plates", 9)  # type: ignore[arg-type]
