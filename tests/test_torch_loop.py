"""A loop in plain PyTorch: an optimizer's step ends a step, and the next begins with the first batch after it."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from observing import Observation, observed  # noqa: E402
from trainees import Samples, loader, network  # noqa: E402

from goodput_plugins.core.events import Activity, Event, Kind  # noqa: E402
from goodput_plugins.torch.install import install_data, install_torch  # noqa: E402

ARMED = ((torch, install_torch), (torch.utils.data, install_data))
SLEEP = 0.03
LATE = 0.4
"""So much longer than planted something may take on a busy machine."""


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


class Job:
    """A model and what trains it."""

    def __init__(self, optimizer: Any = torch.optim.SGD) -> None:
        self.model = network()
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)

    def backward(self, batch: Any) -> None:
        (1e-6 * ((self.model(batch[0]) - batch[1]) ** 2).mean()).backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self, batches: Any, *, accumulated: int = 1, work: float = 0.0) -> None:
        for number, batch in enumerate(batches):
            time.sleep(work)
            self.backward(batch)
            if number % accumulated == accumulated - 1:
                self.step()


def count(seen: Observation) -> int:
    return len(seen.of(Kind.STEP))


def lengths(seen: Observation) -> list[float]:
    starts = [event.time for event in seen.of(Kind.STEP)]
    return [(b - a) / 1e9 for a, b in itertools.pairwise(starts)]


# --- what is a step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulated", [1, 3, 4])
def test_micro_batches_of_one_optimizer_step_are_one_step(seen: Observation, accumulated: int) -> None:
    Job().train(loader(12), accumulated=accumulated, work=0.01)
    assert count(seen) == 12 // accumulated
    assert min(lengths(seen)) >= accumulated * 0.01


def test_a_step_begins_when_its_first_batch_is_there(seen: Observation) -> None:
    Job().train(loader(4, SLEEP), work=0.01)
    waits = [end.time for _, end in seen.stretches(Activity.DATA)]
    for step in seen.of(Kind.STEP):
        assert min(abs(step.time - end) for end in waits) < SLEEP * 1e9 / 2


def test_epochs_with_loaders_of_their_own_make_no_step_more_or_less(seen: Observation) -> None:
    job = Job()
    for _ in range(3):
        job.train(loader(3))
    assert count(seen) == 9


def test_several_optimizers_that_step_on_one_batch_make_one_step(seen: Observation) -> None:
    first, second = Job(), Job()
    for batch in loader(5):
        for job in (first, second):
            job.backward(batch)
            job.step()
    assert count(seen) == 5


def test_a_critic_that_is_trained_more_often_makes_a_step_each_time(seen: Observation) -> None:
    critic, actor = Job(), Job()
    for number, batch in enumerate(loader(6)):
        critic.backward(batch)
        critic.step()
        if number % 3 == 2:
            actor.backward(batch)
            actor.step()
    assert count(seen) == 6


def test_a_loop_in_a_function_makes_the_same_steps_whenever_it_is_called(seen: Observation) -> None:
    def train(batches: Any) -> None:
        job = Job()
        schedule = torch.optim.lr_scheduler.ConstantLR(job.optimizer)  # it keeps the optimizer alive
        for batch in batches:
            job.backward(batch)
            job.step()
            schedule.step()

    for _ in range(3):
        train(loader(4))
    assert count(seen) == 12


def test_a_loop_that_follows_another_begins_a_step_of_its_own(seen: Observation) -> None:
    def train() -> None:
        job = Job()
        for batch in itertools.islice(loader(9), 4):  # it leaves its loader before the end
            job.backward(batch)
            job.step()

    train()
    train()
    assert count(seen) == 8


def test_several_steps_on_one_batch_are_several(seen: Observation) -> None:
    job = Job()
    for batch in loader(2):
        for _ in range(4):
            job.backward(batch)
            job.step()
    assert count(seen) == 8


def test_a_loop_without_a_loader_steps_with_its_optimizer(seen: Observation) -> None:
    job = Job()
    for _ in range(5):
        time.sleep(0.02)
        job.backward((torch.ones(1, 4), torch.ones(1)))
        job.step()
    assert count(seen) == 5
    assert min(lengths(seen)[1:]) >= 0.02


def test_lbfgs_steps_once_however_often_it_evaluates(seen: Observation) -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3)
    for batch in loader(4):

        def closure(batch: Any = batch) -> Any:
            optimizer.zero_grad()
            loss = ((model(batch[0]) - batch[1]) ** 2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert count(seen) == 4


def test_a_step_that_a_gradient_scaler_skips_is_none(seen: Observation) -> None:
    job, scaler = Job(), torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for number, batch in enumerate(loader(6)):
        factor = float("inf") if number == 2 else 1.0
        scaler.scale(factor * job.model(batch[0]).mean()).backward()
        scaler.step(job.optimizer)
        scaler.update()
        job.optimizer.zero_grad()
    assert count(seen) == 5
    assert scaler.get_scale() < 2.0**8


class Around(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer around another, as sharding and averaging libraries have them."""

    def __init__(self, inner: Any, fails: bool = False) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner
        self.fails = fails

    def step(self, closure: Any = None) -> None:
        self.inner.step()
        if self.fails:
            raise ArithmeticError("the host's own")


