"""The gate report as a page: what it says, that it needs nothing else, and that nothing hostile or missing breaks it.

The pictures in it are tested in test_faults.py, the curves in test_gate_curves.py.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from made_case import made_case, nothing
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_comparison import slices_section
from tasks.gate_report.gate_page import GATE_PAGE, render_gate_page, write_gate_page
from tasks.gating.remembered import EarlierChampion

NASTY = '<script>alert("x")</script> & {{ 7 * 7 }}'
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> GateCase:
    """A candidate that is refused for what its INT8 loses."""
    return made_case(tmp_path_factory.mktemp("case"), max_int8_loss=0.01)


@pytest.fixture(scope="module")
def page(case: GateCase) -> str:
    return render_gate_page(case)


def section(page: str, name: str) -> str:
    """The part of a page, without its charts."""
    found = re.search(f'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    assert found, name
    return re.sub(r"<svg.*?</svg>", "", found[1], flags=re.DOTALL)


def test_the_reasons_stand_first_and_all_of_them(case: GateCase, page: str):
    head = page[page.index("<header>") : page.index("</header>")]
    assert f"Rejected: {len(case.report.refusals)} check" in head
    assert re.findall(r"<li><bdi>(.*?)</bdi>", head) == [check.words for check in case.report.refusals]
    assert case.report.promotion.words in head


def test_the_page_needs_no_network_and_no_script(page: str):
    assert "<script" not in page
    assert not re.search(r"https?:|url\(|@import|<link (?!rel=\"icon\" href=\"data:,\")", page)
    assert all(source.startswith("data:image/jpeg") for source in re.findall(r'src="([^"]*)', page))
    assert len(page.encode()) < MOST_BYTES


def test_every_class_has_its_counts_and_intervals(case: GateCase, page: str):
    told = section(page, "classes")
    for one in case.evidence.candidate.classes:
        assert f"{one.missed} of {one.instances} missed" in told
        assert one.intervals
        assert one.intervals.escape_rate
        low, high = one.intervals.escape_rate.low, one.intervals.escape_rate.high
        assert f"{100 * low:.1f} to {100 * high:.1f}" in told
    assert page.count(": precision over recall") == page.count(": F1 over threshold") == 4


def test_int8_is_told_class_by_class(case: GateCase, page: str):
    int8 = case.evidence.int8
    assert int8
    for before, after in zip(case.evidence.candidate.classes, int8.classes, strict=True):
        assert before.ap50 is not None
        assert after.ap50 is not None
        assert f'<td class="n">{100 * (after.ap50 - before.ap50):+.1f}</td>' in section(page, "int8")


def test_all_checks_are_listed_with_those_that_fail_on_top(case: GateCase, page: str):
    rows = re.findall(r'<td class="(holds|fails)">', section(page, "checks"))
    assert len(rows) == len(case.report.checks) + 1
    assert rows == sorted(rows)  # "fails" before "holds"
    assert rows.count("fails") == len(case.report.refusals) + (not case.report.promotion.holds)


def test_settings_and_origin_are_told(case: GateCase, page: str):
    for name in type(case.policy).model_fields:
        assert f"<code>{name}</code>" in section(page, "settings")
    made = case.manifest.provenance
    for value in (made.dataset_hash, made.code_commit, made.mlflow_run_id, case.report.digest, case.report.champion):
        assert value in section(page, "origin")


def test_it_is_written_as_a_file(case: GateCase, tmp_path: Path, page: str):
    assert write_gate_page(case, tmp_path / "gates") == tmp_path / "gates" / GATE_PAGE
    assert (tmp_path / "gates" / GATE_PAGE).read_text("utf-8") == page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_read_well_on_its_paper(page: str, dark: bool):
    """WCAG contrast of 4.5 between each ink and the paper, in both schemes."""
    styles = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[int(dark)]
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{3,6})", styles))
    inks = ("ink", "soft", "accent", "bad", "good", "wait", "ours", "theirs")
    assert {name: round(contrast(colours[name], colours["paper"]), 1) >= 4.5 for name in inks} == dict.fromkeys(
        inks, True
    )


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- other candidates ---------------------------------------------------------------------------------------------


def test_hostile_names_are_escaped(tmp_path: Path):
    page = render_gate_page(made_case(tmp_path, pictures=16, names=(NASTY, "pit"), with_int8=False))
    assert "<script" not in page
    assert "49" not in re.findall(r"&amp; (\S+) ", page)
    assert page.count("&lt;script&gt;") > 10


def test_a_first_candidate_is_shown_without_a_champion(tmp_path: Path):
    case = made_case(tmp_path, pictures=20, with_champion=False, with_int8=False)
    page = render_gate_page(case)
    assert case.report.accepted
    assert "Accepted; there is no champion yet." in page
    assert "Over the split" in page
    assert "hampion</th>" not in page
    assert 'class="champion"' not in page.replace("path.champion", "").replace("circle.champion", "")
    assert "no INT8 model was asked for" in section(page, "int8")
    assert slices_section(case) is None


def test_a_candidate_that_finds_nothing_is_shown_too(tmp_path: Path):
    """Field case A13: every number that depends on found boxes is missing, and the page still says why."""
    case = made_case(tmp_path, pictures=20, found=nothing(20), with_int8=False)
    page = render_gate_page(case)
    assert "answers: no box over the thresholds" in page
    assert section(page, "misses").count("nothing was found here") == 12 * 2  # as caption and for those who do not see
    assert "No false alarm" in section(page, "alarms")


def test_numbers_that_are_none_or_infinite_break_no_page(case: GateCase):
    bad = case.evidence.candidate.model_copy(update={"map50": math.nan, "false_alarms_per_picture": math.inf})
    page = render_gate_page(replace(case, evidence=case.evidence.model_copy(update={"candidate": bad})))
    assert "<strong>nan</strong>" in section(page, "comparison")


def test_a_picture_that_went_missing_is_told_of(case: GateCase, tmp_path: Path):
    truth = [replace(one, picture=tmp_path / one.picture.name) for one in case.truth]
    page = render_gate_page(replace(case, truth=truth))
    assert "The picture cannot be read." in page


def test_many_classes_make_no_large_page(tmp_path: Path):
    names = tuple(f"class {number}" for number in range(30))
    case = made_case(tmp_path, pictures=50, names=names, with_int8=False)
    page = render_gate_page(case)
    assert len(page.encode()) < MOST_BYTES
    assert "more classes." in section(page, "curves")
    assert 'id="confusion"' not in page


def test_earlier_champions_stand_beside_today_s(case: GateCase):
    assert case.report.comparison
    slices = tuple(one.model_copy(update={"champion_found": 9, "still_found": 7, "newly_found": 0})
                   for one in case.report.comparison.slices)  # fmt: skip
    evidence = case.evidence.model_copy(update={"earlier": (EarlierChampion(champion="e" * 64, slices=slices),)})
    told = section(render_gate_page(replace(case, evidence=evidence)), "forgotten")
    assert "eeeeeeeeeeee" in told
    assert told.count("7 of 9</td>") == 4
