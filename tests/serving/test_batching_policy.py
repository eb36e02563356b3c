from __future__ import annotations

import pytest

from serving.batch_policy import (
    COMPANY_RECENT_S,
    GAP_SHARE,
    QUIET_S,
    Company,
    Forecast,
    Gaps,
    batch_count,
    company_pays,
    fitting_count,
    gap_count,
    window_s,
)


def gpu(size: int) -> float:
    return 8.0 + size


def cpu(size: int) -> float:
    return 10.0 * size


@pytest.mark.parametrize(
    ("waiting", "idle_streams", "useful", "count"),
    [
        pytest.param(1, 1, 8, 1, id="one picture"),
        pytest.param(20, 1, 8, 8, id="no more than pays"),
        pytest.param(8, 2, 8, 2, id="half of a stream's share"),
        pytest.param(9, 2, 8, 3, id="half of a stream's share, rounded up"),
        pytest.param(1, 4, 8, 1, id="one picture, many streams"),
        pytest.param(64, 2, 8, 8, id="plenty for both"),
        pytest.param(6, 2, 1, 1, id="batches do not pay"),
    ],
)
def test_how_many_go_together(waiting: int, idle_streams: int, useful: int, count: int) -> None:
    assert batch_count(waiting, idle_streams, useful) == count


@pytest.mark.parametrize(
    ("deadlines", "count"),
    [
        pytest.param([99.0] * 4, 4, id="all in time"),
        pytest.param([10.0, 99.0, 99.0], 2, id="the urgent one goes in a smaller call"),
        pytest.param([9.0, 99.0, 99.0], 1, id="or alone"),
        pytest.param([5.0, 99.0, 99.0], 3, id="one that is late anyway is not urgent"),
        pytest.param([5.0, 10.0, 99.0, 99.0], 2, id="the first that can be saved is"),
        pytest.param([5.0, 6.0], 2, id="all late: all go, the estimate may be wrong"),
        pytest.param([10.0, 11.0, 12.0, 13.0], 4, id="not at the cost of those left behind"),
    ],
)
def test_a_call_is_no_larger_than_its_most_urgent_picture_can_bear(deadlines: list[float], count: int) -> None:
    assert fitting_count(deadlines, 0.0, gpu) == count


@pytest.mark.parametrize(
    ("free_at", "useful", "seconds", "index", "waiting", "finish"),
    [
        pytest.param([0.0], 4, gpu, 0, 1, 9.0, id="a free engine"),
        pytest.param([5.0], 4, gpu, 2, 3, 16.0, id="in the next call"),
        pytest.param([5.0], 4, gpu, 4, 5, 29.0, id="behind a full call: its own counts as full"),
        pytest.param([5.0], 4, gpu, 8, 9, 41.0, id="behind two"),
        pytest.param([0.0, 4.0], 1, cpu, 0, 3, 10.0, id="two streams: the first"),
        pytest.param([0.0, 4.0], 1, cpu, 1, 3, 14.0, id="two streams: the second"),
        pytest.param([0.0, 4.0], 1, cpu, 2, 3, 20.0, id="two streams: the first again"),
    ],
)
def test_forecast(free_at: list[float], useful: int, seconds: object, index: int, waiting: int, finish: float) -> None:
    assert Forecast(free_at, useful, seconds).finish(index, waiting) == finish  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expires_at", "ahead", "behind", "late"),
    [
        pytest.param(40.0, 0, [], False, id="nobody else"),
        pytest.param(25.0, 3, [], False, id="just in time"),
        pytest.param(21.0, 3, [], True, id="too late"),
        pytest.param(30.0, 4, [], True, id="too late behind a full call"),
        pytest.param(30.0, 0, [40.0] * 3, False, id="before others, who still fit"),
        pytest.param(30.0, 0, [40.0, 40.0, 40.0, 33.0], True, id="would push one into the next call, too late"),
        pytest.param(30.0, 0, [40.0, 40.0, 40.0, 35.0], False, id="pushes one into the next call, in time"),
        pytest.param(30.0, 0, [15.0], False, id="one that is late anyway is no reason"),
    ],
)
def test_who_is_admitted(expires_at: float, ahead: int, behind: list[float], late: bool) -> None:
    # The engine is free in 10: calls of up to 4 end at 22, the next at 34.
    assert (Forecast([10.0], 4, gpu).late_by(expires_at, ahead, behind) > 0) is late


