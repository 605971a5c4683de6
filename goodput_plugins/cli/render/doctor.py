"""What the doctor found, for a person at a terminal: group by group, what needs doing beside its cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goodput_plugins.cli.render import printed, section
from goodput_plugins.cli.render.canvas import MARGIN, Canvas
from goodput_plugins.cli.render.words import listing, plain
from goodput_plugins.doctor.diagnosis import Diagnosis, Level

_MARKS = {
    Level.OK: ("✓", "green"),
    Level.WARNING: ("!", "bold yellow"),
    Level.WRONG: ("✗", "bold red"),
    Level.UNKNOWN: ("?", "bold cyan"),
}
_WORDS = {
    Level.WRONG: "{} wrong",
    Level.WARNING: "{} to look at",
    Level.UNKNOWN: "{} not known",
    Level.OK: "{} fine",
}


def show(groups: Mapping[str, Sequence[Diagnosis]], counts: Counter[Level], console: Console) -> None:
    """Print what was found."""
    canvas = Canvas.of(console)
    drawing = Group(_headline(counts), *_groups(groups))
    printed(Padding(drawing, (1, MARGIN, 1, MARGIN)), canvas, console)


def _headline(counts: Counter[Level]) -> Text:
    worst = next((level for level in (Level.WRONG, Level.WARNING, Level.UNKNOWN) if counts[level]), Level.OK)
    mark, style = _MARKS[worst]
    told = [words.format(counts[level]) for level, words in _WORDS.items() if counts[level]]
    return Text.assemble((f"{mark} ", style), (listing(told), "bold"))


def _groups(groups: Mapping[str, Sequence[Diagnosis]]) -> Iterator[RenderableType]:
    for title, found in groups.items():
        if found:
            yield from section(title, _lines(found))


def _lines(found: Sequence[Diagnosis]) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for diagnosis in found:
        mark, style = _MARKS[diagnosis.level]
        grid.add_row(Text(mark, style), _told(diagnosis))
    return grid


def _told(diagnosis: Diagnosis) -> RenderableType:
    is_fine = diagnosis.level is Level.OK
    told = Text(_sentence(diagnosis.text), "" if is_fine else "bold")
    if diagnosis.meaning:
        told.append(f" {plain(diagnosis.meaning)}", "dim" if is_fine else "not bold")
    if not diagnosis.cure:
        return told
    cure = Table.grid(padding=(0, 1, 0, 0))
    cure.add_row(Text("→", "dim"), Text(plain(diagnosis.cure)))
    return Group(told, cure)


def _sentence(text: str) -> str:
    text = plain(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."