def test_an_optimizer_around_another_steps_once(seen: Observation) -> None:
    job = Job()
    job.optimizer = Around(job.optimizer)
    job.train(loader(4))
    assert count(seen) == 4


def test_an_optimizer_that_raises_does_not_stop_the_counting(seen: Observation) -> None:
    job = Job()
    job.optimizer = Around(job.optimizer, fails=True)
    for batch in loader(3):
        job.backward(batch)
        with pytest.raises(ArithmeticError):
            job.step()
    job.optimizer.fails = False
    job.train(loader(3))
    assert 3 <= count(seen) <= 6
    last = seen.of(Kind.STEP)[-3:]
    assert last[-1].time > last[0].time


def test_a_reading_thread_of_the_host_takes_no_steps(seen: Observation) -> None:
    from concurrent.futures import ThreadPoolExecutor

    job, batches = Job(), iter(loader(5, 0.01))
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, batches)
        for number in range(5):
            batch = upcoming.result()
            if number < 4:
                upcoming = pool.submit(next, batches)
            time.sleep(0.02)
            job.backward(batch)
            job.step()
    assert count(seen) == 5
    assert {event.thread for event in seen.of(Kind.STEP)} == {0}
    assert 1 in {event.thread for event in seen.events if event.activity is Activity.DATA}


def test_what_an_optimizer_holds_is_not_kept_alive(seen: Observation) -> None:
    import gc
    import weakref

    job = Job()
    job.train(loader(2))
    dying = weakref.ref(job.optimizer)
    del job
    gc.collect()
    assert dying() is None


# --- evaluation ------------------------------------------------------------------------------------------------------


def evaluate(job: Job, batches: Any) -> None:
    for batch in batches:
        job.model(batch[0])
        time.sleep(SLEEP)


def test_an_evaluation_goes_from_eval_to_train_and_belongs_to_no_step(seen: Observation) -> None:
    job = Job()
    for _ in range(2):
        job.model.train()
        job.train(loader(3))
        job.model.eval()
        evaluate(job, loader(4))
    job.model.train()
    assert count(seen) == 6
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 2
    assert 8 * SLEEP <= seen.seconds(Activity.CUSTOM) <= 8 * SLEEP + LATE


def test_a_module_around_the_trained_one_counts_as_it(seen: Observation) -> None:
    job = Job()
    around = torch.nn.ModuleDict({"inner": job.model})
    job.train(loader(2))
    around.eval()
    around.train()
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 1


def test_freezing_a_small_part_or_another_model_is_no_evaluation(seen: Observation) -> None:
    job, teacher = Job(), network()
    job.train(loader(2))
    job.model[0].eval()
    teacher.eval()
    job.train(loader(2))
    assert not seen.of(Kind.BEGIN, Activity.CUSTOM)


def test_an_evaluation_ends_with_the_next_training_batch_if_nobody_says_so(seen: Observation) -> None:
    job, batches = Job(), iter(loader(6))
    for number, batch in enumerate(batches):
        job.backward(batch)
        job.step()
        if number in (2, 4):
            job.model.eval()
            evaluate(job, loader(2))
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 2
    assert 4 * SLEEP <= seen.seconds(Activity.CUSTOM) <= 4 * SLEEP + LATE
    assert count(seen) == 6


def test_an_evaluation_after_which_nobody_calls_train_lasts_to_the_end_of_its_loader(seen: Observation) -> None:
    """Each epoch has an iterator of its own, so a batch does not tell that training goes on."""
    job, batches = Job(), loader(3)
    for _ in range(3):
        job.train(batches)
        job.model.eval()
        evaluate(job, batches)
    job.train(batches)
    assert 9 * SLEEP <= seen.seconds(Activity.CUSTOM, "EVAL") <= 9 * SLEEP + LATE
    assert count(seen) == 12


def test_an_evaluation_that_the_process_ends_with_lasts_to_the_end_of_its_loader() -> None:
    with observed(*ARMED) as seen:
        job = Job()
        job.train(loader(3))
        job.model.eval()
        evaluate(job, loader(3))
        time.sleep(2 * LATE)  # the way out
    assert 3 * SLEEP <= seen.seconds(Activity.CUSTOM, "EVAL") <= 3 * SLEEP + LATE


def test_a_model_that_is_trained_in_evaluation_mode_is_believed_once(seen: Observation) -> None:
    job = Job()
    for _ in range(6):
        job.model.train()
        job.model.eval()
        job.backward((torch.ones(1, 4), torch.ones(1)))
        job.step()
    assert 0 <= seen.seconds(Activity.CUSTOM, "EVAL") < 0.001
    assert len(seen.of(Kind.BEGIN, Activity.CUSTOM)) == 1
    assert count(seen) == 6


