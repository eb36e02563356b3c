"""How far a training is and when it will be through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.training.events import BatchDone, EpochDone, Event, SamplesDrawn, Started
from tasks.watching.progress import Progress, advanced, progress_words, seconds_left
from tasks.watching.seen import Seen, View

Timed = tuple[float, Event]


def done(epoch: int, seconds: float = 10.0, epochs: int = 10) -> EpochDone:
    return EpochDone(epoch, epochs, {"metrics/mAP50(B)": epoch / 10}, seconds)


def after(events: Sequence[Timed]) -> Progress:
    progress = Progress()
    for at_s, event in events:
        progress = advanced(progress, event, at_s)
    return progress


START = (0.0, Started(pid=7, epochs=10, first_epoch=1))


@pytest.mark.parametrize(
    ("events", "now_s", "left_s"),
    [
        pytest.param([], 0.0, None, id="nothing heard"),
        pytest.param([START], 5.0, None, id="the data is being read"),
        pytest.param([START, (9.0, BatchDone(1, 1, 20))], 9.0, None, id="one batch tells no pace"),
        pytest.param(
            [START, (100.0, BatchDone(1, 1, 20)), (104.0, BatchDone(1, 5, 20))], 104.0, 195.0,
            id="batches of the first epoch, without the time before them",
        ),
        pytest.param([START, (10.0, done(1))], 10.0, 90.0, id="one epoch"),
        pytest.param([START, (10.0, done(1))], 14.0, 86.0, id="the running epoch counts down"),
        pytest.param([START, (10.0, done(1))], 300.0, 80.0, id="a slow epoch counts down no further than itself"),
        pytest.param(
            [START, (10.0, done(1)), (20.0, done(2)), (120.0, done(3, 100.0))], 120.0, 70.0,
            id="one slow epoch is chance",
        ),
        pytest.param(
            [START, *((10.0 * n, done(n)) for n in range(1, 5)), *((100.0 * n, done(n, 30.0)) for n in (5, 6, 7))],
            700.0, 90.0, id="a lasting change is followed",
        ),
        pytest.param([START, (10.0, done(1)), (99.0, done(10))], 99.0, 0.0, id="all epochs done"),
        pytest.param([(0.0, Started(7, 10, 8))], 1.0, None, id="brought back, nothing done here yet"),
        pytest.param([(0.0, Started(7, 10, 8)), (9.0, done(8, 9.0))], 9.0, 18.0, id="brought back: only what is left"),
        pytest.param(
            [START, *((10.0 * n, done(n)) for n in range(1, 7)), (99.0, Started(8, 10, 5))], 99.0, 60.0,
            id="gone back two epochs: they are ahead again",
        ),
    ],
)  # fmt: skip
def test_seconds_left(events: Sequence[Timed], now_s: float, left_s: float | None) -> None:
    assert seconds_left(after(events), now_s) == (None if left_s is None else pytest.approx(left_s))


@pytest.mark.parametrize(
    ("events", "share", "epochs"),
    [
        pytest.param([], 0.0, [], id="nothing heard"),
        pytest.param([START, (1.0, BatchDone(1, 10, 20))], 0.05, [], id="half of the first epoch"),
        pytest.param([START, (1.0, done(1)), (2.0, BatchDone(2, 20, 20))], 0.2, [1], id="validating"),
        pytest.param([(0.0, Started(7, 10, 8))], 0.7, [], id="brought back in another process"),
        pytest.param([START, (1.0, done(1)), (2.0, done(2)), (3.0, Started(8, 10, 2))], 0.1, [1], id="gone back"),
        pytest.param([START, (1.0, done(1)), (2.0, done(1))], 0.1, [1], id="an epoch told twice counts once"),
        pytest.param([START, (1.0, BatchDone(1, 20, 20)), (2.0, Started(8, 10, 1))], 0.0, [], id="begun again"),
        pytest.param([START, (1.0, done(1, epochs=4))], 0.25, [1], id="the plan became shorter"),
    ],
)
def test_share_and_epochs(events: Sequence[Timed], share: float, epochs: list[int]) -> None:
    progress = after(events)
    assert progress.share == pytest.approx(share)
    assert [one.epoch for one in progress.epochs_done] == epochs


def test_a_first_epoch_begun_again_with_a_smaller_batch_is_timed_anew() -> None:
    """Ultralytics and a recovered training start over at batch 1 without a word."""
    before = [START, (10.0, BatchDone(1, 1, 10)), (20.0, BatchDone(1, 9, 10))]
    again = [(100.0, BatchDone(1, 1, 20)), (110.0, BatchDone(1, 11, 20))]
    assert seconds_left(after([*before, *again]), 110.0) == pytest.approx(189.0)


def test_samples_of_epochs_that_are_repeated_are_not_shown() -> None:
    drawn = SamplesDrawn(3, Path("epoch-0003.jpg"))
    assert after([START, (1.0, drawn), (2.0, Started(8, 10, 3))]).samples is None
    assert after([START, (1.0, drawn), (2.0, Started(8, 10, 4))]).samples == drawn


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "the training begins"),
        ([START], "epoch 1 of 10"),
        ([START, (0.0, BatchDone(1, 1, 4)), (1.0, BatchDone(1, 2, 4))],
         "epoch 1 of 10, batch 2 of 4, at least 38 s left"),
        ([START, (0.0, done(1, 70.0))], "epoch 2 of 10, about 10 min left"),
        ([START, (0.0, done(10))], "all 10 epochs are done"),
    ],
)  # fmt: skip
def test_words(events: Sequence[Timed], words: str) -> None:
    assert progress_words(after(events), 0.0) == words


@pytest.mark.parametrize(
    ("heard", "error", "words", "percent"),
    [
        pytest.param([Started(7, 10, 1), done(10)], "", "finished after epoch 10 of 10", 100.0, id="all epochs"),
        pytest.param(
            [Started(7, 10, 1), done(4)], "", "finished after epoch 4 of 10, stopped early", 100.0, id="early stop"
        ),
        pytest.param(
            [Started(7, 10, 1), done(4)], "TrainingError: no", "ended after epoch 4 of 10: TrainingError: no", 40.0,
            id="failed on the way",
        ),
        pytest.param([], "JobError: no", "did not begin: JobError: no", 0.0, id="failed before it began"),
    ],
)  # fmt: skip
def test_how_it_ended(heard: Sequence[Event], error: str, words: str, percent: float) -> None:
    seen = Seen()
    for event in heard:
        seen.observe(event)
    seen.end(error)
    assert (seen.view().words(0.0), seen.view().percent) == (words, percent)


def test_a_sheet_waits_until_it_is_sent() -> None:
    seen, sheets = Seen(), [SamplesDrawn(n, Path(f"{n}.jpg")) for n in range(1, 200)]
    for sheet in sheets:
        seen.observe(sheet)
    assert seen.view().unsent == tuple(sheets[-100:])
    seen.sent(sheets[-1])
    assert seen.view().unsent == tuple(sheets[-100:-1])
    assert View().unsent == ()
