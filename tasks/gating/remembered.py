"""What earlier champions found: handed on from champion to champion, so that it cannot be forgotten in small steps.

Each candidate's bundle gets an attestation with the defects that today's champion finds in today's test split, in front
of what that champion's own attestation lists. So the next night reads one file, which lies in the champion's bundle. A
defect is known by its picture's content, its class and its box: one that was labelled anew, or whose picture is no
longer in the test split, is no longer asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from prefect import task
from pydantic import StringConstraints

from data_contracts.base import Contract, Sha256, canonical_json, sha256_of
from data_contracts.bundle import ATTESTATIONS_DIR, Attestation
from data_contracts.dataset import Split
from serving.bundle import hash_file, open_bundle
from tasks.evaluation.picture_scores import SCORES_FILE, load_scores
from tasks.gating.gate_checks import GateCheck, at_most
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.golden_slices import GoldenSlice
from tasks.ground_truth import GroundTruth, read_ground_truth

REMEMBERED = "remembered"
"""Kind of the attestation."""
KEY_LENGTH = 16
DefectKey = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{KEY_LENGTH}}}$")]


class FoundDefects(Contract):
    """What one champion found when it was last measured."""

    champion: Sha256
    defects: tuple[DefectKey, ...]


class Remembered(Contract):
    """Champions, the latest first."""

    champions: tuple[FoundDefects, ...] = ()


class EarlierChampion(Contract):
    """What the candidate finds of what an earlier champion found, class by class."""

    champion: Sha256
    slices: tuple[GoldenSlice, ...]


class Memory(Contract):
    """What earlier champions ask of a candidate, and what it hands on."""

    earlier: tuple[EarlierChampion, ...] = ()
    handed_on: Remembered = Remembered()


def defect_keys(truth: Sequence[GroundTruth], names: Sequence[str]) -> list[str]:
    """One key per true box, in label order over all pictures: the order of `PictureScores.true_class`."""
    return [
        sha256_of(canonical_json([content, names[class_id], [round(side, 2) for side in box]]))[:KEY_LENGTH]
        for true in truth
        for content in [hash_file(true.picture).sha256]
        for class_id, box in zip(true.class_ids.tolist(), true.boxes_xyxy_px.tolist(), strict=True)
    ]


def earlier_champion(
    before: FoundDefects, keys: Sequence[str], class_ids: Sequence[int], found: Sequence[bool], names: Sequence[str]
) -> EarlierChampion:
    """Follow the defects of one list. `keys`, `class_ids` and `found`, by the candidate, are those of today's split."""
    listed = set(before.defects)
    rows = [(id_, key in listed, bool(now)) for key, id_, now in zip(keys, class_ids, found, strict=True)]
    return EarlierChampion(
        champion=before.champion,
        slices=tuple(
            GoldenSlice(
                name=name,
                instances=sum(id_ == class_id for id_, _, _ in rows),
                champion_found=sum(id_ == class_id and then for id_, then, _ in rows),
                still_found=sum(id_ == class_id and then and now for id_, then, now in rows),
                newly_found=sum(id_ == class_id and now and not then for id_, then, now in rows),
            )
            for class_id, name in enumerate(names)
        ),
    )


def hand_on(champion: FoundDefects, before: Remembered, most: int) -> Remembered:
    """Today's champion in front of the earlier ones, each once, at most so many."""
    others = (one for one in before.champions if one.champion != champion.champion)
    return Remembered(champions=(champion, *others)[:most])


def memory_checks(earlier: Iterable[EarlierChampion], policy: GatePolicy) -> Iterable[GateCheck]:
    """Per class the largest share lost of what any earlier champion found."""
    by_class: dict[str, list[tuple[GoldenSlice, str]]] = {}
    for one in earlier:
        for part in one.slices:
            if part.champion_found >= policy.min_slice:
                by_class.setdefault(part.name, []).append((part, one.champion))
    for name, parts in by_class.items():
        yield _memory_check(name, parts, policy)


def _memory_check(name: str, parts: Sequence[tuple[GoldenSlice, str]], policy: GatePolicy) -> GateCheck:
    part, champion = max(parts, key=lambda one: 1 - one[0].still_found / one[0].champion_found)
    found, lost = part.champion_found, part.champion_found - part.still_found
    action = (
        f"Of {found} defects that the earlier champion {champion[:12]} found {lost} are missed. Look at them; is every "
        f"picture of {name} still in the training data?"
    )
    return at_most(f"{name}: forgotten since {champion[:12]}", lost / found, policy.max_forgotten, action)


def read_remembered(bundle_path: Path) -> Remembered:
    """The list of a verified bundle; an empty one where it has none, as bundles of before have not."""
    file = bundle_path / ATTESTATIONS_DIR / f"{REMEMBERED}.json"
    if not file.is_file():
        return Remembered()
    return Remembered.model_validate(Attestation.model_validate_json(file.read_bytes()).statement)


@task(name="ask earlier champions")
def ask_earlier_champions(
    evaluation: Path, champion_evaluation: Path, champion_bundle: Path, working_copy: Path,
    names: tuple[str, ...], policy: GatePolicy,
) -> Memory:  # fmt: skip
    """What today's champion remembers, against what the candidate finds; both were measured into the folders."""
    keys = defect_keys(read_ground_truth(working_copy, Split.TEST), names)
    ours, theirs = load_scores(evaluation / SCORES_FILE), load_scores(champion_evaluation / SCORES_FILE)
    before, digest = read_remembered(champion_bundle), open_bundle(champion_bundle).digest
    class_ids, found = ours.true_class.tolist(), ours.true_found.tolist()
    listed = [key for key, hit in zip(keys, theirs.true_found.tolist(), strict=True) if hit]
    return Memory(
        earlier=tuple(
            earlier_champion(one, keys, class_ids, found, names) for one in before.champions if one.champion != digest
        ),
        handed_on=hand_on(FoundDefects(champion=digest, defects=tuple(listed)), before, policy.remembered_champions),
    )
