"""Each bucket in a row: its time, its share, a small bar, what it came from; and what was not seen."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from goodput_plugins.cli.render import ledger
from goodput_plugins.cli.render.bars import small, swatch
from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.palette import style
from goodput_plugins.cli.render.words import listing, pack, shorten
from goodput_plugins.cli.units import duration, share
from goodput_plugins.core.buckets import BADPUT, LABELS, OVERLAPPED, Bucket
from goodput_plugins.core.report import Report

_NAMED = 4
"""So many sub-sources are named; the others are summed up."""

_INDENT = 4
"""Where the names begin, cells; the swatch stands before."""

_SUBSOURCES = {
    "FIRST_STEP": "rest of first steps",
    "SLOW_STEP": "stuck steps",
    "HOST_GAP": "device idle",
    "HANG": "hung, still alive",
    "DATA_REPLAY": "replaying data",
}

_ELASTIC = (Bucket.ELASTIC_SLICE_DOWN, Bucket.ELASTIC_SCALE_UP, Bucket.ELASTIC_REINITIALIZATION)
_CHECKPOINTS = "the orbax plugin, or goodput_plugins.orbax.wrap"
_NEEDS = {
    Bucket.TPU_INITIALIZATION: "the jax plugin",
    Bucket.PROGRAM_STARTUP: "the jax plugin",
    Bucket.TRAINING_PREP: "GOODPUT_PLUGINS=auto",
    Bucket.DATA_LOADING_SYNC: "a plugin for the data loader",
    Bucket.SAVE: _CHECKPOINTS,
    Bucket.RESTORE: _CHECKPOINTS,
    Bucket.WASTED_PROGRESS: "step numbers that survive a restart",
    Bucket.CUSTOM: "named events",
    Bucket.DATA_LOADING_ASYNC: "a plugin for the data loader",
    Bucket.SAVE_ASYNC: _CHECKPOINTS,
}
"""What would show a bucket that is not measured."""


def table(report: Report, canvas: Canvas) -> RenderableType:
    """Every bucket that has time, most lost first, and a line on all that have none."""
    return Group(*(_row(row, report, canvas) for row in ledger.rows(report)), Text(), *_footnotes(report, canvas))


def _row(row: ledger.Row, report: Report, canvas: Canvas) -> Text:
    """One bucket; what its time came from stands beside the small bar, or below where there is no room."""
    line = Text.assemble(swatch(row.bucket, canvas))
    line.append(" " * (_INDENT - len(line)))
    line.append(f"{LABELS[row.bucket]:<21}", "bold" if row.bucket is Bucket.PRODUCTIVE else "")
    line.append(f"  {duration(row.spent):>11}  {share(row.tenths, row.spent):>7}  ")
    line.append(
        small(row.spent, report.breakdown.elapsed, canvas.width - len(line)), style(row.bucket, solid=canvas.solid)
    )
    if sources := _sources(report, row.bucket):
        beside = ", ".join(sources)
        if cell_len(line.plain) + 1 + cell_len(beside) <= canvas.width:
            line.append(f" {beside}", "dim")
        else:
            below = pack(sources, canvas.width - _INDENT).split("\n")
            line.append("".join(f"\n{' ' * _INDENT}{packed}" for packed in below), "dim")
    return line


def _sources(report: Report, bucket: Bucket) -> list[str]:
    whole = report.breakdown[bucket]
    detail = sorted(report.breakdown.detail(bucket).items(), key=lambda item: -item[1])
    named = detail if len(detail) == _NAMED + 1 else detail[:_NAMED]
    told = [_word(bucket, name) + (f" {duration(ns)}" if ns < whole else "") for name, ns in named]
    if rest := detail[len(named) :]:
        told.append(f"{len(rest)} others {duration(sum(ns for _, ns in rest))}")
    return told


def _word(bucket: Bucket, name: str) -> str:
    if bucket is Bucket.CUSTOM:
        return shorten(name, 20)
    return _SUBSOURCES.get(name) or shorten(name.lower().replace("_", " "), 20)


def _footnotes(report: Report, canvas: Canvas) -> list[Text]:
    spent = report.breakdown
    others = ["Nothing else took time."] if any(not spent[b] and b not in report.unknown for b in BADPUT) else []
    if unseen := _unseen(report):
        others.append(f"Not measured: {'; '.join(unseen)}.")
    lines = [" ".join(others)] if others else []
    beside = [f"{_short(b)} {duration(spent[b])}" for b in OVERLAPPED if spent[b]]
    if beside:
        lines.append(pack([f"Overlapped work: {beside[0]}", *beside[1:]], canvas.width - 1) + ".")
    if excluded := spent[Bucket.EXCLUDED]:
        lines.append(f"Left out: {duration(excluded)} between a stop by the user, or a clean end, and the next start.")
    return [Text(line, "dim") for line in lines]


def _unseen(report: Report) -> list[str]:
    """Buckets that nothing could have seen, those together that need the same."""
    by_need: dict[str, list[str]] = {}
    for bucket in (*BADPUT, *OVERLAPPED):
        if bucket in report.unknown and not report.breakdown[bucket] and bucket not in _ELASTIC:
            by_need.setdefault(_NEEDS.get(bucket, ""), []).append(_short(bucket))
    told = [f"{listing(names)} (needs {need})" if need else listing(names) for need, names in by_need.items()]
    if all(bucket in report.unknown for bucket in _ELASTIC):
        told.append("elastic training")
    return told


def _short(bucket: Bucket) -> str:
    return LABELS[bucket].split(",")[0].lower()
