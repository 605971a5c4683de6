"""The command ``goodput``: what a training job's time went to, for people and for scripts.

::

    goodput report                       the newest run below $GOODPUT_DIR (./goodput)
    goodput report digits-3f2a           a run by its name
    goodput report entries.json          what `gcloud logging read --format=json` printed
    goodput report --from -1h --json     the last hour, as JSON

Exit codes: 0 fine; 1 the data cannot be used, told in one sentence on stderr (with ``--json``, too: then stdout is
empty); 2 usage; 130 on Ctrl-C. With ``GOODPUT_DEBUG=1`` a fault of ours shows its traceback. rich is imported where
something is drawn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence

from goodput_plugins import environ
from goodput_plugins.cli import arguments
from goodput_plugins.core.errors import GoodputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the words after ``goodput``; by default those that the process was started with.

    Returns:
        The exit code.
    """
    try:
        options = arguments.parse(sys.argv[1:] if argv is None else argv, now=time.time_ns())
        options.alone = argv is None
        code: int = options.command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as usage:
        return int(usage.code or 0)
    except BrokenPipeError:  # `head` had all it wanted
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except GoodputError as error:
        return _failed(f"{error}")
    except OSError as error:
        _drop_output()
        return _failed(f"its output cannot be written, or what it needs cannot be read ({error}).")
    except Exception as error:
        if environ.DEBUG.read() not in ("", "0"):
            import traceback

            traceback.print_exc()
        return _failed(
            f"no report, by a fault of goodput-plugins and not of your run ({type(error).__name__}: {error}). "
            "GOODPUT_DEBUG=1 shows where; please file it."
        )
    return code


def _failed(sentence: str) -> int:
    print(f"goodput: {sentence}", file=sys.stderr)
    return 1


def _drop_output() -> None:
    """Keep the interpreter from flushing at its exit what could not be written, which would change the exit code."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
