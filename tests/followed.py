"""A run that an agent serves, as others see it: what the agent says of itself in the run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Followed:
    """A job with a run's folder."""

    @property
    def folder(self) -> Path:
        raise NotImplementedError

    @property
    def status(self) -> dict[str, Any]:
        try:
            status: dict[str, Any] = json.loads((self.folder / "agent.json").read_text())
        except (OSError, ValueError):
            return {}
        return status

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()
