"""Under Lightning a step is what ``trainer.global_step`` counts, whatever the batches do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytorch_lightning = pytest.importorskip("pytorch_lightning")
lightning = pytest.importorskip("lightning.pytorch")

from observing import Observation, observed  # noqa: E402
from trainees import learner, loader, trainer  # noqa: E402

from goodput_plugins.core.events import Activity, Event, Kind  # noqa: E402
from goodput_plugins.lightning import GoodputCallback  # noqa: E402
from goodput_plugins.lightning.install import install_lightning  # noqa: E402
from goodput_plugins.torch.install import install_data, install_torch  # noqa: E402

LIBRARIES = {"pytorch_lightning": pytorch_lightning, "lightning.pytorch": lightning}
LATE = 0.3
"""So much longer than planted something may take on a busy machine."""
ARMED = ((torch, install_torch), (torch.utils.data, install_data))

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return LIBRARIES[request.param]


@pytest.fixture
def seen(library: Any) -> Iterator[Observation]:
    """Everything that the switch would install."""
    with observed(*ARMED, (library, install_lightning)) as observation:
        yield observation


def fitted(library: Any, folder: Path, batches: int = 10, model: Any = None, **options: Any) -> Any:
    """A trainer that has fitted, with our callback."""
    fits = trainer(library, folder, callbacks=[GoodputCallback()], **options)
    fits.fit(model or learner(library), loader(batches))
    return fits


# --- which steps, and their numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulated", [1, 3, 4])
def test_pl_19461_a_step_is_an_optimizer_step_whatever_is_accumulated(
    seen: Observation, library: Any, tmp_path: Path, accumulated: int
) -> None:
    fits = fitted(library, tmp_path, max_epochs=2, accumulate_grad_batches=accumulated, log_every_n_steps=10)
    assert seen.steps == list(range(2 * math.ceil(10 / accumulated)))
    assert fits.global_step == len(seen.steps)


@pytest.mark.parametrize("accumulated", [3, 4])
def test_pl_831_and_6359_micro_batches_repeat_and_skip_no_step(
    seen: Observation, library: Any, tmp_path: Path, accumulated: int
) -> None:
    fitted(library, tmp_path, 12, accumulate_grad_batches=accumulated)
    assert seen.steps == list(range(12 // accumulated))
    assert not seen.of(Kind.NUMBER)


def test_pl_21808_an_epoch_shorter_than_the_accumulation_steps_at_its_last_batch(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    fits = fitted(library, tmp_path, 3, max_epochs=4, accumulate_grad_batches=8)
    assert seen.steps == [0, 1, 2, 3]
    assert fits.global_step == 4


def test_a_step_begins_with_the_first_of_its_micro_batches(seen: Observation, library: Any, tmp_path: Path) -> None:
    fitted(library, tmp_path, 8, learner(library, train=0.03), accumulate_grad_batches=4)
    first, second = seen.of(Kind.STEP)
    assert second.time - first.time > 4 * 30_000_000


def two_optimizers(library: Any, *, every: int = 1) -> Any:
    """Manual optimization: both optimizers step at every ``every``-th batch."""

    def training_step(self: Any, batch: Any, batch_idx: int) -> None:
        self.manual_backward(self.loss(batch))
        if batch_idx % every == every - 1:
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()

    def configure_optimizers(self: Any) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=1e-3) for part in self.network]

    return learner(
        library, automatic_optimization=False, training_step=training_step, configure_optimizers=configure_optimizers
    )


def test_with_several_optimizers_the_numbers_follow_the_global_step(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    model = two_optimizers(library)
    model.automatic_optimization = False
    fits = fitted(library, tmp_path, 5, model)
    assert seen.steps == [0, 2, 4, 6, 8]
    assert fits.global_step == 10


def test_with_manual_optimization_a_batch_without_a_step_belongs_to_the_next(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    model = two_optimizers(library, every=3)
    model.automatic_optimization = False
    fits = fitted(library, tmp_path, 9, model)
    assert seen.steps == [0, 2, 4]
    assert fits.global_step == 6


def test_a_step_that_a_gradient_scaler_skips_is_one_that_the_trainer_counts(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)  # gradients overflow until it has come down
    precision = library.plugins.precision.MixedPrecision("16-mixed", "cpu", scaler)
    fits = fitted(library, tmp_path, 6, plugins=[precision])
    assert scaler.get_scale() < 2.0**120
    assert seen.steps == list(range(fits.global_step)) == list(range(6))


def test_an_epoch_that_is_skipped_before_its_first_batch_is_no_step(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    def on_train_batch_start(self: Any, batch: Any, batch_idx: int) -> Any:
        return -1 if self.trainer.current_epoch == 1 else None

    model = learner(library, on_train_batch_start=on_train_batch_start)
    fits = fitted(library, tmp_path, 3, model, max_epochs=3)
    assert fits.global_step == 6
    assert seen.steps == list(range(6))


def test_pl_20999_and_17612_a_batch_whose_end_never_comes_is_closed_by_the_next(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            raise StopIteration  # Lightning takes it for the end of the epoch
        return self.loss(batch)

    fits = trainer(library, tmp_path, callbacks=[GoodputCallback()], max_epochs=2)
    fits.fit(learner(library, training_step=training_step), loader(5))
    assert seen.steps == list(range(fits.global_step)) or seen.steps == list(range(fits.global_step + 1))
    assert len(seen.steps) >= 4


# --- trainers, callbacks, fits ---------------------------------------------------------------------------------------


def test_a_second_fit_of_a_trainer_goes_on_counting(seen: Observation, library: Any, tmp_path: Path) -> None:
    fits = fitted(library, tmp_path, 3)
    fits.fit_loop.max_epochs = 2
    fits.fit(learner(library), loader(3))
    assert seen.steps == [0, 1, 2, 3, 4, 5]


def test_a_further_trainer_loses_nothing_of_the_first(seen: Observation, library: Any, tmp_path: Path) -> None:
    fitted(library, tmp_path, 3)
    fitted(library, tmp_path, 4)
    fitted(library, tmp_path, 2)
    assert seen.steps == list(range(9))


@pytest.mark.parametrize("callbacks", [1, 2, 3])
def test_several_callbacks_count_once(seen: Observation, library: Any, tmp_path: Path, callbacks: int) -> None:
    fits = trainer(library, tmp_path, callbacks=[GoodputCallback() for _ in range(callbacks)])
    fits.fit(learner(library), loader(4), loader(2))
    assert seen.steps == [0, 1, 2, 3]
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 1
    assert len(seen.stretches(Activity.PREPARATION)) == 1


def test_a_list_of_callbacks_can_be_used_again(seen: Observation, library: Any, tmp_path: Path) -> None:
    callbacks = [GoodputCallback()]
    for _ in range(3):
        trainer(library, tmp_path, callbacks=callbacks).fit(learner(library), loader(2), loader(1))
    assert seen.steps == list(range(6))
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 3


def test_a_trainer_without_our_callback_is_not_watched(seen: Observation, library: Any, tmp_path: Path) -> None:
    trainer(library, tmp_path).fit(learner(library), loader(4))
    assert seen.steps == []


def test_the_plain_loop_after_a_fit_is_told_by_the_other_plugin(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    fitted(library, tmp_path, 3)
    model = learner(library)
    optimizer = model.configure_optimizers()
    for batch in loader(2):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    assert seen.steps == [0, 1, 2, None, None]


# --- where a batch's time goes ---------------------------------------------------------------------------------------


class Timed:
    """Batches of which the script itself takes the time."""

    def __init__(self) -> None:
        self.fetching = self.training = 0.0
        self.ended = 0

    def measured(self, name: str, seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        setattr(self, name, getattr(self, name) + time.perf_counter() - began)


@pytest.mark.parametrize("accumulated", [1, 3, 4])
def test_pl_19939_the_parts_of_the_batches_sum_to_the_time_that_they_took(
    seen: Observation, tmp_path: Path, accumulated: int, library: Any
) -> None:
    timed = Timed()

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        timed.measured("training", 0.06)
        return self.loss(batch)

    def on_train_batch_end(self: Any, *args: Any) -> None:
        timed.ended = seen.hooks.recorder.now()

    def collate(samples: list[Any]) -> Any:
        timed.measured("fetching", 0.05)
        return torch.utils.data.default_collate(samples)

    data = torch.utils.data.DataLoader(loader(10).dataset, collate_fn=collate)
    fits = trainer(library, tmp_path, callbacks=[GoodputCallback()], accumulate_grad_batches=accumulated)
    fits.fit(learner(library, training_step=training_step, on_train_batch_end=on_train_batch_end), data)
    first, last = seen.of(Kind.STEP)[0].time, timed.ended
    waits = seen.seconds(Activity.DATA)
    elsewhere = sum(seen.seconds(activity) for activity in (Activity.SAVE, Activity.CUSTOM))
    first_wait = sum(end.time - begin.time for begin, end in seen.stretches(Activity.DATA) if end.time <= first) / 1e9
    in_steps = (last - first) / 1e9 - (waits - first_wait) - elsewhere
    assert timed.fetching <= waits <= timed.fetching + LATE
    assert timed.training <= in_steps <= timed.training + 0.8 * timed.fetching  # none of which is in it


@pytest.mark.parametrize("stream", [False, True])
def test_the_waits_are_what_the_loader_took_the_first_batches_included(
    seen: Observation, library: Any, tmp_path: Path, stream: bool
) -> None:
    fits = trainer(library, tmp_path, callbacks=[GoodputCallback()])
    fits.fit(learner(library, train=0.01), loader(6, 0.1, stream=stream))
    assert 6 * 0.1 <= seen.seconds(Activity.DATA) <= 6 * 0.1 + LATE
    assert nested(seen, Activity.DATA) == 1


def nested(seen: Observation, activity: Activity) -> int:
    """How many of these are ever open at once."""
    depths, depth = [0], 0
    for event in seen.events:
        if event.activity is activity and event.kind in (Kind.BEGIN, Kind.FINISH):
            depth += 1 if event.kind is Kind.BEGIN else -1
            depths.append(depth)
    return max(depths)


def test_a_validation_is_told_and_the_sanity_check_is_preparation(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    fits = trainer(library, tmp_path, callbacks=[GoodputCallback()], num_sanity_val_steps=2, max_epochs=2)
    fits.fit(learner(library, validate=0.1), loader(3), loader(3))
    evaluations = seen.stretches(Activity.CUSTOM, "EVAL")
    assert len(evaluations) == 2
    assert 6 * 0.1 <= seen.seconds(Activity.CUSTOM, "EVAL") <= 6 * 0.1 + LATE
    ((begin, end),) = seen.stretches(Activity.PREPARATION)
    assert end.time - begin.time >= 2 * 100_000_000
    assert end.time <= seen.of(Kind.STEP)[0].time


def test_validate_test_and_predict_need_no_fit(seen: Observation, library: Any, tmp_path: Path) -> None:
    runs = trainer(library, tmp_path, callbacks=[GoodputCallback()])
    model = learner(library, validate=0.1)
    runs.validate(model, loader(2), verbose=False)
    runs.test(model, loader(3), verbose=False)
    runs.predict(model, loader(4))
    for name, batches in {"EVAL": 2, "TEST": 3, "PREDICT": 4}.items():
        assert batches * 0.1 <= seen.seconds(Activity.CUSTOM, name) <= batches * 0.1 + LATE
    assert seen.steps == [] and not seen.of(Kind.BEGIN, Activity.PREPARATION)


def test_the_device_is_the_host_and_the_rank_is_the_first(seen: Observation, library: Any, tmp_path: Path) -> None:
    fitted(library, tmp_path, 1)
    told = seen.of(Kind.PLUGIN, name="lightning")[-1]
    assert told.data["device"] == "host" and "CUSTOM_BADPUT_EVENTS" in told.data["sees"]
    ranks: list[Event] = seen.of(Kind.RANK)
    assert [(rank.step, rank.data) for rank in ranks] == [(0, 1)]
    assert len(seen.stretches(Activity.DEVICE_INIT)) == 1
