"""The state of a live report as a file of JSON: versioned, checked, replaced at once."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from goodput_plugins.core.attribution.ledger import Beside
from goodput_plugins.core.attribution.past import Block, Past, Stuck
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.earlier import Earlier, Told
from goodput_plugins.core.events import encode, event_of
from goodput_plugins.core.live.freeze import Kept
from goodput_plugins.core.report import Source
from goodput_plugins.core.runlog import Life, Steps
from goodput_plugins.core.story import Story

SCHEMA = "goodput-live/4"
COLUMNS = (
    *("times", "numbers", "ordinals", "done", "done_ordinals"),
    *("wait_starts", "wait_ends", "idle_starts", "idle_ends", "alive"),
)


def write(path: Path, keep: int, kept: Kept | None, source: Any) -> None:
    """Write a state; the file is the old one or the new one, never half of it."""
    text = json.dumps({"keep": keep, "kept": None if kept is None else _of_kept(kept), "source": source})
    head = json.dumps({"schema": SCHEMA, "check": zlib.crc32(text.encode())})
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(f"{head}\n{text}\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: Path) -> tuple[int, Kept | None, Any]:
    """``(keep, kept, source)`` as they were written.

    Raises:
        FileNotFoundError: there is none.
        Exception: it is damaged, or none of ours.
    """
    head, _, text = path.read_text().partition("\n")
    about = json.loads(head)
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise ValueError("it is none of this version")
    if about.get("check") != zlib.crc32(text.rstrip("\n").encode()):
        raise ValueError("it is damaged")
    told = json.loads(text)
    return told["keep"], None if told["kept"] is None else _kept(told["kept"]), told["source"]


def _of_kept(kept: Kept) -> dict[str, Any]:
    past = {**vars(kept.past)}
    past |= {name: _pairs(past[name]) for name in ("positions", "earlier_positions", "distances")}
    past["samples"] = [sample.tolist() for sample in past["samples"]]
    earlier, story = {**vars(kept.earlier), "ended": None}, kept.earlier.story
    earlier |= {name: _of_sources(earlier[name]) for name in ("between", "overlapped")}
    earlier["attempts"] = [asdict(told) | {"spent": _of_sources(told.spent)} for told in kept.earlier.attempts]
    earlier |= {"times": _pairs(kept.earlier.times), "sees": sorted(kept.earlier.sees)}
    earlier["story"] = {
        "often": _pairs(story.often),
        "took": _pairs(story.took),
        "worst": story.worst,
        "compiled": sorted(story.compiled),
        "again": story.again,
    }
    return {"number": kept.number, "past": past, "earlier": earlier}


def _kept(told: Mapping[str, Any]) -> Kept:
    past = dict(told["past"])
    past |= {name: dict(past[name]) for name in ("positions", "earlier_positions")}
    past["distances"] = Counter(dict(past["distances"]))
    past["samples"] = [array("q", sample) for sample in past["samples"]]
    past["begins_with"] = None if past["begins_with"] is None else tuple(past["begins_with"])
    past |= {"stuck": Stuck(*past["stuck"]), "blocks": [Block(*block) for block in past["blocks"]]}
    past |= {name: [(tuple(file), at) for file, at in past[name]] for name in ("files", "earlier_files")}
    past |= {name: [tuple(row) for row in past[name]] for name in ("saves", "elsewhere")}
    earlier = dict(told["earlier"])
    earlier |= {name: _sources(earlier[name]) for name in ("between", "overlapped")}
    earlier["attempts"] = [Told(**{**row, "spent": _sources(row["spent"])}) for row in earlier["attempts"]]
    earlier |= {"beside": Beside(*earlier["beside"]), "sees": set(earlier["sees"])}
    earlier["times"] = Counter(dict(earlier["times"]))
    story = earlier["story"]
    earlier["story"] = Story(
        Counter({tuple(key): value for key, value in story["often"]}),
        Counter({tuple(key): value for key, value in story["took"]}),
        [(ns, number) for ns, number in story["worst"]],
        set(story["compiled"]),
        {name: list(steps) for name, steps in story["again"].items()},
    )
    return Kept(told["number"], Past(**past), Earlier(**earlier))


def _pairs(counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return list(counts.items())


def _of_sources(spent: Mapping[Source, int]) -> list[tuple[str, str | None, int]]:
    return [(bucket.value, sub, ns) for (bucket, sub), ns in spent.items()]


def _sources(rows: Iterable[tuple[str, str | None, int]]) -> Counter[Source]:
    return Counter({(Bucket(bucket), sub): ns for bucket, sub, ns in rows})


def of_life(life: Life) -> dict[str, Any]:
    """A life as JSON."""
    steps = life.steps
    return {
        "id": life.id,
        "start": life.start,
        "foreign": life.foreign,
        "events": [json.loads(encode(event)) for event in life.events],
        "columns": {name: list(getattr(steps, name)) for name in COLUMNS},
        "thread": steps.thread,
        "told": steps.told,
    }


def life_of(told: Mapping[str, Any]) -> Life:
    """The life that :func:`of_life` wrote."""
    steps = Steps(thread=told["thread"], told=told["told"])
    for name in COLUMNS:
        setattr(steps, name, array("q", told["columns"][name]))
    return Life(told["id"], told["start"], [event_of(row) for row in told["events"]], told["foreign"], steps)
