from __future__ import annotations

import os
from pathlib import Path

import pytest
from recording import Recording
from running import Runner

# Where PyTorch/XLA is installed, Lightning asks it for the kind of TPU; without these it would ask a metadata server.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v4-8")


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Runs scripts in processes of their own."""
    return Runner(tmp_path)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recorder whose journal can be read."""
    return Recording(tmp_path / "a.jsonl")