def arrivals(company: Company, *gaps: float) -> float:
    """Arrivals at an idle engine, each followed by another after so many seconds; the time of the last."""
    now = 0.0
    for gap in gaps:
        company.arrived(now, idle=True)
        company.arrived(now + gap, idle=False)
        now += gap + 0.1
    return now


@pytest.mark.parametrize(
    ("gaps", "likely"),
    [
        pytest.param([], False, id="nothing is known"),
        pytest.param([0.001] * 3, False, id="a few bursts are no habit"),
        pytest.param([0.001] * 8, True, id="bursts"),
        pytest.param([0.02] * 8, False, id="company that comes too late is none"),
        pytest.param([0.001] * 8 + [0.02] * 2, False, id="bursts, then not any more"),
    ],
)
def test_company_is_expected_only_after_it_came(gaps: list[float], likely: bool) -> None:
    company = Company(0.004)
    assert company.likely(arrivals(company, *gaps)) is likely


def test_a_burst_is_one_arrival_however_large() -> None:
    company = Company(0.004)
    company.arrived(0.0, idle=True)
    for at in range(64):
        company.arrived(0.00001 * at, idle=False)
    company.arrived(0.5, idle=True)
    assert not company.likely(0.5)


def test_expectations_do_not_outlive_a_pause() -> None:
    company = Company(0.004)
    last = arrivals(company, *[0.001] * 8)
    assert not company.likely(last + COMPANY_RECENT_S)


@pytest.mark.parametrize(
    ("waiting", "pause_s", "seconds", "pays"),
    [
        pytest.param(1, 4.0, gpu, True, id="saves a call's fixed cost"),
        pytest.param(1, 9.0, gpu, False, id="costs more than it saves"),
        pytest.param(1, 0.0, gpu, False, id="the window is over"),
        pytest.param(1, 0.5, cpu, False, id="nothing to save"),
    ],
)
def test_when_waiting_pays(waiting: int, pause_s: float, seconds: object, pays: bool) -> None:
    assert company_pays(waiting, pause_s, seconds) is pays  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wished", "provider", "window"),
    [(None, "cuda", 0.004), (None, "tensorrt", 0.004), (None, "cpu", 0.0), (0.0, "cuda", 0.0), (0.01, "cpu", 0.01)],
)
def test_window(wished: float | None, provider: str, window: float) -> None:
    assert window_s(wished, provider) == window


def test_gap_calls_are_short_unless_it_is_quiet() -> None:
    assert [gap_count(16, gpu, quiet=quiet) for quiet in (False, True)] == [5, 16]
    assert [gap_count(8, cpu, quiet=quiet) for quiet in (False, True)] == [1, 8]


def test_gap_calls_get_a_share_of_the_time_while_inspections_arrive() -> None:
    gaps = Gaps()
    assert gaps.quiet(0.0)
    assert gaps.pause_s(0.0) == 0.0
    gaps.inspection(10.0)
    assert gaps.pause_s(10.0) == 0.0
    gaps.used(10.0, 0.01)
    assert gaps.pause_s(10.02) == pytest.approx(0.01 / GAP_SHARE - 0.02)
    gaps.used(10.2, 5.0)
    assert gaps.pause_s(10.2) == pytest.approx(QUIET_S - 0.2), "not longer than until it is quiet"
    assert not gaps.quiet(10.0 + QUIET_S - 0.001)
    assert gaps.quiet(10.0 + QUIET_S)
