"""``python -m goodput_plugins`` is the command ``goodput``."""

from __future__ import annotations

import sys

from goodput_plugins.cli import main

if __name__ == "__main__":
    sys.exit(main())
