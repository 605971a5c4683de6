from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import Recording
from running import Runner

# Where PyTorch/XLA is installed, Lightning asks it for the kind of TPU; without these it would ask a metadata server.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v4-8")

LONGEST = [
    *["contract", "lightning_processes", "agent_process", "xla_launch", "xla_jobs", "end_to_end", "exit", "processes"],
    *["jax_harmless", "jax_loops", "lightning_checkpoints", "switch", "agent_succession", "agent_metrics", "disk"],
    *["jax_numbers", "session", "signals", "simulated_jobs", "agent_in_the_cloud", "orbax_harmless", "jax_steps"],
]
"""Files that take minutes. They begin first, so that the short ones fill the time in which the last of these ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}.py": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Runs scripts in processes of their own."""
    return Runner(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    """Trainings that send; the agent that the last one leaves behind is killed."""
    from sending import Job  # what it needs is not everywhere

    made = Job(Runner(tmp_path))
    yield made
    made.kill_agent()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recorder whose journal can be read."""
    return Recording(tmp_path / "a.jsonl")


probed: dict[Any, Any] = {}


@pytest.fixture
def one_interpreter_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another interpreter finds is asked once for each interpreter and path, not by each test."""
    from goodput_plugins.doctor import case

    ask: Callable[[case.Case], Any] = vars(case.Case)["probe"].func

    def probe(self: case.Case) -> Any:
        key = sys.executable, self.environ.get("PYTHONPATH")
        return probed[key] if key in probed else probed.setdefault(key, ask(self))

    monkeypatch.setattr(case.Case, "probe", property(probe))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google is there, as far as a connection tells; addresses of tests are asked."""
    from goodput_plugins.doctor import google

    ask = google.unreached
    monkeypatch.setattr(google, "unreached", lambda address: None if "googleapis" in address else ask(address))
