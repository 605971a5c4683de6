"""Start-up and device time in PyTorch: compilation, CUDA, process groups; and a SIGTERM on one of two ranks."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from observing import observed  # noqa: E402
from running import Runner  # noqa: E402
from trainees import loader, network  # noqa: E402

from goodput_plugins.core.events import Activity, Kind  # noqa: E402
from goodput_plugins.core.reading import read_journal  # noqa: E402
from goodput_plugins.core.recorder import Recorder  # noqa: E402
from goodput_plugins.testing import FakeClock, MemorySink  # noqa: E402
from goodput_plugins.torch.device import CudaDevice  # noqa: E402
from goodput_plugins.torch.install import install_compiler, install_data, install_torch  # noqa: E402

NS = 1_000_000_000

# --- torch.compile ---------------------------------------------------------------------------------------------------


def compiled_job(compiling: float) -> dict[str, int]:
    """Train a compiled model, its loss and its optimizer's step; the graph breaks that were counted."""
    from torch._dynamo.utils import counters

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        time.sleep(compiling)
        return graph.forward

    torch._dynamo.reset()
    counters.clear()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3))
    compiled = torch.compile(model, backend=backend)
    step = torch.compile(optimizer.step, backend=backend)
    for number, batch in enumerate(loader(6)):
        compiled.train()
        (1e-6 * compiled(batch[0]).mean()).backward()
        (step if number < 3 else optimizer.step)()
        optimizer.zero_grad()
        compiled.eval()
        compiled(batch[0])
    return dict(counters["graph_break"])


@pytest.mark.filterwarnings("ignore")
def test_compilations_are_told_and_no_graph_breaks_more_than_without_us() -> None:
    dynamo = pytest.importorskip("torch._dynamo.callback")
    plain = compiled_job(0.0)
    armed = ((torch, install_torch), (torch.utils.data, install_data), (dynamo, install_compiler))
    with observed(*armed) as seen:
        watched = compiled_job(0.2)
    assert watched == plain
    compilations = seen.stretches(Activity.COMPILE, "torch.compile")
    assert len(compilations) >= 3
    assert (
        seen.seconds(Activity.COMPILE) >= 0.2 * len([s for s in compilations if s[1].time - s[0].time > 0.2 * NS]) > 0
    )


# --- CUDA: no such device is here, so torch.cuda is played ----------------------------------------------------------


class PlayedCuda:
    """What our code uses of ``torch.cuda``, on a device that works ``late`` after the host has queued."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.busy_until = 0
        self.capturing = False
        self.made = itertools.count()

    def work(self, seconds: float) -> None:
        """The host queues work."""
        self.busy_until = max(self.busy_until, self.clock()) + round(seconds * NS)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_stream(self, device: Any) -> str:
        return "stream"

    def Event(self, enable_timing: bool) -> Any:
        next(self.made)
        return PlayedEvent(self)


class PlayedEvent:
    def __init__(self, cuda: PlayedCuda) -> None:
        self.cuda = cuda
        self.passes = 0

    def record(self, stream: Any) -> None:
        self.passes = max(self.cuda.busy_until, self.cuda.clock())

    def query(self) -> bool:
        return self.cuda.clock() >= self.passes

    def elapsed_time(self, later: PlayedEvent) -> float:
        return (later.passes - self.passes) / 1e6

    def synchronize(self) -> None:
        raise AssertionError("waits for the device")


class Played:
    """A recorder, a clock and a device."""

    def __init__(self) -> None:
        self.clock, self.sink = FakeClock(), MemorySink()
        self.recorder = Recorder(self.sink, self.clock)
        self.cuda = PlayedCuda(self.clock)
        self.device = CudaDevice(self.cuda, self.recorder, "cuda:0")

    def step(self, host: float, device: float) -> int:
        """The host queues a step's work at once and then is busy otherwise; when the device will be done."""
        self.device.step_begins(self.recorder.step(None))
        self.cuda.work(device)
        self.device.step_queued()
        self.clock.advance(host)
        return self.cuda.busy_until

    @property
    def done(self) -> list[tuple[int | None, int]]:
        return [(event.step, event.time) for event in self.sink.events if event.kind is Kind.DEVICE]


