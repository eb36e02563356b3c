"""Promotion: what may be promoted today, and in which order the aliases move."""

import shutil
from pathlib import Path

import pytest

import builders
from data_contracts.errors import BundleError, ReleaseError
from serving.bundle import Bundle, open_bundle
from tasks.channel import ReleaseChannel
from tasks.promote import find_version, gates_still_hold, move_aliases, publish_release
from tasks.registry import RegisteredVersion
from tasks.seal import add_attestation

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


def attested(bundle: Bundle, tmp_path: Path, **statement: object) -> Bundle:
    import shutil

    copy = Path(shutil.copytree(bundle.path, tmp_path / bundle.digest))
    add_attestation(copy, "gates", statement)
    return open_bundle(copy)


def test_a_bundle_without_a_gate_report_is_not_promoted(bundle: Bundle) -> None:
    (problem,) = gates_still_hold(bundle, None)
    assert "none" in str(problem)


@pytest.mark.parametrize(
    ("case", "statement", "champion", "problems"),
    [
        ("first champion", {"accepted": True, "champion": None}, None, 0),
        ("same champion", {"accepted": True, "champion": OTHER}, OTHER, 0),
        ("rejected", {"accepted": False, "champion": None}, None, 1),
        ("accepted is not a word", {"accepted": "yes", "champion": None}, None, 1),
        ("champion changed since", {"accepted": True, "champion": None}, OTHER, 1),
        ("rejected and champion changed", {"accepted": False, "champion": None}, OTHER, 2),
    ],
)
def test_gates_are_held_against_todays_champion(
    case: str, statement: dict[str, object], champion: str | None, problems: int, bundle: Bundle, tmp_path: Path
) -> None:
    assert len(gates_still_hold(attested(bundle, tmp_path, **statement), champion)) == problems


def test_promoting_the_champion_again_is_harmless(bundle: Bundle, tmp_path: Path) -> None:
    again = attested(bundle, tmp_path, accepted=True, champion=None)
    assert gates_still_hold(again, again.digest) == []


def test_previous_moves_before_champion_so_that_a_cut_leaves_a_champion_that_serves() -> None:
    old, new = version(1), version(2)
    registry = FakeRegistry((old, new), champion=old, candidate=new)
    move_aliases(registry, new, old)  # type: ignore[arg-type]
    assert registry.journal == [("previous", 1), ("champion", 2), ("candidate", None)]


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ReleaseError, match=r"version 9.*\[1\]"):
        find_version(FakeRegistry((version(1),)), "plates", 9)  # type: ignore[arg-type]
