"""Loops that libraries on top of PyTorch lead: the Hugging Face ``Trainer``, ``Accelerator``, Fabric."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from observing import observed, report_on  # noqa: E402
from trainees import Samples, loader, network  # noqa: E402

from goodput_plugins.core.events import Activity, Kind  # noqa: E402
from goodput_plugins.core.report import Report  # noqa: E402
from goodput_plugins.lightning.install import install_fabric  # noqa: E402
from goodput_plugins.torch.install import (  # noqa: E402
    install_accelerate,
    install_data,
    install_torch,
    install_transformers,
)

ARMED = ((torch, install_torch), (torch.utils.data, install_data))

pytestmark = pytest.mark.filterwarnings("ignore")


def steps_of(report: Report) -> list[tuple[int | None, int | None]]:
    return [(attempt.first_step, attempt.last_step) for attempt in report.attempts]


# --- Hugging Face ----------------------------------------------------------------------------------------------------

VALIDATION, WORK = 0.05, 0.02


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers")


class Died(Exception):
    """Stands for a process that was killed."""


def tiny(transformers: Any) -> Any:
    """A causal language model with random weights that takes its time."""
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=32, n_positions=16)

    class Slow(transformers.GPT2LMHeadModel):  # type: ignore[name-defined, misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(WORK if self.training else VALIDATION)
            return super().forward(*args, **kwargs)

    return Slow(config)


def hugging(transformers: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    text = [{"input_ids": [i % 32] * 8, "labels": [i % 32] * 8} for i in range(24)]
    quiet = {
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_steps": 1000,
        "max_steps": 8,
        "remove_unused_columns": False,
    }
    arguments = transformers.TrainingArguments(str(folder), per_device_train_batch_size=1, **quiet | options)
    return transformers.Trainer(
        tiny(transformers), arguments, train_dataset=text, eval_dataset=text[:16], callbacks=list(callbacks)
    )


def timed(function: Any, took: list[float]) -> Any:
    """The same function, which notes how many seconds each call took."""

    def called(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            took.append(time.perf_counter() - began)

    return called


@pytest.fixture
def armed(transformers: Any) -> Any:
    return (*ARMED, (importlib.import_module("transformers.trainer"), install_transformers))


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_hugging_face_trainer_steps_with_its_global_step(
    transformers: Any, armed: Any, tmp_path: Path, accumulated: int
) -> None:
    with observed(*armed) as seen:
        trains = hugging(
            transformers, tmp_path, gradient_accumulation_steps=accumulated, eval_strategy="steps", eval_steps=4
        )
        took: list[float] = []
        trains.evaluate = timed(trains.evaluate, took)
        trains.train()
    assert len(seen.of(Kind.STEP)) == trains.state.global_step == 8
    assert len(seen.of(Kind.BEGIN, Activity.CUSTOM, "EVAL")) == 2
    begin, end = seen.stretches(Activity.CUSTOM, "EVAL")[0]
    assert 2 * VALIDATION <= (end.time - begin.time) / 1e9 <= took[0]
    assert seen.step_of(begin) == 3


def test_a_hugging_face_trainer_that_is_resumed_has_true_numbers(transformers: Any, armed: Any, tmp_path: Path) -> None:
    class Dies(transformers.TrainerCallback):  # type: ignore[name-defined, misc]
        def on_step_end(self, arguments: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 7:
                raise Died

    options = {"save_strategy": "steps", "save_steps": 4, "max_steps": 12, "optim": "sgd"}
    with observed(*armed) as killed, pytest.raises(Died):
        hugging(transformers, tmp_path, Dies(), **options).train()
    with observed(*armed) as resumed:
        trains = hugging(transformers, tmp_path, **options)
        trains.train(resume_from_checkpoint=True)
    assert [event.data["steps"] for event in killed.of(Kind.COMMIT)] == [4]
    report = report_on(killed, resumed)
    assert steps_of(report) == [(0, 6), (4, 11)]
    assert (report.steps.last, report.steps.count, trains.state.global_step) == (11, 12, 12)
    wasted = report.to_json()["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"]
    assert wasted is not None and wasted > 2 * WORK
    spent = report.to_json()["badput_seconds"]
    assert spent["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"] > 0 and spent["UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"] > 0


# --- Accelerate ------------------------------------------------------------------------------------------------------


def accelerated(accelerate: Any, folder: Path, steps: int, *, resumes: bool) -> None:
    """A loop that saves its state after every second step."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(2 * steps))
    if resumes:
        accelerator.load_state(str(folder))
    done = 0
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(1e-6 * model(batch[0]).mean())
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            if done == 2:
                accelerator.save_state(str(folder))


def test_accelerate_counts_and_resumes_like_a_plain_loop(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    armed = (*ARMED, (importlib.import_module("accelerate.accelerator"), install_accelerate))
    lives = []
    for resumes in (False, True):
        with observed(*armed) as seen:
            accelerated(accelerate, tmp_path / "state", 5, resumes=resumes)
        lives.append(seen)
    killed, resumed = lives
    assert len(killed.of(Kind.STEP)) == 5
    assert len(killed.stretches(Activity.SAVE)) == 1
    assert [event.data["steps"] for event in killed.of(Kind.COMMIT)] == [2]
    assert len(resumed.stretches(Activity.RESTORE)) == 1
    assert steps_of(report_on(killed, resumed)) == [(0, 4), (2, 6)]


# --- Fabric ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["lightning_fabric", "lightning.fabric"])
def fabric(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip(request.param)
    yield importlib.import_module(request.param + ".fabric")


def fabricated(fabric: Any, folder: Path, *, resumes: bool) -> None:
    """A loop on Fabric that saves after its third step."""
    made = fabric.Fabric(accelerator="cpu", devices=1)
    made.launch()
    model = network()
    model, optimizer = made.setup(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    batches = made.setup_dataloaders(torch.utils.data.DataLoader(Samples(5, 0.01)))
    if resumes:
        made.load(folder / "c.ckpt", {"model": model, "optimizer": optimizer})
    for number, batch in enumerate(batches):
        made.backward(1e-6 * model(batch[0]).mean())
        optimizer.step()
        optimizer.zero_grad()
        if number == 2:
            made.save(folder / "c.ckpt", {"model": model, "optimizer": optimizer})


def test_fabric_counts_and_resumes_like_a_plain_loop(fabric: Any, tmp_path: Path) -> None:
    lives = []
    for resumes in (False, True):
        with observed(*ARMED, (fabric, install_fabric)) as seen:
            fabricated(fabric, tmp_path, resumes=resumes)
        lives.append(seen)
    killed, resumed = lives
    assert len(killed.of(Kind.STEP)) == 5
    assert len(killed.stretches(Activity.SAVE)) == len(killed.of(Kind.COMMIT)) == 1
    assert killed.of(Kind.COMMIT)[0].data["files"][0][0] == str(tmp_path / "c.ckpt")
    assert 5 * 0.01 <= killed.seconds(Activity.DATA) <= 5 * 0.01 + 0.4
    assert len(resumed.stretches(Activity.RESTORE)) == 1
    assert steps_of(report_on(killed, resumed)) == [(0, 4), (3, 7)]
