"""The report for a person at a terminal.

One screen, drawn top to bottom in the order in which it is looked at: the goodput, one bar of all
the time, each bucket, the attempts, the steps, the findings. Every function here takes a
:class:`~goodput_plugins.core.report.Report` and a :class:`Canvas` and returns something that rich
prints; nothing reads a clock, a file or the environment.

Where the encoding of the output is not UTF-8 the finished text is mapped to ASCII, character by
character, so no line changes its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from goodput_plugins.cli.render import bars, ledger
from goodput_plugins.cli.render.attempts import attempts
from goodput_plugins.cli.render.buckets import table
from goodput_plugins.cli.render.canvas import MARGIN, Canvas
from goodput_plugins.cli.render.endings import status
from goodput_plugins.cli.render.findings import findings
from goodput_plugins.cli.render.headline import headline
from goodput_plugins.cli.render.steps import steps
from goodput_plugins.cli.render.words import pack, shorten
from goodput_plugins.cli.units import duration, share
from goodput_plugins.core.report import Report

_ASCII = str.maketrans("█▉▊▋▌▍▎▏·━…µ✓✗■▶─⋮→", "#####|||.=~u+x]>-:>")


def show(report: Report, console: Console) -> None:
    """Print a report."""
    canvas = Canvas.of(console)
    printed(Padding(Group(*_sections(report, canvas)), (1, MARGIN, 1, MARGIN)), canvas, console)


def show_several(reports: Iterable[Report], console: Console) -> None:
    """Print one line for each of several reports."""
    canvas = Canvas.of(console)
    printed(Group(*(_line(report, canvas) for report in reports)), canvas, console)


def printed(drawing: RenderableType, canvas: Canvas, console: Console) -> None:
    """Print a drawing, without blanks at the ends of lines, and in ASCII where the output takes no more."""
    with console.capture() as capture:
        console.print(drawing, width=canvas.width + 2 * MARGIN)
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    if console.options.ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode()
    console.file.write(text)


def _sections(report: Report, canvas: Canvas) -> Iterator[RenderableType]:
    yield headline(report, canvas)
    if report.breakdown.elapsed:
        yield Text()
        bar = bars.stacked([(row.bucket, row.spent) for row in ledger.rows(report)], canvas)
        yield from [bar, bar] if canvas.solid else [bar]
        yield from (Text(), table(report, canvas))
    if report.attempts:
        yield from section("Attempts", attempts(report, canvas))
    if report.breakdown.elapsed and (report.steps.count or report.steps.last is not None):
        yield from section(
            "Steps, timed on the device" if report.steps.source == "device" else "Steps", steps(report, canvas)
        )
    if report.findings:
        yield from section("Findings", findings(report))
    if report.plugins:
        armed = [f"{shorten(name, 20)} {shorten(version, 20)}" for name, version in sorted(report.plugins.items())]
        yield from (Text(), Text(pack([f"plugins: {armed[0]}", *armed[1:]], canvas.width), "dim"))


def section(title: str, content: RenderableType) -> Iterator[RenderableType]:
    """A part below its title."""
    yield from (Text(), Rule(Text(title, "bold"), align="left", style="dim"), content)


def _line(report: Report, canvas: Canvas) -> Text:
    productive = ledger.rows(report)[0]
    goodput = share(productive.tenths, productive.spent) if report.breakdown.elapsed else "no time"
    elapsed = duration(report.breakdown.elapsed)
    left = f"{goodput:>9}  {elapsed:>11}  {shorten(report.run, canvas.width // 2)}  "
    return Text(left + shorten(status(report), max(10, canvas.width - len(left))), no_wrap=True, overflow="ellipsis")
