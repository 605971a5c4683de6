"""The command line: which words mean what."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from goodput_plugins.cli import times

_DESCRIPTION = "Where the time of a training job went."
_REPORT = """Report where the time of a run went.

RUN_OR_PATH is a run's name, its directory, a journal, or entries exported with
`gcloud logging read --format=json`; without it, the newest run below $GOODPUT_DIR (./goodput).
With --project or --logger RUN is read from Cloud Logging instead, as it is there.
A time T is ISO 8601 (2026-11-29T08:00, UTC unless it says otherwise), seconds since the epoch,
or so long ago (-90s, -1h30m, -2d)."""
_EXPORT = """Print a run as log entries, one JSON object a line.

ml-goodput: the payloads of Google's ML Goodput Measurement library and of Orbax's cloud logger.
docs/google-library.md says what they cannot tell."""
_DASHBOARD = """Print a dashboard as JSON.

cloud-monitoring: goodput, badput by source and more, over the metrics that the agent sends
jobset: the same beside what GKE knows of a JobSet and its nodes, on one time axis
grafana: over what the agent answers at /metrics

    goodput dashboard cloud-monitoring > goodput.json
    gcloud monitoring dashboards create --config-from-file=goodput.json"""
_DASHBOARDS = ("cloud-monitoring", "jobset", "grafana")
_DOCTOR = """Find out why nothing is measured, or nothing is sent.

Each line says what is, what it means and what to do. RUN is a run's name or its directory; without
it, the newest run below $GOODPUT_DIR (./goodput). Exit code 1 if something is wrong."""
_AGENT = """Send what a run records to where GOODPUT_EXPORTERS and the script's monitors say, until it is over.

The training process starts it by itself; by hand it serves a container beside the trainer, and what an
outage left behind. One agent sends; a second one stands by."""
_TIMES = ("--as-of", "--from", "--to")


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def parse(argv: Sequence[str], *, now: int) -> argparse.Namespace:
    """The options that ``argv`` gives; ``options.command`` is the function to call with them.

    Args:
        argv: the words after ``goodput``.
        now: ns since the epoch; relative times count from it.

    Raises:
        SystemExit: the usage is wrong (code 2), or help was asked for (code 0).
    """
    parser = argparse.ArgumentParser(prog="goodput", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_report(commands, now)
    _add_export(commands, now)
    _add_dashboard(commands)
    _add_doctor(commands)
    _add_agent(commands)
    return parser.parse_args(_join_relative_times(argv))


def _add(commands: _Commands, name: str, help: str, description: str) -> argparse.ArgumentParser:
    """A command's parser; its description is shown as it is written."""
    return commands.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_report(commands: _Commands, now: int) -> None:
    parser = _add(commands, "report", "where the time of a run went", _REPORT)
    at = _moment(now)
    parser.add_argument("target", nargs="?", type=_named, metavar="RUN_OR_PATH", help="what to report on")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.add_argument("--as-of", type=at, metavar="T", help="as it was known then")
    parser.add_argument("--from", type=at, metavar="T", dest="start", help="only the time from T on")
    parser.add_argument("--to", type=at, metavar="T", dest="end", help="only the time up to T (default: now)")
    parser.add_argument("--run", metavar="NAME", help="one job of an export that holds several")
    parser.add_argument("--generation", type=_natural, metavar="N", help="another generation than the newest")
    parser.add_argument("--project", metavar="P", help="read the run from Cloud Logging, in this project")
    parser.add_argument("--logger", metavar="L", help="... from this log (default: goodput_RUN)")
    parser.add_argument("--ideal", type=_nanoseconds, metavar="SECONDS", help="the ideal step time, if it is known")
    parser.set_defaults(command=lambda options: _checked(parser, options, now))


def _add_export(commands: _Commands, now: int) -> None:
    parser = _add(commands, "export", "print a run as log entries", _EXPORT)
    parser.add_argument("target", nargs="?", type=_named, metavar="RUN_OR_PATH", help="what to print")
    parser.add_argument("--format", choices=["ml-goodput"], default="ml-goodput", help="the form of the entries")
    parser.add_argument("--run", metavar="NAME", help="one job of an export that holds several")
    parser.set_defaults(command=lambda options: _exported(options, now))


def _add_dashboard(commands: _Commands) -> None:
    parser = _add(commands, "dashboard", "print a dashboard as JSON", _DASHBOARD)
    parser.add_argument("name", choices=_DASHBOARDS, help="which one")
    parser.set_defaults(command=_dashboard)


def _add_doctor(commands: _Commands) -> None:
    parser = _add(commands, "doctor", "find out why nothing is measured or sent", _DOCTOR)
    parser.add_argument("target", nargs="?", type=_named, metavar="RUN", help="the run to look at")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(command=_examined)


def _examined(options: argparse.Namespace) -> int:
    from goodput_plugins.cli import doctor

    return doctor.run(options)


def _dashboard(options: argparse.Namespace) -> int:
    import json

    from goodput_plugins.dashboards import DASHBOARDS

    print(json.dumps(DASHBOARDS[options.name](), indent=2))
    return 0


def _add_agent(commands: _Commands) -> None:
    parser = _add(commands, "agent", "send what a run records", _AGENT)
    parser.add_argument("run", type=_named, metavar="RUN", help="the run's name")
    parser.add_argument("--stay", action="store_true", help="go on after the trainer's end, for the next one")
    parser.add_argument("--since", type=_natural, help=argparse.SUPPRESS)  # a trainer's own, see agent.succession
    parser.set_defaults(command=_agent)


def _agent(options: argparse.Namespace) -> int:
    from goodput_plugins.agent import start

    return start.run(options.run, stay=options.stay, since=options.since)


def _exported(options: argparse.Namespace, now: int) -> int:
    from goodput_plugins.cli import export

    return export.run(options, now=now)


def _checked(parser: argparse.ArgumentParser, options: argparse.Namespace, now: int) -> int:
    end = now if options.as_of is None else options.as_of
    if options.start is not None and options.start > (end if options.end is None else options.end):
        parser.error(f"--from lies {_bound(options)}")
    if (options.project or options.logger) and not options.target:
        parser.error("--project and --logger need RUN, the name of the run in the log")
    from goodput_plugins.cli import report

    return report.run(options, now=now, usage_error=parser.error)


def _bound(options: argparse.Namespace) -> str:
    if options.end is not None:
        return "after --to"
    return "in the future" if options.as_of is None else "after --as-of"


def _moment(now: int) -> Callable[[str], int]:
    def moment(text: str) -> int:
        try:
            return times.at(text, now=now)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return moment


def _named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty; is a variable unset?")
    return text


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def _nanoseconds(text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1e-9 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return round(seconds * 1e9)


def _join_relative_times(argv: Sequence[str]) -> list[str]:
    """``--from -1h`` as ``--from=-1h``: argparse would take the second word for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in _TIMES and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


class _Version(argparse.Action):
    """``--version``, which reads the version only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"goodput {version('goodput-plugins')}")
        parser.exit()