def test_device_times_are_those_of_the_device_however_far_the_host_runs_ahead() -> None:
    played = Played()
    ends = [played.step(host=0.01, device=0.2) for _ in range(20)]
    played.clock.advance(60)
    played.device.close()
    assert [ordinal for ordinal, _ in played.done] == list(range(20))
    assert all(abs(told - end) < 1000 for (_, told), end in zip(played.done, ends, strict=True))


def test_a_device_that_waits_for_the_host_is_seen_to_be_idle() -> None:
    played = Played()
    ends = [played.step(host=0.3, device=0.1) for _ in range(10)]
    played.device.close()
    assert all(abs(told - end) < 1000 for (_, told), end in zip(played.done, ends, strict=True))


def test_few_events_are_made_and_a_device_that_never_answers_is_left_alone() -> None:
    played = Played()
    for _ in range(100):
        played.step(host=0.2, device=0.1)
    assert next(played.cuda.made) < 6
    played.cuda.work(10_000)
    for _ in range(600):
        played.step(host=0.0, device=0.1)
    assert next(played.cuda.made) < 300
    played.device.close()
    assert len(played.done) == 100


def test_several_optimizers_of_one_step_are_one_mark_and_a_capture_is_not_disturbed() -> None:
    played = Played()
    played.device.step_begins(played.recorder.step(None))
    for _ in range(3):
        played.cuda.work(0.1)
        played.device.step_queued()
    end = played.cuda.busy_until
    played.clock.advance(1)
    played.cuda.capturing = True
    played.step(host=0.1, device=0.0)
    assert played.done == [(0, end)]
    played.device.close()
    assert len(played.done) == 1


def test_the_initialization_of_cuda_is_told_once_and_a_build_without_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    initialized = False

    def lazy_init() -> None:
        nonlocal initialized
        time.sleep(0.1)
        initialized = True

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lazy_init)
    with observed((torch, install_torch)) as seen:
        torch.cuda._lazy_init()
        assert torch.cuda._lazy_init is lazy_init
        torch.cuda._lazy_init()
    (told,) = seen.of(Kind.SPAN, Activity.DEVICE_INIT)
    assert told.name == "cuda" and (told.duration or 0) >= 0.1 * NS


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a device")
def test_without_a_device_the_hosts_own_error_comes_and_nothing_is_told() -> None:
    with observed((torch, install_torch)) as seen:
        with pytest.raises((AssertionError, RuntimeError)):
            torch.cuda._lazy_init()
        assert not seen.events


# --- two ranks -------------------------------------------------------------------------------------------------------

TWO_RANKS = """
import os, signal, sys, time
import torch, torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.ones(40, 4))
arrived, took = [], []
signal.signal(signal.SIGTERM, lambda *_: arrived.append(time.perf_counter()))
for number, (x,) in enumerate(torch.utils.data.DataLoader(data)):
    model(x).mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    if rank == 0 and number % 2:
        sent = time.perf_counter()
        os.kill(os.getpid(), signal.SIGTERM)
        while not arrived:
            pass
        took.append(arrived.pop() - sent)
dist.barrier()
print(rank, number, min(took, default=0))
"""


def test_pl_20806_a_sigterm_on_one_rank_keeps_no_other_waiting(run: Runner) -> None:
    command = [*run.command(TWO_RANKS), str(run.folder / "rendezvous")]
    ranks = []
    for rank in range(2):
        variables = run.environ(GOODPUT_PLUGINS="auto", RANK=str(rank), WORLD_SIZE="2", GOODPUT_RUN_NAME="two")
        ranks.append(subprocess.Popen(command, env=variables, cwd=run.folder, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=110)[0].splitlines()[-1].split() for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    assert [line[:2] for line in said] == [["0", "39"], ["1", "39"]]
    assert float(said[0][2]) < 0.001  # at best, from the kill to the host's own handler, ours before it
    (journal,) = run.journals
    events = read_journal(journal, journal.read_bytes()).events
    assert sum(event.kind is Kind.NOTICE for event in events) == 20
    assert {(event.step, event.data) for event in events if event.kind is Kind.RANK} == {(0, 2)}
