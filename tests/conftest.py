from __future__ import annotations

from pathlib import Path

import pytest
from running import Runner


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Runs scripts in processes of their own."""
    return Runner(tmp_path)
