"""The entries of an export, a piece at a time: a JSON list, or JSON objects one after the other.

An export of a million steps is a gigabyte, so it is never held in whole. Where msgspec is installed it
parses, and skips what no reader needs; otherwise the standard library does, a few times slower. What is
torn or no JSON is counted, and reading goes on behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

PIECE = 128 * 1024
"""How much is read at a time, bytes: what is made of it stays in a processor's cache."""
LONGEST = 64 * 1024 * 1024
"""No entry is longer; what seems to be is no JSON."""
LONGEST_WORD = len("\\u12ab\\u12ab")
"""Of what may be cut off in JSON, but for strings, nothing is longer."""

_SPACE = b" \t\r\n"
_BETWEEN = re.compile(r"\}\s*,?\s*(?=\{)")
_COMMA = re.compile(rb"(?<=\})\s*,\s*(?=\{)")
_NEW_LINE = re.compile(rb"\n")
_SEPARATOR = re.compile(r"[\s,\0]*")
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class Entry:
    """One entry.

    Attributes:
        jsonPayload: what it tells; None if it has no payload.
        timestamp: when it was written; None if it does not say.
    """

    jsonPayload: Any
    timestamp: datetime | None = None


COLUMNS = ("step_start_time", "data_loading_start_time", "data_loading_end_time")
"""The keys of payloads that tell one time: nearly all of them do."""


@dataclass(slots=True)
class Column:
    """What payloads with one of these keys tell.

    Attributes:
        key: which one.
        job: the job's name, as it was told.
        times: what each payload tells under the key: POSIX seconds, a time that a clock can show.
        numbers: the step's number that each payload tells, None if that is none; empty for waits.
        written: when each entry was written.
    """

    key: str
    job: Any
    times: list[float]
    numbers: list[int | None]
    written: list[datetime | None]


@dataclass
class Piece:
    """Some entries.

    Attributes:
        entries: all but those in columns.
        broken: how many others were torn or no JSON.
        columns: steps and waits.
        plain: it was nothing but entries, and would be the same in a file of its own.
    """

    entries: list[Entry] = field(default_factory=list)
    broken: int = 0
    columns: list[Column] = field(default_factory=list)
    plain: bool = True


def pieces(file: BinaryIO, part: tuple[int, int | None] = (0, None)) -> Iterator[Piece]:
    """The entries of a file that was opened in binary mode, or of one of its :func:`halves`."""
    start, stop = part
    data, cut = _beginning(file)
    if start:
        file.seek(start)
        data = b""
    while more := file.read(PIECE if stop is None else min(PIECE, stop - file.tell())):
        piece, data = cut(data, False)
        yield piece
        data += more
    yield cut(data, True)[0]


def halves(file: BinaryIO, size: int) -> list[tuple[int, int | None]]:
    """From where to where each half of a file of so many bytes goes; nothing if that cannot be seen.

    Where a piece of one is not plain it may have been cut inside an entry.
    """
    cut = _beginning(file)[1]
    middle = file.seek(size // 2)
    between = (_COMMA if cut is _of_list else _NEW_LINE).search(file.read(PIECE))
    if cut is _of_text or between is None or middle < PIECE:
        return []
    return [(0, middle + between.start()), (middle + between.end(), None)]


_Cut = Callable[[bytes, bool], tuple[Piece, bytes]]


def _beginning(file: BinaryIO) -> tuple[bytes, _Cut]:
    """The first bytes of what holds the entries, and what cuts them up."""
    data = file.read(PIECE).removeprefix(b"\xef\xbb\xbf").lstrip()
    if data.startswith(b"["):
        return data[1:], _of_list
    return data, _of_lines if _parsed(data.partition(b"\n")[0]) is not None else _of_text


def entry_of(parsed: Any) -> Entry:
    """An entry that was parsed already: wrapped, or a bare payload."""
    if not isinstance(parsed, Mapping):
        return Entry(None)
    payload = parsed.get("jsonPayload", parsed)
    return Entry(payload if isinstance(payload, Mapping) else None, moment(parsed.get("timestamp")))


def moment(text: Any) -> datetime | None:
    """The moment that an entry's timestamp means; None if it means none."""
    try:
        told = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return told if told.tzinfo is not None else None


def _of_list(data: bytes, last: bool) -> tuple[Piece, bytes]:
    """The whole entries at the beginning of what follows a list's bracket, and the rest."""
    if last:
        data = data.rstrip(_SPACE + b"\0").removesuffix(b"]")
        end = len(data)
    else:
        end = _last_comma(data)
        if end < 0 and len(data) < LONGEST:
            return Piece(), data
    piece = _fast(memoryview(data)[:end])
    return (piece, data[end + 1 :]) if piece is not None else _of_text(data, last)


def _last_comma(data: bytes) -> int:
    """Where the last comma between two objects stands; -1 if there is none."""
    at = len(data)
    while (at := data.rfind(b",", 0, at)) >= 0:
        before, behind = data[max(0, at - 99) : at], data[at + 1 : at + 99]
        if before.rstrip(_SPACE).endswith(b"}") and behind.lstrip(_SPACE).startswith(b"{"):
            return at
    return -1


def _of_lines(data: bytes, last: bool) -> tuple[Piece, bytes]:
    """The entries in the whole lines, one in each, and the rest."""
    end = len(data) if last else data.rfind(b"\n") + 1
    if not end and len(data) < LONGEST:
        return Piece(), data
    lines = [line for line in data[:end].replace(b"\0", b"").split(b"\n") if not line.isspace() and line]
    piece = _fast(b",".join(lines))
    if piece is not None:
        return piece, data[end:]
    parsed = [_parsed(line) for line in lines]
    told = [entry_of(entry) for entry in parsed if entry is not None]
    return Piece(told, len(parsed) - len(told), plain=False), data[end:]


def _of_text(data: bytes, last: bool) -> tuple[Piece, bytes]:
    """The entries one by one, whatever stands between them, and the rest."""
    text, piece, at = data.decode("utf-8", "replace"), Piece(plain=False), 0
    while True:
        separator = _SEPARATOR.match(text, at)
        at = separator.end() if separator is not None else at
        if at == len(text):
            return piece, b""
        try:
            parsed, at = _DECODER.raw_decode(text, at)
            piece.entries.append(entry_of(parsed))
        except (ValueError, RecursionError) as error:
            if not last and _is_cut_off(error, text) and len(text) - at < LONGEST:
                return piece, text[at:].encode()
            piece.broken += 1
            between = _BETWEEN.search(text, at + 1)
            if between is None:
                return piece, b""
            at = between.end()


def _is_cut_off(error: Exception, text: str) -> bool:
    """Whether parsing failed for want of what follows."""
    return isinstance(error, json.JSONDecodeError) and (
        error.pos >= len(text.rstrip()) - LONGEST_WORD or error.msg.startswith("Unterminated")
    )


def _parsed(line: bytes) -> Any:
    """What a line holds; None if it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


_Fast = Callable[[bytes], "Piece | None"]


def _fast(data: bytes | memoryview) -> Piece | None:
    """The entries that these bytes hold, with commas between; None if they are not that."""
    global _reader
    _reader = _reader or _best_reader()
    return _reader(b"".join((b"[", data, b"]")))


_reader: _Fast | None = None


def _best_reader() -> _Fast:
    try:
        from goodput_plugins.core.fast_exports import read
    except ImportError:
        return _standard
    return read


def _standard(data: bytes) -> Piece | None:
    try:
        return Piece([entry_of(parsed) for parsed in json.loads(data)])
    except (ValueError, RecursionError):
        return None