def test_validation_without_eval_is_no_step(seen: Observation) -> None:
    job, batches = Job(), loader(3)
    for _ in range(2):
        job.train(batches)
        evaluate(job, loader(4))
    assert count(seen) == 6


def test_the_mode_is_set_as_the_host_asked(seen: Observation) -> None:
    job = Job()
    job.train(loader(1))
    assert job.model.eval() is job.model and not any(module.training for module in job.model.modules())
    assert job.model.train() is job.model and all(module.training for module in job.model.modules())
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        job.model.train("yes")


def test_evaluations_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOODPUT_EVAL", "off")
    with observed(*ARMED) as seen:
        job = Job()
        job.train(loader(2))
        job.model.eval()
        job.model.train()
    assert not seen.of(Kind.BEGIN, Activity.CUSTOM)


# --- numbers, and what the plugin says of itself ---------------------------------------------------------------------


def numbers(seen: Observation) -> list[tuple[int, str | None, int | None]]:
    """``(which step, by whose count, number)``."""
    return [(seen.step_of(event), event.name, event.step) for event in seen.of(Kind.NUMBER)]


def test_the_optimizers_own_count_is_told_once(seen: Observation) -> None:
    Job(torch.optim.Adam).train(loader(4))
    assert numbers(seen) == [(0, "optimizer", 0)]


def test_an_optimizer_that_does_not_count_tells_nothing(seen: Observation) -> None:
    Job(torch.optim.SGD).train(loader(4))
    assert numbers(seen) == []


def test_after_a_restore_the_count_is_told_again(seen: Observation, tmp_path: Any) -> None:
    job = Job(torch.optim.AdamW)
    job.train(loader(5))
    torch.save(job.optimizer.state_dict(), tmp_path / "optimizer.pt")
    job.train(loader(2))
    job.optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    job.train(loader(3))
    assert numbers(seen) == [(0, "optimizer", 0), (7, "optimizer", 5)]


def test_on_a_cpu_the_device_is_the_host_and_more_is_seen_once_pytorch_trains(seen: Observation) -> None:
    assert not seen.of(Kind.PLUGIN)
    Job().train(loader(1))
    (told,) = seen.of(Kind.PLUGIN)
    assert told.name == "torch" and told.data["device"] == "host"
    assert {"UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "CUSTOM_BADPUT_EVENTS"} <= set(told.data["sees"])


# --- skipping batches after a restart --------------------------------------------------------------------------------


def replayed(seen: Observation) -> list[Event]:
    return seen.of(Kind.SPAN, Activity.DATA_REPLAY)


def test_hf_11284_batches_that_are_skipped_after_a_restore_are_a_replay(seen: Observation, tmp_path: Any) -> None:
    job = Job()
    torch.save(job.model.state_dict(), tmp_path / "model.pt")
    job.model.load_state_dict(torch.load(tmp_path / "model.pt"))
    for number, batch in enumerate(loader(12, SLEEP)):
        if number < 8:
            continue
        job.backward(batch)
        job.step()
    (replay,) = replayed(seen)
    assert 7 * SLEEP <= (replay.duration or 0) / 1e9 <= 8 * SLEEP + LATE
    assert count(seen) == 4
    assert replay.time + (replay.duration or 0) <= seen.of(Kind.STEP)[0].time


def test_hf_11284_a_long_replay_is_told_while_it_goes_on(seen: Observation, tmp_path: Any) -> None:
    job = Job()
    torch.save(job.model.state_dict(), tmp_path / "model.pt")
    torch.load(tmp_path / "model.pt")
    for _ in loader(25, 0.1):
        pass
    assert len(replayed(seen)) == 2


def test_without_a_restore_nothing_is_a_replay(seen: Observation) -> None:
    for _ in loader(6, 0.01):
        pass
    job = Job()
    job.train(loader(2))
    assert not replayed(seen)


# --- the host --------------------------------------------------------------------------------------------------------


def test_results_are_the_same_to_the_bit_and_hooks_leave_no_trace() -> None:
    def weights() -> Any:
        torch.manual_seed(0)
        job = Job(torch.optim.Adam)
        job.train(torch.utils.data.DataLoader(Samples(20), batch_size=2, shuffle=True))
        return [parameter.detach().clone() for parameter in job.model.parameters()]

    before = torch.save, torch.load, torch.nn.Module.train, torch.cuda._lazy_init, torch.distributed.init_process_group
    plain = weights()
    with observed(*ARMED):
        watched = weights()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    after = torch.save, torch.load, torch.nn.Module.train, torch.cuda._lazy_init, torch.distributed.init_process_group
    assert after == before
    registered = importlib.import_module("torch.optim.optimizer")
    assert not registered._global_optimizer_pre_hooks and not registered._global_optimizer_post_hooks
