from __future__ import annotations

from pathlib import Path

import pytest
from recording import Recording
from running import Runner


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Runs scripts in processes of their own."""
    return Runner(tmp_path)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recorder whose journal can be read."""
    return Recording(tmp_path / "a.jsonl")
